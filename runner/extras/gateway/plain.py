"""A page's record as JSON: what its template gets, without pictures and markup. Pure.

What is absent is null. Drawings are their words; sources are text.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from markupsafe import Markup

from runner.extras.gateway.charts import Drawing
from runner.extras.gateway.context import moment
from runner.extras.gateway.markup import Source

_COLOURS: Final = re.compile(r'</?i(?: class="\w")?>')


@functools.singledispatch
def plain(value: object) -> object:
    """A value in the types of JSON.

    Raises:
        TypeError: there is no rule for its type.
    """
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    raise TypeError(f"a page's record has a {type(value).__name__}, for which there is no rule")


@plain.register(int | float | None)
def _(value: float | None) -> object:
    return value


@plain.register
def _(value: str) -> object:
    return str(value)


@plain.register
def _(value: Markup) -> object:
    # A text that is escaped for a page, and cut.
    return html.unescape(str(value))


@plain.register
def _(value: datetime) -> object:
    return moment(value)


@plain.register
def _(value: timedelta) -> object:
    return value.total_seconds()


@plain.register
def _(value: Decimal) -> object:
    return float(value)


@plain.register
def _(value: Drawing) -> object:
    return value.words


@plain.register
def _(value: Source) -> object:
    text = html.unescape(_COLOURS.sub("", value.shown))
    return {"text": text, "lines": value.lines, "whole": value.whole}


@plain.register
def _(value: Mapping) -> object:  # type: ignore[type-arg]  # singledispatch takes no generic
    return {str(key): plain(item) for key, item in value.items()}


@plain.register(list | tuple)
def _(value: Sequence[object]) -> object:
    return [plain(item) for item in value]


@plain.register(set | frozenset)
def _(value: Iterable[object]) -> object:
    return sorted(str(item) for item in value)
