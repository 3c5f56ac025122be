"""Files with a byte order mark or a line that names an encoding."""

from __future__ import annotations

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, pair

_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"


@pytest.mark.parametrize("marked", ["reference", "candidate", "both"])
def test_a_byte_order_mark_is_no_part_of_the_text(processes: ForkedJudges, marked: str) -> None:
    """Of a reference, of a candidate."""
    reference, copy = pair("return x + 1")
    reference = reference if marked == "candidate" else _MARK + reference
    (row,) = judged(processes, reference, copy if marked == "reference" else _MARK + copy, timed_calls=0)
    assert row["verdict"] == "accepted", row


def test_a_line_that_names_an_encoding_counts(processes: ForkedJudges) -> None:
    """As in a file that Python reads: its source is found by those who look for it; an unknown name is an error."""
    reference, copy = pair(
        "assert inspect.getsource(type(self))\nreturn x + len('\N{GREEK SMALL LETTER SIGMA}')", pre="import inspect\n"
    )
    latin, unknown = (f"# -*- coding: {name} -*-\n{copy}" for name in ("latin-1", "no-such-encoding"))
    rows = judged(processes, reference, copy, latin, unknown, timed_calls=0)
    # Two letters in the second.
    assert [row["verdict"] for row in rows] == ["accepted", "wrong_answer", "compile_error"], rows
    (row,) = judged(processes, f"# coding: no-such-encoding\n{reference}", copy)
    assert row["verdict"] == "invalid", row


@pytest.mark.parametrize("text", ["\ud800", "x = '\ud800'", "\0", "x = 1\0", "\N{ZERO WIDTH NO-BREAK SPACE}" * 2])
def test_texts_that_are_no_python_are_refused(processes: ForkedJudges, text: str) -> None:
    """Half characters and zeros: the reference is invalid, a candidate does not compile, and neighbours are judged."""
    reference, copy = pair("return x + 1")
    bad, good = judged(processes, reference, text + copy, copy, timed_calls=0)
    assert (bad["verdict"], good["verdict"]) == ("compile_error", "accepted"), bad
    (row,) = judged(processes, text + reference, copy)
    assert row["verdict"] == "invalid", row
