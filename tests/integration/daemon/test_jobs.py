"""What becomes of jobs: done, retried, cancelled, lost; on a real database with a scripted evaluator."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from runner.base.errors import EvaluationError
from runner.base.model import Job, JobResult, JobState, Progress, Verdict
from runner.daemon import slot
from runner.daemon.leases import Lease
from runner.daemon.slot import SlotWorker
from runner.store import Stop, Store, Wakeup
from tests.integration.daemon.rig import Gate, MakeRig, Rig, accepted, at_once, cpu_slots, fails
from tests.support.jobs import of_submission
from tests.support.waiting import PATIENCE_S


def test_a_queued_job_is_claimed_evaluated_and_committed(rig: Rig) -> None:
    """One run from queued to done, and the host shows while it serves and no longer."""
    submission = rig.submit()
    rig.start()
    job = rig.done(submission)
    assert (job.state, job.verdict, job.attempt) == (JobState.DONE, Verdict.ACCEPTED, 1)
    assert [run.mode for run in job.runs] == ["test"]
    (host,) = rig.store.hosts()
    assert (host.name, [slot["gpu_type"] for slot in host.slots]) == ("test-host", ["CPU"])
    assert (rig.evaluator.prepared, rig.engine.reaped) == (1, 1)
    assert rig.stop() == 0
    assert [host.stopped_at is not None for host in rig.store.hosts()] == [True]


def test_jobs_are_found_by_polling_when_no_notification_arrives(rig: Rig) -> None:
    """`poll_s` is what remains when NOTIFY is lost."""

    class Deaf(Store):
        def listen(self, *, stop: Stop, timeout_s: float) -> Wakeup | None:
            stop.wait(timeout_s)
            return None

    rig.store_factory = lambda purpose: (Deaf if purpose == "listen" else Store)(rig.url, application_name=purpose)
    rig.start()
    rig.wait_done(rig.submit())


def test_between_claims_that_fill_the_host_it_looks_after_everything_else(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short the jobs are: disks, expired leases, its place in the list of hosts, the watchdog."""
    give = SlotWorker.give

    def give_and_stand_still(worker: SlotWorker, lease: Lease) -> None:
        give(worker, lease)
        rig.wait_for(lambda: not worker.busy, "the job is over before the loop goes on")

    monkeypatch.setattr(SlotWorker, "give", give_and_stand_still)
    looks: list[None] = []
    rig.check_disk = lambda: looks.append(None)
    submissions = [rig.submit() for _ in range(20)]
    rig.start()
    rig.wait_done(*submissions)
    assert len(looks) >= len(submissions)


def test_every_job_runs_exactly_once_over_two_slots(rig: Rig) -> None:
    """Twelve jobs, two slots, which are seen to work at the same time."""
    both = threading.Barrier(2)

    def meet(job: Job, _cancel: threading.Event, _progress: Callable[[Progress], None]) -> JobResult:
        both.wait(PATIENCE_S)
        return accepted(job=job.id)

    rig.evaluator.script = meet
    rig.slots = cpu_slots(2)
    submissions = [rig.submit() for _ in range(12)]
    rig.start()
    views = rig.wait_done(*submissions)
    assert {(view.jobs[0].verdict, view.jobs[0].attempt) for view in views} == {(Verdict.ACCEPTED, 1)}
    assert sorted(job_id for job_id, _, _ in rig.evaluator.seen) == sorted(view.jobs[0].id for view in views)
    assert {slot for _, _, slot in rig.evaluator.seen} == {"cpu0", "cpu1"}
    assert all(len(view.jobs[0].runs) == 1 for view in views)


def test_a_claim_that_a_crash_took_back_is_made_again_under_another_number(make_rig: MakeRig) -> None:
    """Its first run still goes on, in the same daemon: that one is stopped, and what it finds is stale."""
    rig = make_rig(heartbeat_s=10.0)
    rig.slots = cpu_slots(2)
    gate = Gate(heeds_cancel=False)

    def first_waits(job: Job, cancel: threading.Event, on_progress: Callable[[Progress], None]) -> JobResult:
        return (at_once if gate.begun.is_set() else gate)(job, cancel, on_progress)

    rig.evaluator.script = first_waits
    rig.start()
    submission = rig.submit()
    assert gate.begun.wait(PATIENCE_S)
    rig.sql(
        "UPDATE runner.job SET state = 'queued', attempt = 0, lease_owner = NULL, lease_expires_at = NULL, host = NULL,"
        " started_at = NULL"
    )
    job = rig.done(submission)
    assert (job.verdict, job.attempt, job.failures, len(job.runs)) == (Verdict.ACCEPTED, 2, 0, 1)
    assert gate.cancelled.wait(PATIENCE_S)
    gate.go.set()
    rig.wait_for(lambda: rig.sql("SELECT FROM runner.stale_result"), "the first run's result is kept as evidence")
    assert rig.job(submission) == job
    assert [(number, attempt) for number, attempt, _ in rig.evaluator.seen] == [(job.id, 1), (job.id, 2)]


def test_an_infrastructure_error_is_retried_and_ends_as_internal_error_with_its_cause(rig: Rig) -> None:
    """The submission pays nothing; the operator finds out why."""
    rig.evaluator.script = fails(EvaluationError("the harness said nothing; password=hunter2"), attempts=9)
    submission = rig.submit()
    rig.start()
    rig.wait_through_retries(submission)
    job = rig.job(submission)
    assert (job.verdict, job.failures, job.runs) == (Verdict.INTERNAL_ERROR, 3, ())
    # After each, before the slot's next job.
    rig.wait_for(lambda: len(rig.evaluator.tried_out) == 3, "the slot is tried out")
    assert [attempt for _, attempt, _ in rig.evaluator.seen] == [1, 2, 3]
    assert "the harness said nothing" in str(job.error)
    assert "hunter2" not in str(job.error)


@pytest.mark.usefixtures("long_pauses")
@pytest.mark.parametrize("step", ["evaluation", "receipt"])
def test_an_unexpected_exception_costs_the_job_an_attempt_and_the_daemon_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A bug in the evaluation of one job, or beside its result, is its cause, and the next job runs."""
    wrong = rig.submit(code=b"wrong")

    def break_at(here: str, job: Job) -> None:
        if here == step and of_submission(job).code == b"wrong":
            raise ZeroDivisionError("a bug")

    def script(job: Job, cancel: threading.Event, progress: Callable[[Progress], None]) -> JobResult:
        break_at("evaluation", job)
        return at_once(job, cancel, progress)

    def with_receipt(job: Job, result: JobResult, **_: object) -> JobResult:
        break_at("receipt", job)
        return result

    monkeypatch.setattr(slot, "with_receipt", with_receipt)
    rig.evaluator.script = script
    with capture_logs() as logs:
        rig.start()
        rig.wait_done(rig.submit())
    job = rig.job(wrong)
    error = "unexpected ZeroDivisionError: a bug"
    assert (job.state, job.failures, job.error) == (JobState.QUEUED, 1, error)
    assert [line["event"] for line in logs].count("evaluation_crashed") == 1


@pytest.mark.usefixtures("long_pauses")
def test_a_result_that_cannot_be_written_costs_an_attempt_and_not_the_job(rig: Rig) -> None:
    """What the database does not take becomes the cause of a failure."""

    def script(job: Job, _cancel: threading.Event, _progress: Callable[[Progress], None]) -> JobResult:
        return accepted(**({"value": object()} if job.attempt == 1 else {}))

    rig.evaluator.script = script
    submission = rig.submit()
    rig.start()
    rig.wait_for(lambda: rig.job(submission).failures == 1, "the attempt failed")
    assert "unexpected TypeError" in str(rig.job(submission).error)
    rig.sql("UPDATE runner.job SET not_before = NULL")
    assert rig.done(submission).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("heeds_cancel", [True, False])
def test_a_job_that_was_taken_over_is_dropped_and_its_late_result_kept_as_evidence(
    rig: Rig, *, heeds_cancel: bool
) -> None:
    """The other host's attempt is not touched, whether the run hears of it in time or not."""
    gate, submission = rig.begin(heeds_cancel=heeds_cancel)
    rig.sql("UPDATE runner.job SET attempt = 2, lease_owner = 'other', lease_expires_at = now() + interval '1 hour'")
    assert gate.cancelled.wait(PATIENCE_S)
    gate.go.set()
    gate = rig.evaluator.script = Gate()
    gate.go.set()
    rig.wait_done(rig.submit())
    job = rig.job(submission)
    assert (job.state, job.attempt, job.failures, job.runs) == (JobState.RUNNING, 2, 0, ())
    evidence = rig.sql("SELECT attempt, verdict FROM runner.stale_result")
    assert evidence == ([] if heeds_cancel else [{"attempt": 1, "verdict": "accepted"}])
