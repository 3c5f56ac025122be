"""Dates as people and files write them: ISO 8601. The only module that reads them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo

#: What `read_date` takes, for messages.
EXPECTED = "a date like 2030-06-30, 2030-06-30T18:00Z or '2030-06-30 18:00:00+02:00'"

#: KernelBot's files also have hours of one digit.
_DATE = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<hour>[01]?\d|2[0-3]):(?P<minute>\d{2})"
    r"(?::(?P<second>\d{2}(?:\.\d{1,6})?))?(?P<offset>Z|[+-](?:0\d|1[0-5])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)


class DateError(ValueError):
    """A text that is no date; the message is `found …, expected …`."""


def read_date(text: str, *, zone: tzinfo | None = None) -> datetime:
    """The moment that a text names, in UTC; a day without a time means its first minute.

    Args:
        text: ISO 8601, with or without seconds, up to six digits of a fraction, and an offset.
        zone: of a text without an offset; None: it needs one.

    Raises:
        DateError: it is another text, or names no moment.
    """
    match = _DATE.fullmatch(text.strip())
    if match is None:
        raise DateError(f"found {text!r}, expected {EXPECTED}")
    day, hour, minute, second, offset = match.group("day", "hour", "minute", "second", "offset")
    whole, _, fraction = (second or "00").partition(".")
    try:
        moment = datetime.fromisoformat(f"{day}T{hour or 0:0>2}:{minute or '00'}:{whole}.{fraction:0<6}{offset or ''}")
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
        if zone is not None:
            return moment.replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise DateError(f"found {text!r} ({error}), expected {EXPECTED}") from error
    written = text.strip() if hour else f"{day}T00:00"
    raise DateError(f"found {text!r} without a time zone, expected one, as in {written}Z for UTC or {written}+02:00")
