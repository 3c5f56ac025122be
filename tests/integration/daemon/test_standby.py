"""A standby takes over in the middle of runs: real streaming replication, and a daemon that knows both servers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from psycopg.conninfo import make_conninfo

from runner.errors import NotFoundError
from runner.model import Job, JobResult, JobState, Progress, Verdict
from runner.store import migrate
from tests.chaos.loss import How, go_back, keep
from tests.chaos.server import Cluster
from tests.integration.daemon.rig import Gate, Rig, cpu_slots
from tests.support.waiting import PATIENCE_S

STALE = "SELECT job_id, attempt, verdict FROM runner.stale_result"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A migrated primary and a standby that follows it asynchronously."""
    with Cluster() as made:
        made.start()
        migrate(made.url("postgres"))
        made.add_standby()
        yield made


@pytest.fixture
def gates() -> defaultdict[int, Gate]:
    """One gate for each submission."""
    return defaultdict(Gate)


@pytest.fixture
def rig(cluster: Cluster, make_rig: Callable[..., Rig], gates: defaultdict[int, Gate]) -> Rig:
    """A daemon with two slots, whose runs wait for their gates; its database's address names both servers."""
    assert cluster.standby is not None
    folders = f"{cluster.primary.folder},{cluster.standby.folder}"
    made = make_rig(
        make_conninfo("", host=folders, user="postgres", dbname="postgres", target_session_attrs="read-write")
    )
    made.slots = cpu_slots(2)

    def wait(job: Job, cancel: threading.Event, on_progress: Callable[[Progress], None]) -> JobResult:
        return gates[job.submission_id or 0](job, cancel, on_progress)

    made.evaluator.script = wait
    made.board()
    return made.start()


def runs_of(rig: Rig, job_id: int) -> int:
    """How often a job was evaluated."""
    return sum(seen == job_id for seen, _, _ in rig.evaluator.seen)


def test_a_synchronous_standby_costs_no_run(rig: Rig, cluster: Cluster, gates: defaultdict[int, Gate]) -> None:
    """The run goes on, its result waits in the spool and is committed on the other server; work goes on there."""
    cluster.make_synchronous()
    submission = rig.submit()
    gate = gates[submission]
    assert gate.begun.wait(PATIENCE_S)
    rig.store.close()
    cluster.crash()
    gate.go.set()
    rig.wait_for(lambda: rig.spool.count == 1, "the result is spooled")
    cluster.fail_over()
    (view,) = rig.wait_done(submission)
    (job,) = view.jobs
    assert (job.verdict, job.attempt, job.failures, len(job.runs)) == (Verdict.ACCEPTED, 1, 0, 1)
    assert runs_of(rig, job.id) == 1
    assert rig.sql(STALE) == []
    later = rig.submit()
    gates[later].go.set()
    rig.wait_done(later)


def test_what_an_asynchronous_standby_lacks_runs_again_or_comes_back(
    rig: Rig, cluster: Cluster, gates: defaultdict[int, Gate]
) -> None:
    """Four jobs that stand differently when the standby stops to follow; each ends once."""
    committed, spooled = rig.submit(), rig.submit()
    for submission in (committed, spooled):
        assert gates[submission].begun.wait(PATIENCE_S)
    queued = rig.submit()
    keep(cluster, How.STANDBY)

    # All of this is lost: a result, a claim, a submission.
    gates[committed].go.set()
    rig.wait_done(committed)
    assert gates[queued].begun.wait(PATIENCE_S)
    unknown = submit(rig, key="k")
    rig.store.close()
    cluster.crash()
    for submission in (spooled, queued):
        gates[submission].go.set()
    rig.wait_for(lambda: rig.spool.count == 2, "two results are spooled")
    go_back(cluster, How.STANDBY)

    # The frontend hears that its submission is lost, and repeats it.
    with pytest.raises(NotFoundError):
        rig.view(unknown)
    again = submit(rig, key="k")
    assert again > unknown
    gates[again].go.set()
    jobs = {view.status.submission_id: view.jobs[0] for view in rig.wait_done(committed, spooled, queued, again)}
    assert {job.verdict for job in jobs.values()} == {Verdict.ACCEPTED}
    assert all((job.state, len(job.runs), job.failures) == (JobState.DONE, 1, 0) for job in jobs.values())
    # Its claim was known: the spool's result counts.
    assert (jobs[spooled].attempt, runs_of(rig, jobs[spooled].id)) == (1, 1)
    # Its claim was known and its result is nowhere: it runs again.
    assert (jobs[committed].attempt, runs_of(rig, jobs[committed].id)) == (2, 2)
    # Its claim was lost: the spool's result is evidence, and the same attempt runs again.
    assert (jobs[queued].attempt, runs_of(rig, jobs[queued].id)) == (1, 2)
    assert [(row["job_id"], row["attempt"]) for row in rig.sql(STALE)] == [(jobs[queued].id, 1)]
    assert rig.spool.count == 0


def submit(rig: Rig, *, key: str) -> int:
    """A submission with an idempotency key."""
    return rig.store.submit(
        leaderboard="b",
        user_id="u",
        file_name="a.py",
        code=b"pass",
        mode="test",
        gpu_types=["CPU"],
        user_name=None,
        idempotency_key=key,
    )
