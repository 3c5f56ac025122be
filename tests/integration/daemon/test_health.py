"""What a daemon at work shows over HTTP: the counters follow the jobs, the states follow the daemon."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from runner.base.disk import disk_spaces
from runner.base.errors import EvaluationError
from runner.daemon.monitoring.health import DaemonView, HealthReport
from runner.daemon.monitoring.queue_depth import KEPT_S, QueueDepthCache
from runner.daemon.monitoring.watchdog import Watchdog
from tests.integration.daemon.rig import Rig, fails
from tests.plugins.scrape import samples


class Scrape:
    """One look, and how it differs from an earlier one: the counters belong to the process, not to the daemon."""

    def __init__(self, health_report: HealthReport) -> None:
        self._found = samples(health_report.metrics().decode())

    def __call__(self, name: str, **labels: str) -> float | None:
        """A sample's value; None: there is none."""
        return self._found.get((name, frozenset(labels.items())))

    def more(self, earlier: Scrape, name: str, **labels: str) -> float:
        """By how much a counter has grown."""
        return (self(name, **labels) or 0.0) - (earlier(name, **labels) or 0.0)


@pytest.fixture
def health_report(rig: Rig) -> HealthReport:
    """What the rig's daemon shows, once it is started."""
    rig.start()
    assert rig.daemon is not None
    made = HealthReport(rig.daemon.readiness, Watchdog())
    made.parts = DaemonView(
        host="test-host",
        snapshot=rig.daemon.snapshot,
        spool=rig.spool,
        disk_spaces=lambda: disk_spaces(rig.config.state_dir, [Path("/proc/nowhere")], floor_gib=1.0),
        warm=lambda: {"cpu0": 2},
        build_workers=lambda: (2, 1),
        queue_depths=QueueDepthCache(rig.store_factory),
    )
    return made


def test_a_result_is_counted_where_it_belongs(rig: Rig, health_report: HealthReport) -> None:
    """Claim, phases, verdict, turn-around; the slot is busy meanwhile, and its lease held."""
    before = Scrape(health_report)
    assert before("kernel_runner_slots", gpu_type="CPU", state="free") == 1
    gate, submission = rig.begin()
    during = Scrape(health_report)
    assert during("kernel_runner_slots", gpu_type="CPU", state="busy") == 1
    assert during("kernel_runner_leases_held") == 1
    gate.go.set()
    rig.wait_done(submission)
    rig.wait_for(lambda: Scrape(health_report)("kernel_runner_leases_held") == 0, "the result is settled")
    after = Scrape(health_report)
    for name, labels in (
        ("verdicts_total", {"mode": "test", "verdict": "accepted"}),
        ("pickup_seconds_count", {}),
        ("turnaround_seconds_count", {"mode": "test"}),
        ("attempts_total", {"outcome": "result"}),
        ("phase_seconds_count", {"phase": "test"}),
    ):
        assert after.more(before, f"kernel_runner_{name}", gpu_type="CPU", **labels) == 1, name
    assert after.more(before, "kernel_runner_turnaround_seconds_sum", gpu_type="CPU", mode="test") > 0


def test_a_fault_of_ours_is_counted_by_its_cause(rig: Rig, health_report: HealthReport) -> None:
    """And the attempt as failed; the second one brings the result, and is no second pick-up."""
    before = Scrape(health_report)
    rig.evaluator.script = fails(EvaluationError("the container broke"))
    rig.wait_through_retries(rig.submit())
    rig.wait_for(lambda: Scrape(health_report)("kernel_runner_leases_held") == 0, "the result is settled")
    after = Scrape(health_report)
    assert after.more(before, "kernel_runner_infrastructure_errors_total", cause="sandbox") == 1
    assert after.more(before, "kernel_runner_attempts_total", gpu_type="CPU", outcome="failed") == 1
    assert after.more(before, "kernel_runner_attempts_total", gpu_type="CPU", outcome="result") == 1
    assert after.more(before, "kernel_runner_pickup_seconds_count", gpu_type="CPU") == 1


def test_a_quarantined_slot_is_shown(rig: Rig, health_report: HealthReport) -> None:
    """It is neither free nor busy, and the only one: nothing would be claimed."""
    fit = threading.Event()
    rig.quarantine.quarantine_devices("cpu0", "fell off the bus", mended=fit.is_set)
    rig.wait_for(lambda: not health_report.ready()[0], "it is noticed")
    said = health_report.ready()[1]
    assert (said["reason"], said["details"]) == ("slots", "fell off the bus")
    scrape = Scrape(health_report)
    assert scrape("kernel_runner_slots", gpu_type="CPU", state="quarantined") == 1
    assert scrape("kernel_runner_slots", gpu_type="CPU", state="free") == 0
    assert scrape("kernel_runner_slot_condition", slot="cpu0", gpu_type="CPU", condition="quarantined") == 1
    fit.set()
    rig.wait_for(lambda: health_report.ready()[0], "it is back")


def test_the_queue_is_shown_by_gpu_type(rig: Rig, health_report: HealthReport) -> None:
    """With the age of the oldest job; the statement is sent once a minute at most."""
    rig.store.drain("test-host", reason="a test")
    rig.wait_for(lambda: rig.waiting_for == "draining: a test", "it drains")
    rig.submit()
    rig.submit()
    scrape = Scrape(health_report)
    assert scrape("kernel_runner_queue_known") == 1
    assert scrape("kernel_runner_queue_jobs", gpu_type="CPU") == 2
    assert (scrape("kernel_runner_queue_oldest_seconds", gpu_type="CPU") or 0) > 0
    rig.submit()
    assert Scrape(health_report)("kernel_runner_queue_jobs", gpu_type="CPU") == 2
    # 0.6 statements a second are an idle host's limit; the least pause between two of its looks is 3/4 of poll_s.
    looks_per_s = 1 / (2.0 * (0.75 + 0.97) / 2)
    assert looks_per_s + 1 / KEPT_S <= 0.6


def test_what_is_not_ready_says_why(rig: Rig, health_report: HealthReport) -> None:
    """In words for people, in one word for an alert."""
    assert health_report.ready() == (True, {"ready": True, "status": "serving 1 x CPU"})
    assert Scrape(health_report)("kernel_runner_ready") == 1
    rig.store.drain("test-host", reason="new fan")
    rig.wait_for(lambda: not health_report.ready()[0], "it drains")
    assert health_report.ready()[1] == {"ready": False, "reason": "draining", "waiting_for": "draining: new fan"}
    scrape = Scrape(health_report)
    assert scrape("kernel_runner_ready") == 0
    assert scrape("kernel_runner_not_ready", reason="draining") == 1
    assert scrape("kernel_runner_not_ready", reason="database") == 0


def test_a_main_thread_that_hangs_is_neither_alive_nor_ready(rig: Rig) -> None:
    """Whatever it said last."""
    rig.start()
    assert rig.daemon is not None
    now_s = 0.0
    health_report = HealthReport(rig.daemon.readiness, Watchdog(clock=lambda: now_s))
    assert health_report.health() == (True, {"alive": True})
    now_s = 1e6
    assert health_report.health() == (False, {"alive": False})
    assert health_report.ready()[1]["reason"] == "stuck"
