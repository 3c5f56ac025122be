"""What a host's login can do, and what it cannot do to another host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
import pytest

from runner.base.errors import HostNameTakenError, StaleAttemptError, SubmissionError
from runner.base.model import Artifact, Job, Progress, Verdict
from runner.extras.boards.again import Selection
from runner.extras.boards.store import BoardStore
from runner.store.clean import to_jsonb
from runner.store.probe import probe
from runner.store.results import _result
from tests.integration.store.conftest import Bench, Db, count, ranked, refused, result, rows, run_record
from tests.plugins.postgres import daemon_login

MINE = "runner_test_host"
THEIRS = "runner_test_other_host"


@dataclass(frozen=True, kw_only=True)
class Login:
    """A host's login: a store, and a plain connection on which to try what no daemon sends."""

    bench: Bench
    db: psycopg.Connection[tuple[Any, ...]]

    def refused(self, statement: str) -> None:
        """A statement for which the login lacks the right."""
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            self.db.execute(statement.encode())

    def ask(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return self.db.execute(statement.encode(), parameters).fetchall()


@pytest.fixture
def log_in(database_url: str) -> Iterator[Callable[[str], Login]]:
    """Connects as a login that is made if need be."""
    opened: list[Login] = []

    def connect(login: str) -> Login:
        url = daemon_login(database_url, login)
        store = BoardStore(url, application_name="kernel-runner test")
        made = Login(bench=Bench(store=store, url=url), db=psycopg.connect(url, autocommit=True))
        opened.append(made)
        return made

    yield connect
    for login in opened:
        login.bench.store.close()
        login.db.close()


@pytest.fixture
def mine(log_in: Callable[[str], Login]) -> Login:
    """The login of `host-a`, which is registered."""
    made = log_in(MINE)
    made.bench.register("host-a")
    return made


@pytest.fixture
def thief(log_in: Callable[[str], Login]) -> Login:
    """The login of `host-b`, a host that was taken over."""
    made = log_in(THEIRS)
    made.bench.register("host-b")
    return made


@pytest.fixture
def job(bench: Bench, mine: Login) -> Job:
    """A ranked job that runs on `host-a`."""
    bench.board()
    bench.submit(mode="leaderboard")
    return mine.bench.claim(instance="host-a")


def untouched(db: Db, job: Job) -> bool:
    """The job runs on as `host-a`'s, and nothing came of it."""
    found = rows(db, "SELECT state, attempt, lease_owner, progress FROM runner.job WHERE id = %s", job.id)
    left = count(db, "leaderboard", "runs") + count(db, "runner", "artifact")
    return (found, left) == ([("running", job.attempt, "host-a", None)], 0)


def test_a_host_ends_and_forges_nothing_of_another(bench: Bench, thief: Login, job: Job, db: Db) -> None:
    """Even if it guessed number, attempt, time of the claim, name and instance."""
    forged = result(Verdict.ACCEPTED, run_record("leaderboard", score_s=1e-12))
    store = thief.bench.store
    for end in (
        partial(store.complete, result=forged),
        partial(store.fail, error="x", report=None, slot="x"),
        partial(store.release, reason="x"),
        store.cancelled,
    ):
        with pytest.raises(StaleAttemptError):
            end(job)
    thief.bench.store.progress(job, Progress(phase="forged", done=1, total=1))
    for instance in ("host-a", None):
        assert not thief.bench.store.recover(host="host-a", keep=(), died=True, instance=instance)
        (beat,) = thief.bench.store.heartbeat(
            host="host-a", lease_s=1e9, held=[(job.id, job.attempt)], instance=instance
        )
        assert not beat.ours
        claims = thief.bench.store.claim(host="host-a", slots={"CPU": 1}, lease_s=60, instance=instance)
        assert (claims.jobs, claims.registered) == ((), False)
    assert thief.ask("SELECT runner.keep_file(%s, %s, 'x', 'x', 'x')", job.id, job.attempt) == [(False,)]
    assert untouched(db, job)
    bench.submit()

    db.execute("UPDATE runner.job SET lease_expires_at = now() - interval '1 minute' WHERE id = %s", (job.id,))
    assert thief.ask("SELECT state FROM runner.reclaim()") == [("queued",)], "taken back, but not ended"


def test_a_name_that_no_host_has_claims_nothing(queue: Bench, log_in: Callable[[str], Login]) -> None:
    """A login must register the name first, and then with its own instance."""
    queue.submit()
    login = log_in(MINE)
    claims = login.bench.store.claim(host="host-x", slots={"CPU": 1}, lease_s=60, instance="x")
    assert (claims.jobs, claims.registered) == ((), False)
    login.bench.register("host-x", instance="x")
    assert not login.bench.store.claim(host="host-x", slots={"CPU": 1}, lease_s=60).jobs
    assert login.bench.store.claim(host="host-x", slots={"CPU": 1}, lease_s=60, instance="x").jobs


def test_a_host_is_not_usurped(thief: Login, mine: Login, job: Job, db: Db) -> None:
    """Not while it is silent, not after it has stopped, and its goodbye is its own."""
    for change in ("last_seen = now() - interval '2 minutes'", "stopped_at = now()"):
        db.execute(f"UPDATE runner.host SET {change} WHERE name = 'host-a'".encode())  # noqa: S608 - constants above
        with pytest.raises(HostNameTakenError, match=f"belongs to the database login '{MINE}'.*move_host"):
            thief.bench.register("host-a")
    mine.bench.register("host-a")
    thief.bench.store.unregister_host("host-a", instance="host-a")
    assert rows(db, "SELECT stopped_at, login FROM runner.host WHERE name = 'host-a'") == [(None, MINE)]
    assert untouched(db, job)


def test_a_file_is_kept_with_its_result_only(mine: Login, thief: Login, job: Job, db: Db) -> None:
    """A host adds no file to what is over, not even to its own results.

    Another host does not even in a transaction that began in the microsecond in which the result was committed.
    """
    trace = Artifact(name="trace", media_type="text/plain", data=b"as committed")
    mine.bench.store.complete(job, result(Verdict.ACCEPTED, run_record("leaderboard", score_s=1.0), artifacts=(trace,)))
    assert mine.ask("SELECT runner.keep_file(%s, %s, 'trace', 'x', 'x')", job.id, job.attempt) == [(False,)]
    assert rows(db, "SELECT data FROM runner.artifact") == [(b"as committed",)]
    for login, kept in ((thief, False), (mine, True)):
        with login.db.transaction():
            ((began,),) = login.ask("SELECT now()")
            db.execute("UPDATE runner.job SET finished_at = %s WHERE id = %s", (began, job.id))
            assert login.ask("SELECT runner.keep_file(%s, %s, 'x', 'x', 'x')", job.id, job.attempt) == [(kept,)]


def test_a_result_names_its_own_submission(bench: Bench, mine: Login, job: Job) -> None:
    """Another submission, of KernelBot's and without a job, is not finished in its place."""
    other = bench.submit(user_id="u2")
    wrong = {**_result(job, ranked(job)), "submission_id": other}
    assert mine.ask("SELECT outcome FROM runner.complete(%s)", to_jsonb([wrong])) == [("stale",)]
    for end in ("fail(%s, %s, %s, 'x', 'x', NULL)", "release(%s, %s, %s, 'x')", "stopped(%s, %s, %s)"):
        assert mine.ask(f"SELECT state FROM runner.{end}", job.id, job.attempt, other) == [(None,)]  # noqa: S608


def test_a_login_that_several_hosts_share_acts_for_all_of_them(bench: Bench, mine: Login, job: Job) -> None:
    """For those who want one password for all hosts; `check` lists them."""
    mine.bench.register("host-c")
    bench.free_secret_jobs()
    assert mine.bench.store.claim(host="host-c", slots={"CPU": 1}, lease_s=60, instance="host-c").jobs
    assert mine.bench.store.release(job, reason="x").state == "queued"
    facts = probe(mine.bench.url)
    assert (facts.login, facts.owner, facts.hosts) == (MINE, False, ("host-a", "host-c"))


def test_the_owner_acts_for_every_host_and_set_role_changes_nothing(
    bench: Bench, mine: Login, thief: Login, job: Job
) -> None:
    """The login counts, not the role that it has taken on."""
    for login, state in ((thief, None), (mine, "queued")):
        login.db.execute("SET ROLE runner_daemon")
        assert login.ask("SELECT runner.is_owner()") == [(False,)]
        release = "SELECT state FROM runner.release(%s, %s, %s, 'x')"
        assert login.ask(release, job.id, job.attempt, job.submission_id) == [(state,)]
    assert probe(bench.url).owner
    assert bench.claim(host="host-a", instance="host-a").id == job.id


def test_an_operator_moves_a_host_to_another_login(mine: Login, thief: Login, job: Job, db: Db) -> None:
    """The old login loses host and jobs at once; the new one goes on with them."""
    db.execute("SET ROLE runner_operator")
    db.execute("SELECT runner.move_host('host-a', %s)", (THEIRS,))
    for name, login, code in (("host-a", "nobody here", "KR026"), ("host-x", MINE, "KR018")):
        with refused(code):
            db.execute("SELECT runner.move_host(%s, %s)", (name, login))
    db.execute("RESET ROLE")
    with pytest.raises(HostNameTakenError):
        mine.bench.register("host-a")
    with pytest.raises(StaleAttemptError):
        mine.bench.store.release(job, reason="x")
    assert untouched(db, job)
    thief.bench.register("host-a")
    assert thief.bench.store.release(job, reason="x").state == "queued"


def test_a_host_that_an_earlier_release_registered_is_bound_by_the_next_registration(
    log_in: Callable[[str], Login], mine: Login, db: Db
) -> None:
    """Until then its login is unknown, and it claims nothing."""
    db.execute("UPDATE runner.host SET login = NULL")
    assert not mine.bench.store.claim(host="host-a", slots={"CPU": 1}, lease_s=60, instance="host-a").registered
    mine.bench.register("host-a")
    assert mine.bench.store.claim(host="host-a", slots={"CPU": 1}, lease_s=60, instance="host-a").registered


def test_evidence_is_kept_for_a_day_at_least(thief: Login) -> None:
    """A host does not erase what speaks against it."""
    disguised = ("-1200 mons 36001 days", "-12 mons 360 days 24:00:00")
    for keep in ("-100 years", "23 hours", *disguised, None):
        with refused("KR025"):
            thief.ask("SELECT * FROM runner.reap(%s::interval, 1000000)", keep)
    with pytest.raises(SubmissionError, match="a day at least"):
        thief.bench.store.reap(keep_s=3600)


def test_a_hosts_gpu_types_widen_nothing(bench: Bench, mine: Login, thief: Login, db: Db) -> None:
    """A host gives no known name another meaning, and an operator's selection follows the owner's aliases only."""
    bench.board("identity", "H100", "T4", "MI300")
    bench.store.sync_gpu_types([("H100", "nvidia", ["H100_SXM"], ""), ("T4", "nvidia", [], "")])
    for types in (
        [("T4", "nvidia", ["H100"], "")],
        [("evil", "nvidia", ["t4", "h100"], "")],
        [("H100_SXM", "nvidia", ["T4"], "")],
    ):
        assert thief.bench.store.sync_gpu_types(types) == [types[0][0]]
    # A host that knows the same types, or fewer of their names, is told nothing.
    assert thief.bench.store.sync_gpu_types([("H100", "nvidia", [], ""), ("T4", "nvidia", [], "")]) == []
    # A type of its own it may publish and change, and no other host.
    assert thief.bench.store.sync_gpu_types([("L4x", "nvidia", ["MI300"], "")]) == []
    assert thief.bench.store.sync_gpu_types([("L4x", "nvidia", ["MI300", "H200"], "")]) == []
    assert mine.bench.store.sync_gpu_types([("L4x", "nvidia", ["A100"], "")]) == ["L4x"]

    job_types = ["H100", "MI300"]
    bench.register("host-own", *job_types)
    bench.submit(gpu_types=job_types)
    for gpu_type in job_types:
        bench.accept(bench.claim(gpu_type))
    assert bench.store.invalidate(Selection(gpu_types=("T4", "L4x")), reason="x") == 0
    assert bench.store.invalidate(Selection(gpu_types=("H100_SXM",)), reason="x") == 1

    # The owner's types replace those of hosts that share a name with them.
    bench.store.sync_gpu_types([("MI300", "amd", [], "")])
    left = rows(db, "SELECT name, login FROM runner.gpu_type ORDER BY name")
    assert left == [("H100", None), ("MI300", None), ("T4", None)]
