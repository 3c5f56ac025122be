"""A store on a fresh database, a board to submit to, and results to commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from runner.base.model import Job, JobResult, RunRecord, Verdict
from runner.extras.boards.store import BoardStore
from runner.store import Completion, HostRecord
from runner.store.clean import to_jsonb
from runner.store.queries import call
from tests.integration.store.meter import Meter
from tests.support.waiting import PATIENCE_S

Db = psycopg.Connection[dict[str, Any]]

TASK: dict[str, Any] = {
    "files": {"submission.py": "@SUBMISSION@", "eval.py": "print()"},
    "lang": "py",
    "config": {"main": "eval.py"},
    "tests": [{"size": 4, "seed": 1}],
    "benchmarks": [{"size": 8, "seed": 2}],
    "test_timeout": 180,
    "benchmark_timeout": 180,
    "ranked_timeout": 180,
    "ranking_by": "last",
    "seed": None,
    "multi_gpu": False,
    "libraries": [],
}
_ENQUEUE = call("enqueue(submission_id bigint, mode text, gpu_types text[], priority integer, options jsonb) AS added")
CODE = b"def custom_kernel(data):\n    return data\n"


@pytest.fixture
def store(database_url: str) -> Iterator[BoardStore]:
    """A store on a fresh migrated database.

    The pauses after failures are a thousand times as long: none ends by itself, however long a test takes.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE runner.retry SET pause_s = 5000, pause_max_s = 300000")
    opened = BoardStore(database_url, application_name="kernel-runner test")
    yield opened
    opened.close()


@pytest.fixture
def db(database_url: str) -> Iterator[Db]:
    """A plain connection in autocommit mode, as any frontend could have."""
    with Db.connect(database_url, autocommit=True, row_factory=dict_row) as connection:
        yield connection


def one(db: Db, query: str, *parameters: object) -> dict[str, Any]:
    """The only row of a query."""
    found = db.execute(query.encode(), parameters or None).fetchall()
    assert len(found) == 1, found
    return found[0]


def value(db: Db, query: str, *parameters: object) -> Any:  # noqa: ANN401 - a column
    """The only value of the only row of a query."""
    (found,) = one(db, query, *parameters).values()
    return found


def rows(db: Db, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    return [tuple(row.values()) for row in db.execute(query.encode(), parameters or None)]


def count(db: Db, schema: str, table: str) -> int:
    """How many rows a table has."""
    return int(value(db, f"SELECT count(*) FROM {schema}.{table}"))  # noqa: S608 - names of ours


@contextmanager
def refused(sqlstate: str, says: str | None = None) -> Iterator[None]:
    """A function of the schema refuses, by this SQLSTATE and in these words."""
    with pytest.raises(psycopg.Error, match=says) as caught:
        yield
    assert caught.value.sqlstate == sqlstate


def notes(db: Db) -> list[psycopg.Notify]:
    """What has been notified so far on the channels that the connection listens to, however late a server is with it.

    Notifications come in the order of their commits: one of the connection's own comes after all that there are.
    """
    db.execute("LISTEN the_last_one")
    db.execute("NOTIFY the_last_one")
    heard: list[psycopg.Notify] = []
    for note in db.notifies(timeout=PATIENCE_S):
        if note.channel == "the_last_one":
            return heard
        heard.append(note)
    raise AssertionError(f"the last notification never came, these did: {heard}")


def enqueue(
    store: BoardStore,
    submission_id: int,
    *,
    mode: str,
    gpu_types: list[str] | None = None,
    options: Mapping[str, int] | None = None,
) -> int:
    """Add jobs to a submission, as a frontend does; how many."""
    values = {"mode": mode, "gpu_types": gpu_types, "priority": 0, "options": to_jsonb(options)}
    return int(store.all(_ENQUEUE, submission_id=submission_id, **values)[0]["added"])


def _board(name: str, gpus: Sequence[str], changes: Mapping[str, object]) -> dict[str, Any]:
    return {
        "name": name,
        "deadline": datetime.now(UTC) + timedelta(days=1),
        "task": TASK,
        "description": "Return the input.",
        "gpus": gpus or ("CPU",),
        "templates": {"Python": "def custom_kernel(data): ..."},
        "extra": None,
        **changes,
    }


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A store with helpers that make tests short."""

    store: BoardStore
    url: str

    def board(self, name: str = "identity", *gpus: str, **changes: object) -> int:
        """A leaderboard that closes tomorrow."""
        return self.store.create_board(**_board(name, gpus, changes))

    def update_board(self, name: str = "identity", *gpus: str, **changes: object) -> None:
        """Update a leaderboard to what `board` would make."""
        self.store.update_board(**_board(name, gpus, changes))

    def submit(self, **changes: object) -> int:
        """A valid submission to the board `identity`."""
        settings: dict[str, Any] = {
            "leaderboard": "identity",
            "user_id": "u1",
            "file_name": "fast.py",
            "code": CODE,
            "mode": "test",
            "gpu_types": None,
            "user_name": "Ada",
            **changes,
        }
        return self.store.submit(**settings)

    def claim(self, *gpus: str, host: str = "host-a", lease_s: float = 60, instance: str | None = None) -> Job:
        """The next job."""
        claims = self.store.claim(
            host=host, slots=dict.fromkeys(gpus or ("CPU",), 1), lease_s=lease_s, instance=instance
        )
        assert claims.jobs, "nothing to claim"
        (job,) = claims.jobs
        return job

    def claim_of(self, submission_id: int) -> Job:
        """The next job, which is of this submission."""
        job = self.claim()
        assert job.submission_id == submission_id
        return job

    def idle(self, *gpus: str, host: str = "host-a") -> bool:
        """Whether there is nothing to claim."""
        return not self.store.claim(host=host, slots=dict.fromkeys(gpus or ("CPU",), 1), lease_s=60).jobs

    def register(self, name: str, *gpus: str, instance: str | None = None, **changes: object) -> None:
        """A daemon that announces itself; its identity is its name unless said otherwise."""
        settings: dict[str, Any] = {
            "name": name,
            "version": "1",
            "slots": [{"gpu_type": gpu} for gpu in gpus or ("CPU",)],
            "instance": instance or name,
            "gpu_types": gpus or ("CPU",),
            **changes,
        }
        self.store.register_host(HostRecord(**settings))

    def accept(self, job: Job) -> Completion:
        """Complete a job of mode test."""
        return self.store.complete(job, result(Verdict.ACCEPTED, run_record()))

    def look_again(self) -> None:
        """Let the next claim look for leases of hosts, ends and starts, however lately one has."""
        self._change("UPDATE runner.sweep SET looked_at = '-infinity'")

    def overdue(self) -> bool:
        """Whether a claim that looks says that something is due."""
        self.look_again()
        return self.store.claim(host="h", slots={}, lease_s=60).overdue

    def free_secret_jobs(self) -> None:
        """Let secret jobs run beside their public ones."""
        self._change("UPDATE runner.job SET after_public = false, ready = true WHERE after_public AND state = 'queued'")

    def end_pauses(self) -> None:
        """Let any host claim at once what has failed."""
        self._change("UPDATE runner.job SET not_before = NULL, avoid_until = NULL")

    def _change(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def other(self) -> BoardStore:
        """A second store, for another thread."""
        return BoardStore(self.url, application_name="kernel-runner test, other")


def together(number: int, bench: Bench, call: Callable[[BoardStore, int], object]) -> list[object]:
    """What `number` threads get when they call at the same moment, each with a store of its own."""
    barrier = threading.Barrier(number)

    def run(index: int) -> object:
        with closing(bench.other()) as store:
            store.ping()
            barrier.wait(timeout=PATIENCE_S)
            try:
                return call(store, index)
            except Exception as error:  # noqa: BLE001 the outcome of a thread, looked at by the test
                return error

    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(run, range(number)))


@pytest.fixture
def bench(store: BoardStore, database_url: str) -> Bench:
    """Helpers around a store."""
    return Bench(store=store, url=database_url)


@pytest.fixture
def queue(bench: Bench) -> Bench:
    """The same, with the leaderboard `identity` on the CPU type."""
    bench.board()
    return bench


def run_record(
    mode: str = "test", *, passed: bool = True, score_s: float | None = None, **changes: object
) -> RunRecord:
    """A row of results."""
    settings: dict[str, Any] = {
        "mode": mode,
        "start_offset_ns": 1_000_000,
        "end_offset_ns": 2_000_000_000,
        "passed": passed,
        "score_s": score_s,
        "compilation": None,
        "meta": {"stdout": "", "stderr": "", "success": True, "exit_code": 0, "command": "python3", "duration": 1.5},
        "result": {"check": "pass" if passed else "fail"},
        "system_info": {"gpu": "none", "device_count": 0},
        **changes,
    }
    return RunRecord(**settings)


def result(verdict: Verdict = Verdict.ACCEPTED, *runs: RunRecord, **changes: object) -> JobResult:
    """What an attempt found."""
    settings: dict[str, Any] = {
        "verdict": verdict,
        "runs": runs,
        "error": None if verdict is Verdict.ACCEPTED else f"because {verdict}",
        "report": {"phases": []},
        "build_ns": 5_000_000,
        "eval_ns": 7_000_000,
        **changes,
    }
    return JobResult(**settings)


def ranked(job: Job, score_s: float = 2.5e-6, *, passed: bool = True) -> JobResult:
    """What a leaderboard job finds: accepted with a score, or wrong in its last run."""
    if not passed:
        return result(Verdict.WRONG_ANSWER, run_record("test"), run_record("leaderboard", passed=False))
    assert job.mode == "leaderboard"
    return result(
        Verdict.ACCEPTED, run_record("test"), run_record("benchmark"), run_record("leaderboard", score_s=score_s)
    )


#: Statements that hide our tables from autovacuum: a plan that is made anew in between would cost pages.
_UNTOUCHED = """
SELECT format('ALTER TABLE %I.%I SET (autovacuum_enabled = off)', schemaname, tablename) AS statement
FROM pg_tables WHERE schemaname IN ('leaderboard', 'runner')
"""


@pytest.fixture
def meter(database_url: str) -> Iterator[Meter]:
    """A connection of its own. Autovacuum leaves our tables alone, so only the test vacuums and analyzes them."""
    with Db.connect(database_url, autocommit=True, row_factory=dict_row) as connection:
        for (statement,) in rows(connection, _UNTOUCHED):
            connection.execute(statement.encode())
        yield Meter(connection)


@pytest.fixture
def finish(bench: Bench) -> Callable[..., None]:
    """Claims and completes jobs of one GPU type until none waits."""

    def run(*gpus: str, score_s: float = 2.5e-6, public: bool = True, secret: bool = True) -> None:
        while claimed := bench.store.claim(host="host-a", slots=dict.fromkeys(gpus or ("CPU",), 1), lease_s=60).jobs:
            (job,) = claimed
            passed = secret if job.secret else public
            outcome = (
                ranked(job, score_s, passed=passed)
                if job.mode == "leaderboard"
                else result(Verdict.ACCEPTED, run_record(job.mode))
            )
            bench.store.complete(job, outcome)

    return run
