"""People in an export, and people left out: identities, the operator's key, the list of exclusions."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from runner.base.errors import DataError
from runner.base.marks import ENCODING

_KEY_BYTES: Final = 16
#: Hexadecimal digits of a pseudonym: 64 bits, so two of a million users share one with a chance of 1 in 40 million.
_DIGITS: Final = 16


class Identity(StrEnum):
    """How an export names its users."""

    #: Their ids and names.
    NAME = "name"
    #: Their ids; names are empty.
    ID = "id"
    #: A hash of their ids with the operator's key; names are empty.
    PSEUDONYM = "pseudonym"


def read_key(path: Path) -> bytes:
    """The operator's key for pseudonyms.

    Raises:
        DataError: it cannot be read, or is shorter than 16 bytes.
    """
    make = f"make one with `openssl rand -hex 32 > {path}`"
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise DataError(f"cannot read the key {path}: {error.strerror}; {make}") from error
    if len(key) < _KEY_BYTES:
        raise DataError(f"the key {path} has {len(key)} bytes, and needs {_KEY_BYTES} or more; {make}")
    return key


class Namer:
    """Turns users and hosts into what an export shows of them.

    A host is a hash with the key; without a key, a number in the order in which hosts occur.
    """

    def __init__(self, identity: Identity, key: bytes | None) -> None:
        """Raises DataError where pseudonyms lack a key."""
        if identity is Identity.PSEUDONYM and key is None:
            raise DataError("pseudonyms need a key (--key FILE); make one with `openssl rand -hex 32 > FILE`")
        self._identity = identity
        self._key = key
        self._hosts: dict[str, str] = {}

    def user(self, user_id: str, user_name: str) -> tuple[str, str]:
        """The id and the name to show."""
        if self._identity is Identity.NAME:
            return user_id, user_name
        if self._identity is Identity.ID:
            return user_id, ""
        return self._hash("user", user_id), ""

    def host(self, host_sha256: str | None) -> str | None:
        """What to show of a host, given the hash of its name."""
        if host_sha256 is None:
            return None
        if host_sha256 not in self._hosts:
            number = f"host-{len(self._hosts) + 1}"
            self._hosts[host_sha256] = number if self._key is None else self._hash("host", host_sha256)
        return self._hosts[host_sha256]

    def _hash(self, kind: str, text: str) -> str:
        assert self._key is not None  # noqa: S101 - both callers have looked
        return hmac.new(self._key, f"kernel-runner {kind} {text}".encode(), hashlib.sha256).hexdigest()[:_DIGITS]


@dataclass(frozen=True, kw_only=True)
class Exclusions:
    """Users and submissions that an export leaves out."""

    users: frozenset[str] = field(default=frozenset())
    submissions: frozenset[int] = field(default=frozenset())


def read_exclusions(path: Path) -> Exclusions:
    """A list of exclusions: a line `user ID` or `submission NUMBER` each; `#` begins a comment.

    Raises:
        DataError: it cannot be read, or a line is neither.
    """
    users: set[str] = set()
    submissions: set[int] = set()
    try:
        lines = path.read_text(encoding=ENCODING).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the list of exclusions {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split(maxsplit=1)
        if not words:
            continue
        kind, rest = words[0], words[1].strip() if len(words) == 2 else ""
        if kind == "user" and rest:
            users.add(rest)
        elif kind == "submission" and rest.isascii() and rest.isdigit() and len(rest) <= 10 and int(rest) < 2**31:
            submissions.add(int(rest))
        else:
            raise DataError(f"{path}, line {number}: {line.strip()!r}; expected `user ID` or `submission NUMBER`")
    return Exclusions(users=frozenset(users), submissions=frozenset(submissions))
