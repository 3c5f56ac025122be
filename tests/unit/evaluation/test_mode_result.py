"""Result lines as numbers; they may come from a program that writes anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.evaluation.mode_result import ModeResult
from runner.model import TimingAssurance
from sandbox.protocol import Judged
from tests.unit import samples

JUDGED = Judged(verdict="accepted", message=None, assurance={})


@pytest.mark.parametrize("text", ["", "fast", "nan", "inf", "-1", "0", "1e-4", "1_000ns"])
def test_a_mean_that_is_no_time_is_none(text: str) -> None:
    """What a program wrote is kept for the message."""
    step = samples.step("benchmark", {"benchmark-count": "1", "benchmark.0.mean": text})

    (timing,) = ModeResult.read(step, asked=1).timings

    assert (timing.mean_ns, timing.mean_text) == (None, text)


@pytest.mark.parametrize("text", ["", "-1", "two", "²", "1234567"])
def test_a_count_that_is_no_sane_number_is_none(text: str) -> None:
    """Digits, and at most six of them."""
    reported = ModeResult.read(samples.step("test", {"test-count": text, "benchmark-count": "2"}), asked=2)

    assert (reported.tests, reported.benchmarks) == (None, 2)


def test_no_more_timings_are_read_than_were_asked_for() -> None:
    """A program may announce a million cases; the announced number is kept for the verdict."""
    reported = ModeResult.read(samples.step("benchmark", {"benchmark-count": "999999"}), asked=2)

    assert (reported.benchmarks, len(reported.timings)) == (999_999, 2)


def test_only_the_judge_vouches_for_a_time() -> None:
    """The same lines of an eval program say nothing of what its times are worth."""
    lines = {
        "benchmark-count": "2",
        "benchmark.0.runner.timing": "audited",
        "benchmark.0.runner.interval": "[10, 12.5]",
        "benchmark.1.runner.timing": "flawless",
        "benchmark.1.runner.interval": "[12, 10]",
    }
    step = samples.step("benchmark", lines)

    known, unknown = ModeResult.read(replace(step, judged=JUDGED), asked=2).timings
    claims = ModeResult.read(step, asked=2).timings

    assert (known.timing, known.interval_ns) == (TimingAssurance.AUDITED, (10.0, 12.5))
    assert (unknown.timing, unknown.interval_ns) == (TimingAssurance.CLAIMED, None)
    assert [(each.timing, each.interval_ns) for each in claims] == [(None, None)] * 2


def test_the_first_failed_case_is_the_failure() -> None:
    """Tests come before benchmarks; what a program leaves out is said to be missing."""
    lines = {"test-count": "2", "test.1.status": "fail", "benchmark-count": "1", "benchmark.0.status": "fail"}

    assert ModeResult.read(samples.step("test", lines), asked=2).failure == "case 1 (?): no reason given"
    assert ModeResult.read(samples.step("test", {"test-count": "2"}), asked=2).failure is None
