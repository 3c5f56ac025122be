"""The difference between two sources, by line. Pure; the work has a bound, whatever the sources are.

Users choose both texts, and a longest match can take quadratic time: once the bound is spent, what is left counts as
replaced, which is still a right difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from typing import Final

from runner.extras.gateway.sizes import source_lines

#: Bytes and lines of a source that is compared.
MOST_BYTES: Final = 200_000
MOST_LINES: Final = 5000
#: Pairs of equal lines that are looked at: a quarter of a second.
_WORK: Final = 1_000_000
#: Equal lines around a change.
_CONTEXT: Final = 3


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a difference with its numbers in both sources; None: it is not in that one."""

    #: `+`, `-`, a space, or `@` before a part.
    sign: str
    old: int | None
    new: int | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference between two sources."""

    lines: Sequence[Line]
    added: int
    removed: int


class _Matcher(SequenceMatcher[str]):
    """A matcher that stops looking once its work is done."""

    left = _WORK

    def __init__(self, before: Sequence[str], after: Sequence[str]) -> None:
        super().__init__(None, before, after)
        self._before = before
        # Of 200 lines and more difflib does not look at those that are more than one in a hundred.
        most = len(after) // 100 + 1 if len(after) >= 200 else len(after)
        self._equal = {line: count for line, count in Counter(after).items() if count <= most}

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """None once the bound is spent."""
        self.left -= sum(1 + self._equal.get(line, 0) for line in self._before[alo:ahi])
        return Match(alo, blo, 0) if self.left < 0 else super().find_longest_match(alo, ahi, blo, bhi)


def compare(old: str, new: str) -> Comparison | None:
    """The difference; None where a source has more lines than are compared."""
    before, after = source_lines(old), source_lines(new)
    if max(len(before), len(after)) > MOST_LINES:
        return None
    lines: list[Line] = []
    for group in _Matcher(before, after).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        heading = f"-{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]}"
        lines.append(Line(sign="@", old=None, new=None, text=heading))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                pairs = zip(range(old_from, old_to), range(new_from, new_to), strict=True)
                lines += [Line(sign=" ", old=i + 1, new=j + 1, text=before[i]) for i, j in pairs]
                continue
            lines += [Line(sign="-", old=i + 1, new=None, text=before[i]) for i in range(old_from, old_to)]
            lines += [Line(sign="+", old=None, new=j + 1, text=after[j]) for j in range(new_from, new_to)]
    return Comparison(
        lines=lines,
        added=sum(line.sign == "+" for line in lines),
        removed=sum(line.sign == "-" for line in lines),
    )
