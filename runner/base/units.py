"""Numbers as people read them: durations, parts, sizes, ages, dates. Pure; called by the command line and the gateway.

Between processes times are integer nanoseconds and scores are seconds; they become text here, when they are shown.
"""

from __future__ import annotations

from datetime import UTC, datetime

from runner.base.model import NEVER

_UNITS: tuple[tuple[float, str], ...] = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_MINUTE_S = 60.0
_HOUR_S = 3600.0
_DAY_S = 86400.0


def duration(value_ns: float | None) -> str:
    """A duration with three significant digits in the unit that suits it, e.g. `12.3 µs`; a dash for None."""
    if value_ns is None:
        return "-"
    scale, unit = _unit_for(value_ns)
    return f"{_digits(value_ns / scale)} {unit}"


def spread(mean_ns: float | None, interval_ns: tuple[float, float] | None) -> str:
    """A mean with half its interval in the mean's unit, e.g. `12.3 ± 0.10 µs`; without it if that is None."""
    if mean_ns is None or interval_ns is None:
        return duration(mean_ns)
    scale, unit = _unit_for(mean_ns)
    low, high = interval_ns
    return f"{_digits(mean_ns / scale)} ± {_digits((high - low) / 2 / scale)} {unit}"


def between(interval_ns: tuple[float, float]) -> str:
    """An interval of durations, e.g. `11.2 µs to 12.9 µs`."""
    return " to ".join(map(duration, interval_ns))


def percent(part: float) -> str:
    """A part with two significant digits, e.g. `73 %`, `0.013 %`; whole numbers from 100 % on."""
    return f"{100 * part:.2g} %" if part < 0.995 else f"{100 * part:.0f} %"


def score(value_s: float | None) -> str:
    """A score in seconds, shown in the unit that suits it; a dash for None."""
    return duration(None if value_s is None else value_s * 1e9)


def shapes(status: str, passed: int, total: int, speedup: float | None) -> str:
    """What a validation said, e.g. `2 of 3 shapes, 1.50x`."""
    if status != "completed":
        return "failed"
    return f"{passed} of {total} shapes" + ("" if speedup is None else f", {speedup:.2f}x")


def size(value_bytes: float | None) -> str:
    """A size with three significant digits in binary units, e.g. `1.50 MiB`; a dash for None."""
    if value_bytes is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value_bytes < 999.5:
            return f"{value_bytes:.0f} B" if unit == "B" else f"{_digits(value_bytes)} {unit}"
        value_bytes /= 1024
    return f"{_digits(value_bytes)} TiB"


def age(seconds: float) -> str:
    """How long ago, to one unit: `7 s`, `3 min`, `5 h`, `12 d`. Negative ages (clocks differ) read `0 s`."""
    seconds = max(seconds, 0.0)
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    if seconds < _DAY_S:
        return f"{seconds / _HOUR_S:.0f} h"
    return f"{seconds / _DAY_S:.0f} d"


def moment(value: datetime | None) -> str:
    """A point in time in UTC, to the second; a dash for None."""
    if value is not None and value >= NEVER:
        return "never"
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _unit_for(value_ns: float) -> tuple[float, str]:
    # 999.6 would print as "1000 µs": the unit is chosen for the rounded number.
    magnitude = abs(value_ns) * 1.0005
    return next((unit for unit in _UNITS if magnitude >= unit[0]), _UNITS[-1])


def _digits(value: float) -> str:
    """Three significant digits without an exponent; whole numbers from 100 on."""
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"
