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


_RIGHT = "postgresql://u:s3cret@h/db"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        *((text, "quotation marks") for text in (f'"{_RIGHT}"', f"'{_RIGHT}'", '"host=h password=s3cret"')),
        *((f"{before}{_RIGHT}", "variable's name") for before in ("DATABASE_URL=", "export DATABASE_URL=", "URL=")),
        *(
            (f"{scheme}://u:s3cret@h/db", "begin with postgresql://")
            for scheme in ("postgresql+psycopg2", "jdbc:postgresql", "POSTGRESQL", "mysql")
        ),
        *(
            (f"{_RIGHT}?{words}", "parameters that libpq does not know")
            for words in ("pgbouncer=true", "schema=public", "ssl=require", "sslmode=require&connection_limit=5")
        ),
        ("host=h password=s3cret pool_size=5", "parameters that libpq does not know"),
        *((text, "%40") for text in ("postgresql://u:s3cr@et@h/db", "postgresql://u:s3cret%zz@h/db", "h:5432")),
    ],
)
def test_an_address_of_another_program_is_told_from_a_password(address: str, found: str) -> None:
    """Each is named by its own mistake, and nothing of it is repeated."""
    read, refused = _checked(address)
    assert read is None
    said = refused.splitlines()[-1]
    assert found in said, said
    assert "s3cr" not in said
    assert ("%40" in said) == (found == "%40")


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
