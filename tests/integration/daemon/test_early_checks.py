"""A daemon whose slots are busy ends waiting jobs that cannot be evaluated."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from runner.base.errors import DatabaseUnavailableError, EvaluationError
from runner.base.model import JobResult, JobState, Slot, SubmissionJob, Verdict
from runner.store import Store
from tests.integration.daemon.rig import Evaluator, Gate, Rig, Script, accepted, at_once

BAD = b"def custom_kernel(data:\n"


class Checker(Evaluator):
    """Refuses the bad file, and remembers what it was given."""

    def __init__(self, script: Script) -> None:
        super().__init__(script, can_refuse=True)
        self.fault: Exception | None = None
        #: Called in the middle of a check, before it is noted.
        self.meanwhile: Callable[[SubmissionJob], object] = lambda _job: None
        self.checked: list[int] = []

    def refuse(self, job: SubmissionJob, slot: Slot, *, cancel: threading.Event) -> JobResult | None:
        """Refuse, or not."""
        assert slot.gpu_type == "CPU"
        assert not cancel.is_set()
        self.meanwhile(job)
        self.checked.append(job.submission)
        if self.fault is not None:
            raise self.fault
        result = accepted()
        runs = (replace(result.runs[0], passed=False),)
        return replace(result, verdict=Verdict.COMPILE_ERROR, error="no", runs=runs) if job.code == BAD else None


@pytest.fixture
def busy(rig: Rig) -> Gate:
    """The only slot runs a job until the gate is opened; a checker is there."""
    rig.evaluator = Checker(at_once)
    gate, _ = rig.begin()
    return gate


def checker(rig: Rig) -> Checker:
    """The daemon's."""
    assert isinstance(rig.evaluator, Checker)
    return rig.evaluator


def test_a_job_is_refused_while_the_slot_is_busy(rig: Rig, busy: Gate) -> None:
    """It ends before the job ahead of it; a good one waits for the slot, and each is looked at once."""
    bad, good = rig.submit(code=BAD), rig.submit()
    with capture_logs() as logs:
        job = rig.done(bad)
        rig.wait_for(lambda: sorted(checker(rig).checked) == [bad, good], "both have been looked at")
    assert (job.verdict, job.attempt) == (Verdict.COMPILE_ERROR, 1)
    assert [run.passed for run in job.runs] == [False]
    assert rig.job(good).state is JobState.QUEUED
    assert [entry["verdict"] for entry in logs if entry["event"] == "job_refused_early"] == ["compile_error"]
    busy.go.set()
    rig.wait_done(good)
    assert sorted(checker(rig).checked) == [bad, good]
    assert job.id not in {job_id for job_id, _, _ in rig.evaluator.seen}


@pytest.mark.parametrize("trouble", ["fault", "claimed", "cancelled"])
def test_a_check_that_comes_to_nothing_changes_nothing(rig: Rig, busy: Gate, trouble: str) -> None:
    """Its job waits for the slot, or is what it has become meanwhile."""
    if trouble == "fault":
        checker(rig).fault = EvaluationError("the container broke")
    elif trouble == "claimed":

        def let_run(job: SubmissionJob) -> None:
            busy.go.set()
            # In another thread than the test's, so not with its store.
            state = "SELECT state FROM runner.job WHERE id = %(id)s"
            rig.wait_for(lambda: rig.sql(state, id=job.id) == [{"state": "done"}], "the slot has run it")

        checker(rig).meanwhile = let_run
    else:
        checker(rig).meanwhile = lambda job: rig.sql("SELECT runner.cancel(%(id)s)", id=job.submission)
    bad = rig.submit(code=BAD)
    rig.wait_for(lambda: checker(rig).checked == [bad], "it was looked at")
    busy.go.set()
    job = rig.done(bad)
    cancelled = (JobState.CANCELLED, None)
    assert (job.state, job.verdict) == (cancelled if trouble == "cancelled" else (JobState.DONE, Verdict.ACCEPTED))
    assert checker(rig).checked == [bad]


def test_without_a_core_for_it_nothing_is_checked(rig: Rig, busy: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check would disturb what the slot times; the job waits for the slot."""
    asked: list[Checker] = []

    def cannot(checker: Checker) -> bool:
        asked.append(checker)
        return False

    monkeypatch.setattr(Checker, "can_refuse", property(cannot))
    bad = rig.submit(code=BAD)
    rig.sql("UPDATE runner.job SET created_at = created_at - interval '1 minute'")
    before = len(asked)
    rig.wait_for(lambda: len(asked) > before + 1, "a look at the queue is over")
    assert checker(rig).checked == []
    busy.go.set()
    assert rig.done(bad).verdict is Verdict.ACCEPTED


def test_a_look_that_fails_leaves_the_daemon_as_it_is(rig: Rig, busy: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on claiming: whether the database is away, claims find out."""
    failed: list[Store] = []

    def fail(store: Store, **_: object) -> None:
        failed.append(store)
        raise DatabaseUnavailableError("canceling statement due to lock timeout")

    monkeypatch.setattr(Store, "take_check", fail)
    bad = rig.submit(code=BAD)
    rig.wait_for(lambda: len(failed) > 2, "three looks have failed")
    assert rig.waiting_for is None
    busy.go.set()
    assert rig.done(bad).verdict is Verdict.ACCEPTED
