"""No part of a password in what people read, whatever the address looks like."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from runner.base.database_address import is_clear, mask_password, shown
from runner.base.errors import ConfigError
from runner.store import session

#: What stands between the parts of a password that must not be seen.
_BETWEEN = ("@", "/", "?", ":", "#", "%", "%zz", " ", "=", "&", ",", "[", "]", "'", "\\", ";", "\t", "@@", "/@", "%40")
_PARTS = ("hunter", "40962", "s3cret")
_WITHOUT_HOST = ("postgresql://u:{}/db", "postgresql://u:{}")
#: Addresses as people write them, also with a part forgotten.
_SHAPES = (
    *("postgresql://u:{}@h/db", "postgres://u:{}@h:5432,i:5433/db?sslmode=require", "postgresql://:{}@/db?host=/tmp"),
    *("postgresql://u:{}@[::1]:5432/db", "http://u:{}@h/db", *_WITHOUT_HOST),
    *("host=h user=u password={} dbname=db", "password='{}' host=h", "password = {}"),
)


def _checked(address: str) -> tuple[Mapping[str, Any] | None, str]:
    """The parameters, or why there are none."""
    try:
        return session.checked(address), ""
    except ConfigError as error:
        return None, "".join(traceback.format_exception(error))


@pytest.mark.parametrize("shape", _SHAPES)
def test_an_address_is_read_as_written_or_refused_and_never_shown(shape: str) -> None:
    """What is passed on to libpq has the whole password as its password: no message of libpq's repeats that."""
    for one, other in itertools.product(_BETWEEN, repeat=2):
        password = one.join(_PARTS[:2]) + other + _PARTS[2]
        if shape in _WITHOUT_HOST and "@" in password:
            # It has a host then.
            continue
        address = shape.format(password)
        read, refused = _checked(address)
        assert not any(part in refused for part in _PARTS), (address, refused)
        if read is not None:
            others = {key: value for key, value in read.items() if key != "password"}
            assert not any(part in str(value) for part in _PARTS for value in others.values()), (address, others)
            assert not any(part in mask_password(f"no way to {address} today") for part in _PARTS), address
        assert not any(part in shown(address) for part in _PARTS), (address, shown(address))


@pytest.mark.parametrize(
    "address",
    [
        *(
            "postgresql://",
            "postgresql:///db?host=/tmp",
            "postgresql://u@/db?host=%2Ftmp&port=5433",
            "postgres://h:1,i:65535/d",
        ),
        *("postgresql://u:p%40ss@h/d?x=1", "postgresql://u:p:q#r@[fe80::1]/d", "", "host=a", " host = a  port=1 "),
        *(r"host=a password='a \'b' user=x", r"password=a\ b host=h", "host=/tmp dbname='' user=u"),
    ],
)
def test_addresses_that_are_clear(address: str) -> None:
    """They are used as before."""
    assert is_clear(address)
    try:
        conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        assert "invalid URI query parameter" in str(error)  # noqa: PT017 libpq knows no x


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://u:p%40ss@h/d?x=1", "postgresql://u:***@h/d?x=1"),
        ("failed for postgres://u:p@ss@h/d now", "failed for postgres://u:***@h/d now"),
        ("postgresql://h/d?user=a&password=secret&x=1", "postgresql://h/d?user=a&password=***&x=1"),
        (r"host=a password='a \'b' user=x", "host=a password=*** user=x"),
        ("postgresql://h/d", "postgresql://h/d"),
        ("https://example.com/a:b", "https://example.com/a:b"),
    ],
)
def test_passwords_are_masked_in_every_spelling_of_a_connection_string(text: str, masked: str) -> None:
    """URLs, their parameters, and key=value words."""
    assert mask_password(text) == masked
