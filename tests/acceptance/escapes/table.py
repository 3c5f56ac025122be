"""The attempts as a table for people: the verdict, that without the defence, that under gVisor where it differs. Pure.

What stands in it is what the cases say; that it is true is what playing them shows. Why is in each case's file.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.acceptance.escapes.case import Case

_HEAD = """\
| attempt | verdict | without its defence | gVisor |
|---|---|---|---|
"""


def table(cases: Iterable[Case]) -> str:
    """A row per case."""
    return _HEAD + "".join(_row(case) for case in cases)


def _row(case: Case) -> str:
    relaxed = "" if case.relax is None else f"`{case.relax}` off: {case.relaxed}"
    return f"| `{case.name}` | {case.verdicts[case.board]} | {relaxed} | {_gvisor(case)} |\n"


def _gvisor(case: Case) -> str:
    return "" if case.gvisor is None else f"{' or '.join(case.gvisor)}: {case.gvisor_why}"
