"""What pages say of a submission's end: its verdict in words, what to try next, and where an output differs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runner.base import units
from runner.base.model import Verdict
from runner.base.results import Case, number

_VERDICTS: Final = {
    Verdict.ACCEPTED: "Accepted",
    Verdict.WRONG_ANSWER: "Wrong answer",
    Verdict.COMPILE_ERROR: "Compile error",
    Verdict.RUNTIME_ERROR: "Runtime error",
    Verdict.TIME_LIMIT: "Time limit exceeded",
    Verdict.MEMORY_LIMIT: "Memory limit exceeded",
    Verdict.OUTPUT_LIMIT: "Too much output",
    Verdict.REJECTED: "Rejected for cheating",
    Verdict.INVALID: "Invalid submission",
    Verdict.INTERNAL_ERROR: "Internal error",
}
_NEXT: Final = {
    Verdict.ACCEPTED: "Submit it in mode leaderboard to be ranked.",
    Verdict.WRONG_ANSWER: "Run this case against the reference on your machine, and look at sizes that your blocks do "
    "not divide.",
    Verdict.COMPILE_ERROR: "Mend the compiler's first error below; the later ones often follow from it.",
    Verdict.RUNTIME_ERROR: "The end of stderr below says where it stopped.",
    Verdict.TIME_LIMIT: "Compile and tune once, not in each call, and make the largest case faster.",
    Verdict.MEMORY_LIMIT: "Allocate less, and keep nothing from one call to the next.",
    Verdict.OUTPUT_LIMIT: "Remove what prints in each call.",
    Verdict.REJECTED: "Return an output that is computed in each call from its input; if the message is wrong, tell an "
    "operator the number of this submission.",
    Verdict.INVALID: "Nothing ran: mend what the message says, and submit again.",
    Verdict.INTERNAL_ERROR: "This is no fault of yours: submit again later, or tell an operator the number of this "
    "submission.",
}
_NEXT_SECRET: Final = (
    "The public cases are right and the secret ones are not: look for what depends on the values of the input."  # noqa: S105 - a sentence
)
_NEXT_RANKED: Final = "To be faster, begin with the case that is furthest from the speed of light or takes longest."
#: How a time was measured, by `TimingAssurance`: in a table, and as a sentence.
TIMINGS: Final = {
    "claimed": ("own clock, unchecked", "The submission's own process measured it, and nothing bounds that."),
    "audited_host": (
        "own clock, checked with host work",
        "The submission's device clock measured it; the judge's clock bounds it together with the host's work.",
    ),
    "measured": ("judge's clock", "The judge measured it with its own clock, outside the submission's process."),
    "audited": (
        "own clock, audited",
        "The submission's device clock measured it, and the judge's clock bounds it closely.",
    ),
}
#: Where an element differs, as the tasks' own check writes it.
_ELEMENT: Final = r"at (?P<index>\([\d, ]{0,80}\)): found (?P<got>[^,;\n]{1,60}), expected (?P<expected>[^,;\n]{1,60})"
_DIFFERENCE: Final = re.compile(rf"output (?P<output>\d{{1,6}}): |{_ELEMENT}")
_LISTED: Final = re.compile(rf"(?:; )?{_ELEMENT}")
_TOLERANCE: Final = re.compile(r"tolerance: ([^;]{1,80})")
_MOST_DIFFERENCES: Final = 10
#: Of a message, as far as it is read.
_MOST_CHARACTERS: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class Headline:
    """What a submission came to, in a few words, and what to try next."""

    text: str
    advice: str
    #: None: it is not over.
    good: bool | None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An element that is wrong."""

    output: str | None
    index: str
    got: str
    expected: str
    off_by: str


def verdict(value: str | None) -> str:
    """A verdict in words; what is none stays."""
    return _VERDICTS[Verdict(value)] if value in tuple(Verdict) else value or ""


def headline(
    value: str | None,
    *,
    cases: Sequence[Case],
    announced: int,
    secret_failed: bool,
    score_s: float | None,
    interval: float | None,
) -> Headline:
    """The end of a submission. `cases`: of the run that failed; `announced`: how many it has."""
    text, advice = verdict(value), _NEXT[Verdict(value)] if value in tuple(Verdict) else ""
    if value == Verdict.ACCEPTED:
        if score_s is not None:
            text += f": {units.score(score_s)}"
            text += "" if interval is None else f" ± {units.percent(interval)}"
            advice = _NEXT_RANKED
        return Headline(text=text, advice=advice, good=True)
    failed = next((case for case in cases if case.passed is False), None)
    if failed is not None:
        text += f" in {failed.kind} {failed.index + 1} of {max(announced, failed.index + 1)}"
    elif secret_failed:
        text += " in the secret run"
        advice = _NEXT_SECRET if value == Verdict.WRONG_ANSWER else advice
    return Headline(text=text, advice=advice, good=False)


def differences(message: str) -> Sequence[Difference]:
    """The elements that a message lists."""
    listed: list[Difference] = []
    output = None
    for match in _DIFFERENCE.finditer(message[:_MOST_CHARACTERS]):
        if match["output"] is not None:
            output = match["output"]
        elif len(listed) < _MOST_DIFFERENCES:
            listed.append(
                Difference(
                    output=output,
                    index=match["index"],
                    got=match["got"],
                    expected=match["expected"],
                    off_by=_off_by(match["got"], match["expected"]),
                )
            )
    return listed


def without_differences(message: str) -> str:
    """A message beside a table of the elements that it lists; the whole message where the table lacks some."""
    if len(message) > _MOST_CHARACTERS:
        return message
    rest, count = _LISTED.subn("", message)
    return rest if count <= _MOST_DIFFERENCES else message


def tolerance(message: str) -> str:
    """By how much an element may differ, as a message states it; empty where it does not."""
    match = _TOLERANCE.search(message[:_MOST_CHARACTERS])
    return "" if match is None else match[1]


def _off_by(got: str, expected: str) -> str:
    """How far a number is from another; empty where one is none."""
    left, right = number(got), number(expected)
    if left is None or right is None:
        return ""
    off = abs(left - right)
    return f"{off:.3g}" if not right else f"{off:.3g} ({units.percent(off / abs(right))})"
