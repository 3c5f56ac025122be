"""Verdicts in words, and what a message says of wrong elements."""

from __future__ import annotations

from runner.base.model import TimingAssurance, Verdict
from runner.extras.shown import words


def test_all_that_the_database_may_say_has_words() -> None:
    """Each verdict, and each worth of a time; what is neither stays."""
    assert all(words.verdict(each.value) != each.value for each in Verdict)
    assert set(words.TIMINGS) == set(TimingAssurance)
    assert (words.verdict("new"), words.verdict(None)) == ("new", "")
