"""Verdicts in words, and what a message says of wrong elements."""

from __future__ import annotations

import pytest

from runner.base.model import TimingAssurance, Verdict
from runner.base.results import cases
from runner.extras.gateway import words

RAN = {"test.0.spec": "n: 1", "test.0.status": "pass", "test.1.spec": "n: 2", "test.1.status": "fail"}


@pytest.mark.parametrize(
    ("verdict", "result", "score_s", "text", "advice"),
    [
        (Verdict.ACCEPTED, {}, 1.23e-5, "Accepted: 12.3 µs ± 0.4 %", "To be faster"),
        (Verdict.ACCEPTED, {}, None, "Accepted", "Submit it in mode leaderboard"),
        (Verdict.WRONG_ANSWER, RAN, None, "Wrong answer in test 2 of 5", "Run this case"),
        (Verdict.WRONG_ANSWER, {}, None, "Wrong answer in the secret run", "The public cases are right"),
        (Verdict.TIME_LIMIT, {}, None, "Time limit exceeded", "Compile and tune once"),
        (Verdict.COMPILE_ERROR, {}, None, "Compile error", "Mend the compiler's first error"),
    ],
)
def test_a_headline(verdict: Verdict, result: dict[str, str], score_s: float | None, text: str, advice: str) -> None:
    """What happened, where, and what to try next."""
    made = words.headline(
        verdict.value,
        cases=cases(result),
        announced=5,
        secret_failed=verdict is Verdict.WRONG_ANSWER,
        score_s=score_s,
        interval=0.004,
    )
    assert (made.text, made.good) == (text, verdict is Verdict.ACCEPTED)
    assert made.advice.startswith(advice)


def test_all_that_the_database_may_say_has_words() -> None:
    """Each verdict, and each worth of a time; what is neither stays."""
    assert all(words.verdict(each.value) != each.value for each in Verdict)
    assert set(words.TIMINGS) == set(TimingAssurance)
    assert (words.verdict("new"), words.verdict(None)) == ("new", "")


def test_wrong_elements_are_read_from_the_message() -> None:
    """Of several outputs; what is no number is off by nothing."""
    message = (
        "output 0: 1 of 6 elements differ; at (0, 1): found 5.0, expected 4.0; tolerance: 0.01 + 0.1 * |expected|; "
        "output 2: 2 of 6 elements differ; at (): found nan, expected 0.0; at (7): found -1, expected 0"
    )
    made = [(each.output, each.index, each.got, each.expected, each.off_by) for each in words.differences(message)]
    assert made == [
        ("0", "(0, 1)", "5.0", "4.0", "1 (25 %)"),
        ("2", "()", "nan", "0.0", ""),
        ("2", "(7)", "-1", "0", "1"),
    ]
    assert words.tolerance(message) == "0.01 + 0.1 * |expected|"
    assert words.differences("at (0, 1: found") == []
    assert words.tolerance("") == ""
