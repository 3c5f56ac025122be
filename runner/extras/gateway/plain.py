"""A page's record as JSON: what its template gets, without pictures and markup. Pure.

What is absent is null. Drawings are their words; sources are text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from markupsafe import Markup

from runner.extras.gateway.charts import Drawing
from runner.extras.gateway.context import moment
from runner.extras.gateway.markup import Source

_COLOURS: Final = re.compile(r'</?i(?: class="\w")?>')


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """A value in the types of JSON.

    Raises:
        TypeError: there is no rule for its type.
    """
    for kind, rule in _RULES:
        if isinstance(value, kind):
            return rule(value)
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    raise TypeError(f"a page's record has a {type(value).__name__}, for which there is no rule")


def _source(value: Source) -> object:
    text = html.unescape(_COLOURS.sub("", value.shown))
    return {"text": text, "lines": value.lines, "whole": value.whole}


#: The first type that fits counts.
_RULES: Final[Sequence[tuple[Any, Callable[[Any], object]]]] = (
    (int | float | None, lambda value: value),
    # A text that is escaped for a page, and cut.
    (Markup, lambda value: html.unescape(str(value))),
    (str, str),
    (datetime, moment),
    (timedelta, timedelta.total_seconds),
    (Decimal, float),
    (Drawing, lambda value: value.words),
    (Source, _source),
    (Mapping, lambda value: {str(key): plain(item) for key, item in value.items()}),
    (list | tuple, lambda value: [plain(item) for item in value]),
    (set | frozenset, lambda value: sorted(map(str, value))),
)
