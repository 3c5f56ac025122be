"""Verdicts in words, and what a message says of wrong elements."""

from __future__ import annotations

import pytest

from runner.base.model import TimingAssurance, Verdict
from runner.extras.shown import words


def test_all_that_the_database_may_say_has_words() -> None:
    """Each verdict, and each worth of a time; what is neither stays."""
    assert all(words.verdict(each.value) != each.value for each in Verdict)
    assert set(words.TIMINGS) == set(TimingAssurance)
    assert (words.verdict("new"), words.verdict(None)) == ("new", "")


_ELEMENT = "at ({}, 0): found 1.5, expected -2"


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("count", [1, 5, 6])
def test_a_message_beside_the_table_of_its_elements_does_not_repeat_them(outputs: int, count: int) -> None:
    """All else stays, and the whole message where the table has not all of them."""
    elements = "; ".join(_ELEMENT.format(index) for index in range(count))
    parts = [f"output {index}: {count} of 9 elements differ; {elements}; tolerance: 1e-05" for index in range(outputs)]
    message, rest = "\n".join(parts), words.without_differences("\n".join(parts))
    assert "elements differ; tolerance: 1e-05" in (rest if count * outputs <= 10 else rest.replace(f"{elements}; ", ""))
    assert (rest == message) == (count * outputs > len(words.differences(message)))
    assert words.without_differences("no element") == "no element"
