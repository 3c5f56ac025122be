"""Fail-over to a standby, and restore from a dump, in the middle of runs; the books say what was lost."""

from __future__ import annotations

import pytest

from tests.chaos.faults import Kind
from tests.chaos.loss import How, Loss
from tests.chaos.storm import Report, Settings, Storm

SETTINGS = Settings(
    hosts=3,
    submissions=60,
    storm_s=12.0,
    gap_s=5.0,
    lease_s=2.0,
    work_s=0.5,
    settle_s=120.0,
    kinds=(Kind.FAILOVER,),
)


def check(report: Report) -> None:
    """No violation."""
    print(report.table())  # noqa: T201 - the figures of docs/measurements.md#chaos
    assert not report.violations, f"KERNEL_RUNNER_TEST_SEED={report.seed} draws this storm again\n{report.table()}"


def test_a_synchronous_standby_loses_nothing() -> None:
    """Twice in the middle of runs."""
    check(Storm(SETTINGS).run())


@pytest.mark.parametrize("how", How)
def test_what_is_lost_is_known_and_done_again(how: How) -> None:
    """Submissions that were answered come back with their keys, what ran is finished or runs again, once."""
    report = Loss(SETTINGS, how).run()
    check(report)
    assert report.counts["submissions lost and placed again"] > 0
