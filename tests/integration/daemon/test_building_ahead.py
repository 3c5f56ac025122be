"""A slot's next job is taken, to be built, while another one runs there; and given back where that is of no use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from runner.errors import CancelledByRequest
from runner.model import Job, JobResult, JobState, Progress, Verdict
from tests.integration.daemon.rig import JOBS, Rig, accepted
from tests.support.waiting import PATIENCE_S

COMPILES = b"compiles"


@dataclass
class Stage:
    """Runs begin, build, wait for those before them, and end when the test says so: as evaluations do."""

    slot: threading.Lock = field(default_factory=threading.Lock)
    #: By submission.
    building: dict[int, threading.Event] = field(default_factory=dict)
    running: dict[int, threading.Event] = field(default_factory=dict)
    go: dict[int, threading.Event] = field(default_factory=dict)

    def event(self, events: dict[int, threading.Event], submission: int) -> threading.Event:
        """The one of a submission."""
        return events.setdefault(submission, threading.Event())

    def __call__(self, job: Job, cancel: threading.Event, on_progress: Callable[[Progress], None]) -> JobResult:
        """One job."""
        on_progress(Progress(phase="build", done=0, total=0))
        self.event(self.building, job.submission).set()
        while not self.slot.acquire(timeout=0.02):
            _heed(cancel)
        try:
            on_progress(Progress(phase="test", done=0, total=1))
            self.event(self.running, job.submission).set()
            while not self.event(self.go, job.submission).wait(0.02):
                _heed(cancel)
        finally:
            self.slot.release()
        return accepted()


def _heed(cancel: threading.Event) -> None:
    if cancel.is_set():
        raise CancelledByRequest("told to")


@pytest.fixture
def stage(rig: Rig) -> Stage:
    """What the rig's evaluator does; jobs that say so are built."""
    rig.evaluator.script = made = Stage()
    rig.evaluator.builds = lambda job: COMPILES in job.code
    return made


def started(rig: Rig, stage: Stage, *codes: bytes) -> list[int]:
    """Submissions of these texts, the first of which runs."""
    numbers = [rig.submit(code=code) for code in codes]
    rig.start()
    assert stage.event(stage.running, numbers[0]).wait(PATIENCE_S)
    return numbers


def state(rig: Rig, submission: int) -> tuple[JobState, int, int]:
    """State, attempt and failures of a submission's only job."""
    found = rig.sql("SELECT state, attempt, failures FROM runner.job WHERE submission_id = %(id)s", id=submission)[0]
    return JobState(found["state"]), found["attempt"], found["failures"]


def test_the_next_job_builds_while_one_runs_and_no_third_does(rig: Rig, stage: Stage) -> None:
    """The status says so; it runs when the first has ended; a third of higher priority comes right after it."""
    first, second = started(rig, stage, COMPILES + b"1", COMPILES + b"2")
    assert stage.event(stage.building, second).wait(PATIENCE_S)
    third = rig.submit(code=COMPILES + b"3", priority=5)
    rig.wait_for(
        lambda: (
            rig.sql("SELECT phase FROM runner.status WHERE submission_id = %(id)s", id=second)[0]["phase"] == "building"
        ),
        "the status says that it is built",
    )
    assert not stage.event(stage.running, second).is_set()
    stage.event(stage.go, first).set()
    assert stage.event(stage.running, second).wait(PATIENCE_S)
    assert stage.event(stage.building, third).wait(PATIENCE_S)
    for each in (second, third):
        stage.event(stage.go, each).set()
    views = rig.wait_done(first, second, third)
    assert [view.jobs[0].verdict for view in views] == [Verdict.ACCEPTED] * 3
    assert [number for number, _, _ in rig.evaluator.seen] == [view.jobs[0].id for view in views]


def test_a_job_that_is_not_built_is_given_back_once_and_costs_nothing(rig: Rig, stage: Stage) -> None:
    """It is there for another host all the while, and runs here when the slot is free."""
    first, second = started(rig, stage, COMPILES, b"plain")
    rig.wait_for(lambda: state(rig, second) == (JobState.QUEUED, 1, 0), "it was given back")
    assert rig.daemon is not None
    assert rig.daemon._slot_queues[0].running() is None, "no other is asked for"
    stage.event(stage.go, first).set()
    stage.event(stage.go, second).set()
    (view,) = rig.wait_done(second)
    assert view.jobs[0].verdict is Verdict.ACCEPTED
    assert state(rig, second) == (JobState.DONE, 2, 0)
    assert len(rig.sql("SELECT FROM runner.event WHERE kind = 'released'")) == 1


def test_beside_a_run_that_was_not_built_nothing_is_taken(rig: Rig, stage: Stage) -> None:
    """Boards where nobody compiles pay nothing: a job waits in the queue, for whoever is free first."""
    first, second = started(rig, stage, b"plain", COMPILES)
    polled = rig.sql("SELECT last_seen FROM runner.host")[0]["last_seen"]
    rig.wait_for(lambda: rig.sql("SELECT last_seen FROM runner.host")[0]["last_seen"] > polled, "it has looked again")
    assert state(rig, second) == (JobState.QUEUED, 0, 0)
    stage.event(stage.go, first).set()
    stage.event(stage.go, second).set()
    rig.wait_done(first, second)


@pytest.mark.parametrize("how", ["drain", "stop", "reload"])
def test_what_has_not_begun_is_given_back_at_once(rig: Rig, stage: Stage, how: str) -> None:
    """A host that begins no more jobs finishes the one that runs, and holds up no other."""
    first, second = started(rig, stage, COMPILES + b"1", COMPILES + b"2")
    assert stage.event(stage.building, second).wait(PATIENCE_S)
    match how:
        case "drain":
            rig.store.drain("test-host", reason="fan 3")
        case "stop":
            rig.control.request_stop()
        case _:
            rig.control.request_rebuild("a test")
    rig.wait_for(lambda: state(rig, second) == (JobState.QUEUED, 1, 0), "it was given back")
    assert state(rig, first)[0] is JobState.RUNNING
    assert not stage.event(stage.running, second).is_set()
    stage.event(stage.go, first).set()
    assert rig.wait_done(first)[0].jobs[0].verdict is Verdict.ACCEPTED


def test_a_job_that_is_built_beside_a_run_can_be_cancelled(rig: Rig, stage: Stage) -> None:
    """The one that runs is not concerned."""
    first, second = started(rig, stage, COMPILES + b"1", COMPILES + b"2")
    assert stage.event(stage.building, second).wait(PATIENCE_S)
    rig.store.cancel(second)
    rig.wait_for(lambda: state(rig, second)[0] is JobState.CANCELLED, "it has stopped")
    stage.event(stage.go, first).set()
    assert rig.wait_done(first)[0].jobs[0].verdict is Verdict.ACCEPTED


def test_the_lease_of_a_job_that_is_built_beside_a_run_is_kept(make_rig: Callable[..., Rig], database_url: str) -> None:
    """It outlasts the lease it was claimed with, and so does nobody else's patience."""
    # No heartbeat is so late on a busy machine that the daemon takes its own job back.
    rig = make_rig(database_url, lease_s=30.0, heartbeat_s=0.1)
    rig.board()
    rig.evaluator.script = stage = Stage()
    rig.evaluator.builds = lambda job: COMPILES in job.code
    first, second = started(rig, stage, COMPILES + b"1", COMPILES + b"2")
    assert stage.event(stage.building, second).wait(PATIENCE_S)
    leased = f"SELECT lease_expires_at AS at FROM {JOBS} WHERE submission_id = %(id)s"  # noqa: S608 - a text of ours
    claimed = rig.sql(leased, id=second)[0]["at"]
    rig.wait_for(lambda: (rig.sql(leased, id=second)[0]["at"] - claimed).total_seconds() > 1.5, "renewed")
    for each in (first, second):
        stage.event(stage.go, each).set()
    assert [view.jobs[0].verdict for view in rig.wait_done(first, second)] == [Verdict.ACCEPTED] * 2
    assert state(rig, second) == (JobState.DONE, 1, 0)
