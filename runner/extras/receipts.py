"""Reads and checks receipts, signed statements of results, for commands and guests. Knows no database.

A receipt is one line of JSON with `statement`, `key` and `signature`. The statement is JSON too, as a text; the
signature (Ed25519) is of its bytes. Both have one form: keys in order, no space, ASCII. Any other text is refused, so
that no byte of a receipt can be changed, and no two programs read different things out of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from runner.base.dates import DateError, read_date
from runner.base.errors import DataError, ReceiptError
from runner.base.model import Receipt
from runner.base.receipts import FORMAT, canonical

#: The fields of every statement.
_FIELDS: Final[Mapping[str, type]] = {
    "format": str,
    "host": str,
    "submission_id": int,
    "user_id": str,
    "leaderboard": str,
    "gpu_type": str,
    "run": str,
    "job_id": int,
    "attempt": int,
    "evaluated_at": str,
    "verdict": str,
    "code_sha256": str,
    "task_sha256": str,
    "harness": str,
}
#: What a statement of a public run has beside them. Of a secret run nobody is told more than its verdict.
_PUBLIC_FIELDS: Final[Mapping[str, type]] = {
    "score_s": float,
    "timing": str,
    "correctness": str,
    "cases": list,
    "system": dict,
}
#: Fields that a database has, too.
_COMPARED: Final = (
    *("job_id", "submission_id", "user_id", "leaderboard", "gpu_type", "run", "host", "attempt", "code_sha256"),
    *("score_s", "timing", "correctness"),
)
#: In hexadecimal.
_KEY_DIGITS: Final = 64
_SIGNATURE_DIGITS: Final = 128


@dataclass(frozen=True, kw_only=True)
class HostKey:
    """A public key of a host, and when it counts."""

    host: str
    key: str
    registered_at: AwareDatetime
    #: When the host registered another.
    replaced_at: AwareDatetime | None = None
    #: Receipts from then on are not to be believed.
    revoked_from: AwareDatetime | None = None
    revoked_reason: str | None = None


def text_of(statement: str, key: str, signature: str) -> str:
    """The receipt as people keep it."""
    return canonical({"statement": statement, "key": key, "signature": signature})


def read(text: str) -> Receipt:
    """The receipt that a text is; it may end with one line end.

    Raises:
        ReceiptError: it is none, or not in the one form.
    """
    line = text.removesuffix("\n").removesuffix("\r")
    fields = _parsed(line, "it")
    if fields.keys() != {"statement", "key", "signature"} or not all(isinstance(each, str) for each in fields.values()):
        raise ReceiptError("it is no receipt: expected the texts statement, key and signature, and nothing else")
    return Receipt(**fields)


def read_keys(text: bytes | str) -> Sequence[HostKey]:
    """The keys of hosts as a gateway or an export lists them, in JSON.

    Raises:
        DataError: it is another text.
    """
    try:
        return TypeAdapter(tuple[HostKey, ...]).validate_json(text)
    except ValidationError as error:
        raise DataError(f"this is no list of keys as a gateway's /keys has it: {error.errors()[0]['msg']}") from None


def listed(keys: Sequence[HostKey]) -> Sequence[Mapping[str, Any]]:
    """The keys as `read_keys` reads them."""
    return [
        {name: value.isoformat() if isinstance(value, datetime) else value for name, value in vars(key).items()}
        for key in keys
    ]


def keys_in(path: Path) -> Sequence[HostKey]:
    """The keys that a file lists.

    Raises:
        DataError: it cannot be read, or holds another text.
    """
    try:
        return read_keys(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def summary(statement: Mapping[str, Any]) -> str:
    """What a checked statement says, in a sentence."""
    what = f"{statement['score_s']} s, {statement['timing']}" if "score_s" in statement else "passed"
    return (
        f"host {statement['host']} signed: {statement['run']} run of submission {statement['submission_id']} by user "
        f"{statement['user_id']} to {statement['leaderboard']} on {statement['gpu_type']}, {what}, "
        f"{statement['evaluated_at']}"
    )


def check(receipt: Receipt, keys: Sequence[HostKey]) -> Mapping[str, Any]:
    """The statement of a receipt that a host signed with a key of its own.

    Raises:
        ReceiptError: it is not to be believed; says why.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = _bytes(receipt.key, "key", _KEY_DIGITS)
    signature = _bytes(receipt.signature, "signature", _SIGNATURE_DIGITS)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, receipt.statement.encode())
    except (InvalidSignature, ValueError):
        raise ReceiptError(
            f"the signature is not that of key {receipt.key} for this statement: one of the three was changed"
        ) from None
    statement = _parsed(receipt.statement, "its statement")
    _require_fields(statement)
    _require_key(statement, receipt.key, keys)
    return statement


def differences(statement: Mapping[str, Any], row: Mapping[str, Any], *, where: str = "the database") -> list[str]:
    """The fields of which a row says something else than a statement; those that it lacks are left out."""
    return [
        f"{name}: the receipt says {statement[name]!r}, {where} {row[name]!r}"
        for name in _COMPARED
        if name in statement and name in row and statement[name] != row[name]
    ]


def standing(receipt: Receipt, statement: Mapping[str, Any], row: Mapping[str, Any] | None) -> tuple[list[str], str]:
    """What is wrong with a database that should have a receipt's result, and how that stands there.

    `row`: of runner.signed_result, for the statement's job; None: there is none.
    """
    if row is None:
        return [], "this database has no such result: it was deleted, or is another site's"
    wrong = [] if row["statement"] == receipt.statement else ["the database has another receipt of this job"]
    if row["retired_as"] is not None:
        # Its row of results has moved away.
        still = {name: value for name, value in row.items() if name not in _PUBLIC_FIELDS}
        return wrong + differences(statement, still), f"counts no more ({row['retired_as']}): {row['retired_reason']}"
    return wrong + differences(statement, row), "does not rank: its user is banned" if row["user_banned"] else "stands"


def _parsed(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        if isinstance(value, dict) and canonical(value) == text:
            return value
    except (ValueError, RecursionError):
        pass
    raise ReceiptError(f"{what} is not in the form of a receipt: JSON with its keys in order, no space, in ASCII")


def _bytes(text: str, what: str, digits: int) -> bytes:
    if len(text) == digits and text.isascii() and all(digit in "0123456789abcdef" for digit in text):
        return bytes.fromhex(text)
    raise ReceiptError(f"its {what} is not {digits} digits of lower-case hexadecimal")


def _require_fields(statement: Mapping[str, Any]) -> None:
    expected = {**_FIELDS, **(_PUBLIC_FIELDS if statement.get("run") == "public" else {})}
    if (
        statement.keys() != expected.keys()
        or statement["format"] != FORMAT
        or statement["run"] not in ("public", "secret")
        or not all(type(statement[name]) is kind for name, kind in expected.items())
    ):
        raise ReceiptError(f"its statement is none of format {FORMAT!r}; check it with the release that made it")


def _require_key(statement: Mapping[str, Any], key: str, keys: Sequence[HostKey]) -> None:
    host = statement["host"]
    listed = next((each for each in keys if each.host == host and each.key == key), None)
    if listed is None:
        others = sorted({each.host for each in keys if each.key == key})
        owner = f"which is a key of host {', '.join(others)}" if others else "which is no host's"
        raise ReceiptError(f"it is signed with key {key}, {owner}; expected a key of host {host!r}, which it names")
    try:
        at = read_date(statement["evaluated_at"])
    except DateError:
        raise ReceiptError("its statement has no time of day with a time zone in evaluated_at") from None
    # The time of a secret run is rounded up to a second.
    rounded = timedelta(seconds=1 if statement["run"] == "secret" else 0)
    if at < listed.registered_at or (listed.replaced_at is not None and at - listed.replaced_at > rounded):
        raise ReceiptError(
            f"host {host!r} used the key from {listed.registered_at} to {listed.replaced_at or 'now'}, and the receipt "
            f"is of {at}"
        )
    if listed.revoked_from is not None and at >= listed.revoked_from:
        raise ReceiptError(
            f"an operator revoked the key for receipts from {listed.revoked_from} on, and this one is of {at}: "
            f"{listed.revoked_reason}"
        )
