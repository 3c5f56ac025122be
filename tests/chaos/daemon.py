"""The program of one host in the storm: the real daemon, with an evaluator that obeys scripts and no container engine.

    python -m tests.chaos.daemon SPEC.json

It dies with the process that started it. Every execution is written to a journal before it begins and as it ends, so
that the ledger knows what was run, whatever the database was told.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from runner.base import logs
from runner.base.config import Config
from runner.base.errors import CancelledByRequest, EvaluationError
from runner.base.gpu_types import Registry
from runner.base.model import Device, Job, JobResult, Progress, Slot, SubmissionJob, Verdict
from runner.daemon.instance import instance_id
from runner.daemon.loop import Daemon, ExitReason
from runner.daemon.outcomes.spool import Spool
from runner.daemon.serve import only_daemon, require_schema
from runner.daemon.shutdown import ShutdownControl
from runner.daemon.signals import signals
from runner.store import Store
from tests.chaos.script import Script, found
from tests.support.jobs import of_submission

_PR_SET_PDEATHSIG: Final = 1
#: Runs are short here: when another job is taken beside one, and how often that is looked into.
_PAUSE_S: Final = 0.05
#: How many early checks break.
_BREAKS: Final = 0.2
#: A file of the state directory: the process that has begun to handle SIGTERM.
HEARS: Final = "hears"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What one host is."""

    name: str
    #: The database, through this host's proxy.
    database_url: str
    #: HOST:PORT of the server itself, if the database's address leads to a pooler.
    direct_host: str | None
    state_dir: str
    #: The GPU type of each slot, and its devices; slots that share one cannot work at the same time.
    slots: tuple[tuple[str, tuple[int, ...]], ...]
    lease_s: float
    heartbeat_s: float
    poll_s: float
    drain_timeout_s: float

    def write(self, path: Path) -> None:
        """As a file for the program."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Back from the file."""
        facts = json.loads(path.read_text(encoding="utf-8"))
        slots = tuple((gpu_type, tuple(devices)) for gpu_type, devices in facts.pop("slots"))
        return cls(**facts, slots=slots)


class Journal:
    """A file of lines, each written at once: a killed process leaves whole lines. Threadsafe."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, what: str, job: Job, slot: Slot, nonce: str) -> None:
        """Note what happened to an execution."""
        facts = {
            "at": time.time(),
            "what": what,
            "job": job.id,
            "attempt": job.attempt,
            "claimed_at": job.started_at.timestamp(),
            "slot": slot.name,
            "nonce": nonce,
            "pid": os.getpid(),
        }
        os.write(self._file, json.dumps(facts).encode() + b"\n")


class Evaluator:
    """Obeys scripts. Threadsafe."""

    can_refuse = True

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._random = random.SystemRandom()

    def check(self) -> None:
        """Nothing goes."""

    def refuse(self, job: SubmissionJob, slot: Slot, *, cancel: threading.Event) -> JobResult | None:
        """Refuse what the script says does not compile; now and then the check breaks, or takes long."""
        script = Script.from_code(of_submission(job).code)
        nonce = uuid.uuid4().hex
        self._journal.write("checked", job, slot, nonce)
        if cancel.wait(self._random.choice((0.0, script.work_ms / 1000))):
            raise CancelledByRequest("told to")
        if self._random.random() < _BREAKS:
            raise EvaluationError("the check broke")
        if script.failing or script.verdict(job.gpu_type, secret=job.secret) is not Verdict.COMPILE_ERROR:
            return None
        result = found(job, script, nonce=nonce, score_s=self._random.uniform(1e-6, 1e-3))
        self._journal.write("refused", job, slot, nonce)
        return result

    def prepare(self, slots: Iterable[Slot]) -> None:
        """Nothing to prepare."""

    def try_out(self, slot: Slot, *, cancel: threading.Event) -> None:
        """The slot works."""

    @contextmanager
    def evaluate(
        self, job: Job, slot: Slot, *, cancel: threading.Event, on_progress: Callable[[Progress], None]
    ) -> Iterator[JobResult]:
        """Do as the job's script says."""
        script = Script.from_code(of_submission(job).code)
        nonce = uuid.uuid4().hex
        with self._on(slot, job, nonce):
            self._journal.write("begun", job, slot, nonce)
            on_progress(Progress(phase="test", done=0, total=1))
            if cancel.wait(script.work_ms / 1000):
                self._journal.write("stopped", job, slot, nonce)
                raise CancelledByRequest("told to")
            if job.failures < script.failing:
                self._journal.write("failed", job, slot, nonce)
                raise EvaluationError(f"as the script says: failure {job.failures + 1} of {script.failing}")
            on_progress(Progress(phase="test", done=1, total=1))
            result = found(job, script, nonce=nonce, score_s=self._random.uniform(1e-6, 1e-3))
            self._journal.write("found", job, slot, nonce)
            yield result
            if job.submission % 3 == 0:
                # As if its container were removed while its result is committed.
                cancel.wait(self._random.uniform(0.0, 0.1))

    @contextmanager
    def _on(self, slot: Slot, job: Job, nonce: str) -> Iterator[None]:
        """Hold a slot's devices; two runs at once on one are what the ledger must hear of."""
        devices = {device.uuid for device in slot.devices}
        with self._lock:
            doubled = not self._taken.isdisjoint(devices)
            self._taken |= devices
        if doubled:
            self._journal.write("doubled", job, slot, nonce)
        try:
            yield
        finally:
            with self._lock:
                self._taken -= devices


class NoEngine:
    """A container engine that always answers and never has anything."""

    def check(self) -> None:
        """Answer."""

    def reap(self) -> int:
        """Nothing is left over."""
        return 0


def main(path: str) -> int:
    """Run the daemon until SIGTERM."""
    _die_with_the_parent()
    spec = Spec.read(Path(path))
    config = Config(
        database_url=spec.database_url,
        direct_host=spec.direct_host,
        host_name=spec.name,
        state_dir=Path(spec.state_dir),
        lease_s=spec.lease_s,
        heartbeat_s=spec.heartbeat_s,
        poll_s=spec.poll_s,
        drain_timeout_s=spec.drain_timeout_s,
        max_run_s=60.0,
    )
    logs.configure("json", "info")
    control = ShutdownControl()

    def told() -> None:
        if control.stop.is_set():
            control.request_abort()
        control.request_stop()

    with only_daemon(config.state_dir), signals({signal.SIGTERM: told}):
        (config.state_dir / HEARS).write_text(str(os.getpid()))
        exit_reason = _daemon(spec, config).run(control)
    return 0 if exit_reason is ExitReason.CLEAN else 1


def _daemon(spec: Spec, config: Config) -> Daemon:
    """As `runner.daemon.serve` builds it, but for evaluator, engine and devices."""
    return Daemon(
        config,
        store_factory=lambda purpose: Store(
            spec.database_url,
            application_name=f"chaos {spec.name} {purpose}",
            writes=True,
            direct_host=spec.direct_host,
        ),
        evaluator=Evaluator(Journal(config.state_dir / "journal.jsonl")),
        engine=NoEngine(),
        check_database=lambda: require_schema(spec.database_url),
        registry=Registry.load(),
        slots=_slots(spec),
        spool=Spool(config.state_dir / "spool"),
        instance=instance_id(config.state_dir),
    )


def _slots(spec: Spec) -> tuple[Slot, ...]:
    return tuple(
        Slot(
            name=f"slot{number}",
            gpu_type=gpu_type,
            devices=tuple(
                Device(uuid=f"GPU-{spec.name}-{index}", name=gpu_type, vendor="none", index=index) for index in devices
            ),
            cpus=devices,
        )
        for number, (gpu_type, devices) in enumerate(spec.slots)
    )


def _die_with_the_parent() -> None:
    """Have the kernel kill this process when the test that started it is gone, however it went."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
