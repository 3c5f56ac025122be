"""Our own side: real daemons with an evaluator that finds everything accepted at once, in a process of their own.

Everything else is the product: `runner.submit`, the claiming loop, slots, heartbeat, spool and the committed rows.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from runner.base.config import Config
from runner.base.errors import CancelledByRequest
from runner.base.gpu_types import Registry
from runner.base.logs import configure
from runner.base.model import Job, JobResult, Progress, RunRecord, Slot, SubmissionJob, Verdict
from runner.daemon import Daemon
from runner.daemon.monitoring.readiness import Readiness
from runner.daemon.outcomes.spool import Spool
from runner.daemon.serve import require_schema
from runner.daemon.shutdown import ShutdownControl
from runner.extras.boards.store import BoardStore
from runner.store import migrate
from tests.benchmarks.queue.worker import Notebook, say_ready
from tests.support.boards import publish
from tests.support.jobs import of_submission

PACKAGE: Final = None
#: By the indexes of what is queued and leased: asked 50 times a second, a walk along all jobs would be measured too.
OPEN_SQL: Final = (
    "SELECT EXISTS (SELECT FROM runner.job WHERE state = 'queued')"
    " OR EXISTS (SELECT FROM runner.job WHERE lease_expires_at IS NOT NULL)"
)
BOARD: Final = "bench"
#: A submission with this code runs until it is cancelled.
ENDLESS: Final = b"endless"
#: Enough for a few hosts that must not compete.
TYPES: Final = ("CPU", "H100", "H200", "B200", "A100", "L4", "T4", "MI300", "MI250")

_SUBMIT: Final = (
    "SELECT runner.submit(leaderboard => %(board)s, user_id => %(user)s, file_name => 'a.py', code => %(code)s,"
    " mode => 'test', gpu_types => ARRAY[%(gpu_type)s])"
)


def install(url: str) -> None:
    """Our schema and a leaderboard."""
    migrate(url)
    with closing(BoardStore(url, application_name="bench set-up")) as store:
        publish(store, BOARD, TYPES)


def insert(connection: psycopg.Connection[Any]) -> int:
    """One job."""
    return submit(connection)


def submit(
    connection: psycopg.Connection[Any],
    *,
    user: str = "user 0",
    code: bytes = b"pass",
    gpu_type: str = "CPU",
) -> int:
    """One submission of mode test in the transaction at hand; its id."""
    parameters = {
        "board": BOARD, "user": user, "code": code, "gpu_type": gpu_type,
    }  # fmt: skip
    row = connection.execute(_SUBMIT, parameters).fetchone()
    if row is None:
        raise RuntimeError("runner.submit returned nothing")
    return int(row[0])


def preload(connection: psycopg.Connection[Any], jobs: int) -> None:
    """Submissions of mode test, one job each, of a hundred users."""
    for number in range(jobs):
        submit(connection, user=f"user {number % 100}")


class AtOnce:
    """Accepts every job at once; an endless one runs until it is cancelled."""

    can_refuse = False

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        #: By slot, made once: making results is no work of the queue.
        self._results: dict[str, JobResult] = {}

    def check(self) -> None:
        """Nothing goes."""

    def refuse(self, job: SubmissionJob, slot: Slot, *, cancel: threading.Event) -> JobResult | None:
        """Nothing is checked early."""
        raise NotImplementedError

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Nothing to prepare."""

    def try_out(self, slot: Slot, *, cancel: threading.Event) -> None:
        """The slot works."""

    @contextmanager
    def evaluate(
        self,
        job: Job,
        slot: Slot,
        *,
        cancel: threading.Event,
        on_progress: Callable[[Progress], None],  # noqa: ARG002 - there is none to report
    ) -> Iterator[JobResult]:
        """What an evaluation of mode test writes: a row with a result."""
        self._notebook.note("start", job.submission)
        if of_submission(job).code == ENDLESS:
            cancel.wait()
            self._notebook.note("stop", job.submission)
            raise CancelledByRequest("told to")
        result = self._results.get(slot.name)
        if result is None:
            result = self._results[slot.name] = JobResult(
                verdict=Verdict.ACCEPTED, runs=(_run(),), error=None, report={"slot": slot.name}, build_ns=1, eval_ns=1
            )
        yield result


def _run() -> RunRecord:
    return RunRecord(
        mode="test",
        start_offset_ns=0,
        end_offset_ns=1_000_000,
        passed=True,
        score_s=None,
        compilation=None,
        meta={"stdout": "", "stderr": "", "success": True, "exit_code": 0, "command": "", "duration": 0.001},
        result={"check": "pass"},
        system_info={"gpu": "none", "cpu": "none", "torch": "none"},
    )


class NoEngine:
    """A container engine that is always there and has nothing to do."""

    def check(self) -> None:
        """It answers."""

    def reap(self) -> int:
        """Nothing is left over."""
        return 0


class Hosts:
    """Some daemons in one process, each with its own name, connections, threads and spool."""

    def __init__(self, options: Mapping[str, Any], notebook: Notebook, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._evaluator = AtOnce(notebook)
        self._registry = Registry.load()
        self._control: list[ShutdownControl] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start all of them and wait until they serve."""
        types: Sequence[str] = self._options.get("types", TYPES)
        name = self._options.get("name", "host")
        hosts = range(int(self._options.get("hosts", 1)))
        for one in [self._start_one(f"{name}-{number}", types[number % len(types)]) for number in hosts]:
            if not one.ready.wait(120):
                raise RuntimeError(f"a daemon does not serve: {one.waiting_for}")

    def stop(self) -> None:
        """Stop all of them; what runs without end is given back."""
        for control in self._control:
            control.request_abort()
        for thread in self._threads:
            thread.join(60)

    def _start_one(self, name: str, gpu_type: str) -> Readiness:
        state_dir = self._directory / name
        state_dir.mkdir()
        config = Config(host_name=name, state_dir=state_dir, log_level="warning")
        url = self._options["url"]
        daemon = Daemon(
            config,
            store_factory=lambda purpose: BoardStore(url, application_name=f"daemon {purpose}", writes=True),
            evaluator=self._evaluator,
            engine=NoEngine(),
            check_database=lambda: require_schema(url),
            registry=self._registry,
            slots=[
                Slot(name=f"slot{number}", gpu_type=gpu_type, devices=(), cpus=(number,))
                for number in range(int(self._options["slots"]))
            ],
            spool=Spool(config.state_dir / "spool"),
            instance=name,
        )
        control = ShutdownControl()
        thread = threading.Thread(target=daemon.run, args=(control,), name=name, daemon=True)
        thread.start()
        self._control.append(control)
        self._threads.append(thread)
        return daemon.readiness


def main(options: Mapping[str, Any]) -> None:
    """Serve until SIGTERM."""
    configure("json", "warning")
    # A process full of daemons has more threads than the default stacks have address space for.
    threading.stack_size(512 << 10)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    notebook = Notebook()
    with tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as directory:
        hosts = Hosts(options, notebook, Path(directory))
        hosts.start()
        say_ready()
        stopped.wait()
        hosts.stop()
    notebook.write(options["notes"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
