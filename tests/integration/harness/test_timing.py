"""Times of real judges and workers: what a submission does to its own clocks lowers none.

These tests run alone, and so they have a module of their own (tests/plugins/exclusive_tests.py).
"""

from __future__ import annotations

import pytest

from tasks.harness.local import lines_of
from tests.acceptance.judging.forked_judges import ForkedJudges

from .conftest import message_of, verdict_of
from .test_ranks import details_of, evaluate


@pytest.mark.alone
def test_the_slowest_rank_is_timed(processes: ForkedJudges) -> None:
    """A rank that is done early does not make the call short."""
    step = evaluate(processes, "ring_slow_on_rank_1", modes=("benchmark",), timeout_s=120.0).steps[0]

    assert verdict_of(step) == "accepted", message_of(step)
    first, second = details_of(step)["claimed_median_by_rank_ns"]
    assert first < second
    assert float(lines_of(step)["benchmark.0.best"]) >= 30_000_000


@pytest.mark.alone
def test_forged_clocks_of_all_ranks_are_seen(processes: ForkedJudges) -> None:
    """Ranks that agree to claim nothing are contradicted by the judge's clock."""
    step = evaluate(processes, "ring_forges_time", modes=("benchmark",), timeout_s=120.0).steps[0]

    assert verdict_of(step) == "rejected", message_of(step)
    assert "on the judge's clock" in message_of(step)
    assert "benchmark.0.mean" not in lines_of(step)
