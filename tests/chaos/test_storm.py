"""A short storm: everything that can break breaks once, and the books are right."""

from __future__ import annotations

from tests.chaos import faults
from tests.chaos.faults import Kind
from tests.chaos.storm import HOSTS, Settings, Storm

SHORT = Settings(
    hosts=3,
    submissions=150,
    storm_s=30.0,
    gap_s=1.2,
    lease_s=2.0,
    work_s=0.3,
    # How long the hosts may take to recover; it ends as soon as they have, and a busy machine is slow.
    settle_s=120.0,
)


def test_the_short_storm_is_long_enough_for_everything() -> None:
    """Whatever the seed, its plan holds every kind of fault."""
    for seed in range(500):
        plan = faults.draw(
            seed=seed,
            hosts=tuple(HOSTS)[: SHORT.hosts],
            storm_s=SHORT.storm_s,
            gap_s=SHORT.gap_s,
            lease_s=SHORT.lease_s,
        )
        assert {fault.kind for fault in plan} == set(Kind), seed


def test_nothing_is_lost_doubled_or_let_in_late() -> None:
    """Daemons, PostgreSQL, PgBouncer and networks break beside migrations; then every job has ended, once."""
    report = Storm(SHORT).run()
    assert not report.violations, f"KERNEL_RUNNER_TEST_SEED={report.seed} draws this storm again\n{report.table()}"
