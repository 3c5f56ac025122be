"""Makes any text fit for PostgreSQL, at the one edge where results enter it. Pure; called by `runner.store.store`.

PostgreSQL's text has no NUL, its UTF-8 no lone surrogate, and JSON no NaN. A submission can print all three, and no
result may be lost to that.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime

from psycopg.types.json import Jsonb

_UNFIT = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def clean_text(text: str) -> str:
    """The text with every NUL and lone surrogate replaced by U+FFFD."""
    return _UNFIT.sub(_REPLACEMENT, text)


def clean_json(value: object) -> object:
    """The value as plain JSON types, its strings cleaned; a NaN or infinity becomes a string.

    Raises:
        TypeError: something that JSON has no word for.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} does not belong into a result; expected JSON types")


def to_jsonb(value: object) -> Jsonb | None:
    """A parameter for a jsonb column; None stays NULL."""
    return None if value is None else Jsonb(clean_json(value), dumps=_dumps)


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
