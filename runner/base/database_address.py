"""Addresses of databases in what people read: no message, log or page holds a part of a password.

An address whose password libpq would take for a host, a port or a database is refused before libpq sees it, since
libpq's messages name hosts, ports and databases.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_PORT: Final = r"(?:6553[0-5]|655[0-2]\d|65[0-4]\d{2}|6[0-4]\d{3}|[1-5]?\d{1,4})"
_HOST: Final = rf"(?:\[[^\]\s@]*\]|[^\s@:/?,\[]*)(?::{_PORT})?"
_URL: Final = re.compile(
    rf"postgres(?:ql)?://(?:[^\s@:/?]*(?::[^\s@/?]*)?@)?{_HOST}(?:,{_HOST})*(?:/[^\s@?]*)?(?:\?[^\s@]*)?"
)
_WORD: Final = r"([a-z_]+)\s*=\s*(?:'(?:\\.|[^'\\])*'|(?:\\.|[^\s'\\])(?:\\.|[^\s\\])*|)(?:\s+|$)"
_WORDS: Final = re.compile(rf"\s*(?:{_WORD})*")


def is_clear(address: str) -> bool:
    """Whether a connection string says in one way alone where its password begins and ends."""
    return (_URL if "://" in address else _WORDS).fullmatch(address) is not None


def fault(address: str, options: Collection[str]) -> str | None:
    """What people get wrong in an address, or None; it repeats nothing. `options`: the words that libpq knows."""
    if address[:1] in ("'", '"'):
        return "it stands in quotation marks, which files of variables keep"
    if re.match(r"(export\s+)?[A-Z_]+=", address):
        return "the variable's name stands before it"
    if re.match(r"[^\s/?@=]*://", address) and not address.startswith(("postgresql://", "postgres://")):
        return "it does not begin with postgresql://, but as addresses of other programs and drivers do"
    if is_clear(address):
        words = re.findall(r"[?&]([^=&]*)=", address) if "://" in address else re.findall(_WORD, address)
        if not set(words) <= set(options):
            return "it has parameters that libpq does not know; those of other programs, such as pgbouncer, must go"
    return None


def shown(address: str) -> str:
    """A connection string without its password; asterisks alone where that is not clear."""
    return mask_password(address) if is_clear(address) else "***"


def mask_password(text: str) -> str:
    """The text with passwords in URLs and in `password=` parameters replaced by asterisks."""
    text = re.sub(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*):\S*@", r"\1:***@", text, flags=re.IGNORECASE)
    text = re.sub(r"([?&]password=)[^\s&]+", r"\1***", text, flags=re.IGNORECASE)
    words = r"((?<![?&])\bpassword\s*=\s*)('(?:\\.|[^'\\])*'|(?:\\.|[^\s\\])+)"
    return re.sub(words, r"\1***", text, flags=re.IGNORECASE)
