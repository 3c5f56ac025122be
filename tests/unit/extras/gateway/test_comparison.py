"""Differences between sources."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.extras.gateway import comparison

#: Few different lines, so that many match; what else ends a line, and what only Python's `splitlines` thinks so of.
LINES = ["", "a", "b", "    return x", "}", "\r", "# \f\v\x1c\x85\u2028 c"]
TEXTS = st.lists(st.sampled_from(LINES), max_size=60).map("\n".join)


@pytest.mark.parametrize("work", [0, 40, 1_000_000])
def test_what_is_neither_added_nor_removed_is_the_same(work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With work to spare, too little, and none; every line stands where it says, and comes once."""
    monkeypatch.setattr(comparison._Matcher, "left", work)

    @given(old=TEXTS, new=TEXTS)
    def holds(old: str, new: str) -> None:
        found = comparison.compare(old, new)
        assert found is not None
        before, after = (dict(enumerate(re.split("\r\n?|\n", text), 1)) for text in (old, new))
        for lines in (before, after):
            if not lines[len(lines)]:
                del lines[len(lines)]
        for line in found.lines:
            if line.sign == " ":
                assert line.old is not None
                assert line.new is not None
                assert before[line.old] == after[line.new] == line.text
        removed = [line.old for line in found.lines if line.sign == "-" and before.pop(line.old or 0) == line.text]
        added = [line.new for line in found.lines if line.sign == "+" and after.pop(line.new or 0) == line.text]
        assert (len(removed), len(added)) == (found.removed, found.added)
        assert [*before.values()] == [*after.values()]

    holds()


def test_too_many_lines_are_not_compared() -> None:
    """And as many as that are."""
    most = "\n".join(map(str, range(comparison.MOST_LINES)))
    compared = comparison.compare(most, "")
    assert compared is not None
    assert compared.removed == comparison.MOST_LINES
    assert comparison.compare("", f"{most}\nmore") is None
