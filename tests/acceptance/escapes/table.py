"""The attempts as a table for people: the verdict, that without the defence, that under gVisor where it differs. Pure.

What stands in it is what the cases say; that it is true is what playing them shows. Why is in each case's file.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.acceptance.escapes.case import Case

_HEAD = """\
| attempts | verdict | without this defence | under gVisor |
|---|---|---|---|
"""


def table(cases: Iterable[Case]) -> str:
    """A row for all cases that end alike."""
    rows: dict[str, list[str]] = {}
    for case in cases:
        rows.setdefault(_ends(case), []).append(f"`{case.name}`")
    return _HEAD + "".join(f"| {', '.join(names)} | {ends} |\n" for ends, names in sorted(rows.items()))


def _ends(case: Case) -> str:
    relaxed = "" if case.relax is None else f"`{case.relax}`: {case.relaxed}"
    return f"{case.verdicts[case.board]} | {relaxed} | {' or '.join(case.gvisor or ())}"
