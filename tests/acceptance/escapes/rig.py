"""Plays cases on slots of the real evaluator, with an honest job after each, and looks at what is left of them.

Several slots side by side, a container at a time on each. What a container has left is asked of the host: processes,
cgroups, mounts and files that name it.
"""

from __future__ import annotations

import itertools
import os
import queue
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from runner.base.config import Config
from runner.base.errors import EvaluationError
from runner.base.gpu_types import Registry
from runner.base.model import JobResult, Mode, Slot, SubmissionJob
from runner.evaluation.evaluate import Evaluator
from runner.task_format import load_folder
from sandbox.host.engine import Container, DockerEngine
from sandbox.spec import SandboxSpec
from tests.acceptance.escapes import relax
from tests.acceptance.escapes.case import JUDGE, PROGRAM, Case
from tests.plugins.live import ROOT
from tests.support.noise import again_if_noise
from tests.support.waiting import PATIENCE_S
from tests.unit import samples

FOLDERS: Final = {
    JUDGE: ROOT / "tasks" / "problems" / "vectoradd",
    PROGRAM: ROOT / "tests" / "fixtures" / "escapes_task",
}
#: Small enough that a bomb is through at once, large enough for torch twice.
GPU_TYPE: Final = """
extends = "CPU"
name = "CPU"
memory_gib = 1.0
scratch_mib = 256
shm_mib = 64
pids = 256
runtime = "{runtime}"
"""
#: A third of a millisecond: shorter than a time slice, so that the median does not see the neighbours.
HONEST: Final = b"""
def custom_kernel(data):
    for _ in range(10000):
        pass
    return data[0] + data[1]
"""
INTERNAL_ERROR: Final = "internal_error"
#: A slot that is still busy with somebody else's work is slower than this, however often one looks.
HARMED: Final = 5.0
_LOOKS: Final = 4


@dataclass(frozen=True, kw_only=True)
class Played:
    """What became of a case."""

    verdict: str
    error: str | None
    #: What was kept of the submission's output.
    output: str
    #: Processes, cgroups, mounts and files of its containers that are still there.
    left: tuple[str, ...]
    #: The honest job right after it; None after one whose defence was off.
    honest_verdict: str | None
    #: Its median over that of the honest jobs before any attempt; of several, if the first one was slow, the least.
    slowdown: float


class RecordingEngine(DockerEngine):
    """Remembers which containers a job had."""

    def __init__(self, base_url: str | None, *, owner: str) -> None:
        super().__init__(base_url, owner=owner)
        self.containers: dict[str, list[str]] = {}

    def start(self, spec: SandboxSpec, *, wait_for_cores: Callable[[], None] = lambda: None) -> Container:
        """See DockerEngine."""
        container = super().start(spec, wait_for_cores=wait_for_cores)
        self.containers.setdefault(spec.labels.get(relax.JOB_LABEL, ""), []).append(container.id)
        return container


class Bait:
    """Things of the host's that a submission would find if its walls were not there."""

    def __init__(self) -> None:
        self.name = f"kernel-runner-bait-{uuid.uuid4().hex[:8]}"
        self._abstract = socket.socket(socket.AF_UNIX)
        self._abstract.bind(f"\0{self.name}")
        self._abstract.listen(64)
        self._port = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._shared = Path("/dev/shm") / self.name
        self._shared.touch()
        made = subprocess.run(
            ["ipcmk", "--shmem", "4096", "--mode", "0666"], capture_output=True, text=True, check=True, timeout=10
        )
        self._identity = made.stdout.split()[-1]
        listed = subprocess.run(["ipcs", "--shmems"], capture_output=True, text=True, check=True, timeout=10)
        self._key = next(line.split()[0] for line in listed.stdout.splitlines() if f" {self._identity} " in line)

    def words(self) -> dict[str, str]:
        """What cases call it."""
        return {"BAIT": self.name, "BAIT_PORT": str(self._port.getsockname()[1]), "BAIT_KEY": self._key}

    def close(self) -> None:
        """Take it away."""
        self._abstract.close()
        self._port.close()
        self._shared.unlink()
        subprocess.run(["ipcrm", "--shmem-id", self._identity], check=True, timeout=10)


class Rig:
    """An evaluator with slots, a container each at a time. Use as a context manager."""

    def __init__(
        self,
        *,
        engine_url: str | None,
        eval_python: Path,
        runtime: str = "runc",
        slots: int = 4,
        first_core: int = 0,
        honest_before: int = 3,
    ) -> None:
        """`honest_before`: how many honest jobs say what is normal, for `Played.slowdown`."""
        self._honest_before = honest_before
        self._relaxed: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._pool = ThreadPoolExecutor(max_workers=slots)
        cores = sorted(os.sched_getaffinity(0))
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        self._slots = tuple(
            Slot(name=f"cpu{number}", gpu_type="CPU", devices=(), cpus=(cores[(first_core + number) % len(cores)],))
            for number in range(slots)
        )
        self._engine = RecordingEngine(engine_url, owner=f"escapes-{uuid.uuid4().hex[:12]}")
        self._eval_python = eval_python
        self._runtime = runtime
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            # Not below pytest's own directory, which is closed to others: the containers read the stage.
            state_dir = Path(tempfile.mkdtemp(prefix="kernel-runner-test-", dir="/var/tmp"))
            self._stack.callback(shutil.rmtree, state_dir, ignore_errors=True)
            state_dir.chmod(0o755)
            (state_dir / "CPU.toml").write_text(GPU_TYPE.format(runtime=self._runtime), encoding="utf-8")
            self._stack.callback(self._engine.close)
            self._stack.callback(self._engine.reap)
            self._evaluator = Evaluator(
                self._engine,
                Registry.load(state_dir),
                Config(
                    eval_python=self._eval_python,
                    state_dir=state_dir,
                    host_name="escapes",
                    build_timeout_s=60,
                    max_run_s=300,
                    warm_containers=0,
                    build_workers=0,
                ),
            )
            self._stack.callback(self._evaluator.close)
            # Facts for a result nobody reads: the probe would import torch, which takes gVisor a minute.
            self._evaluator._systems["CPU"] = {"hostname": "escapes"}
            bait = Bait()
            self._stack.callback(bait.close)
            self._stack.enter_context(relax.installed(self._relaxed))
            self._stack.callback(self._pool.shutdown, cancel_futures=True)
            self._words = {**bait.words(), "DOCKER_SOCKET": self._engine._socket_path, "SLOT_CORES": "1"}
            self._normal_ns = statistics.median([self._honest(self._slots[0])[1] for _ in range(self._honest_before)])
            for slot in self._slots:
                self._free.put(slot)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self, case: Case, board: str, *, relaxed: bool = False) -> Future[Played]:
        """Queue a case; relaxed: without the defence it names."""
        return self._pool.submit(self._play, case, board, relaxed)

    def _play(self, case: Case, board: str, relaxed: bool) -> Played:
        with self._slot() as slot:
            label = ""
            for _ in range(case.times):
                job = self._job(board, case.code(relaxed=relaxed, words=self._words), timeout_s=case.timeout_s)
                label = str(job.id)
                if relaxed and case.relax is not None:
                    self._relaxed[label] = case.relax
                verdict, error, output = self._run(job, slot)
            left = self._left(label)
            # Whoever gets through without a defence may well do harm.
            honest_verdict, median_ns = (None, self._normal_ns) if relaxed else self._honest_after(slot)
        return Played(
            verdict=verdict,
            error=error,
            output=output,
            left=left,
            honest_verdict=honest_verdict,
            slowdown=median_ns / self._normal_ns,
        )

    @contextmanager
    def _slot(self) -> Iterator[Slot]:
        slot = self._free.get()
        try:
            yield slot
        finally:
            self._free.put(slot)

    def _run(self, job: SubmissionJob, slot: Slot) -> tuple[str, str | None, str]:
        try:
            result = again_if_noise(lambda: self._evaluator.run(job, slot, cancel=threading.Event()))
        except EvaluationError as error:
            return INTERNAL_ERROR, str(error), ""
        return result.verdict.value, result.error, _output(result)

    def _honest_after(self, slot: Slot) -> tuple[str, float]:
        """As `_honest`; once more where it was slow: harm stays, what else this machine had to do does not."""
        verdict, median_ns = self._honest(slot)
        for _ in range(_LOOKS - 1):
            if verdict != "accepted" or median_ns < HARMED * self._normal_ns:
                break
            verdict, again_ns = self._honest(slot)
            median_ns = min(median_ns, again_ns)
        return verdict, median_ns

    def _honest(self, slot: Slot) -> tuple[str, float]:
        """Verdict and median, in nanoseconds, of an honest job on a slot."""
        job = replace(self._job(PROGRAM, HONEST, timeout_s=60), mode=Mode.BENCHMARK)
        try:
            result = again_if_noise(lambda: self._evaluator.run(job, slot, cancel=threading.Event()))
        except EvaluationError as error:
            return f"{INTERNAL_ERROR}: {error}", float("inf")
        median = result.runs[0].result.get("benchmark.0.median", "inf") if result.runs else "inf"
        return result.verdict.value, float(median)

    def _job(self, board: str, code: bytes, *, timeout_s: int) -> SubmissionJob:
        task = replace(load_folder(FOLDERS[board]).task, test_timeout_s=timeout_s, benchmark_timeout_s=timeout_s)
        number = next(self._numbers)
        return samples.job_on(task, code, id=number, submission_id=number, leaderboard=board, user_id="stranger")

    def _left(self, label: str) -> tuple[str, ...]:
        """What is left of a job's containers, once there was time for it to go."""
        ids = self._engine.containers.get(label, [])
        # A busy engine takes its time over the last ones.
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = tuple(trace for container_id in ids for trace in self._traces(container_id))
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def _traces(self, container_id: str) -> Iterator[str]:
        listed = self._engine._call(
            "list", lambda api: api.containers(all=True, quiet=True, filters={"id": container_id})
        )
        if listed:
            yield f"container {container_id[:12]}"
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if container_id in (process / "cgroup").read_text(encoding="utf-8"):
                    yield f"process {process.name} of container {container_id[:12]}"
        for pattern in ("*/docker/{}", "docker/{}", "system.slice/docker-{}.scope"):
            for path in Path("/sys/fs/cgroup").glob(pattern.format(container_id)):
                yield f"cgroup {path}"
        with suppress(OSError):
            if container_id in Path("/proc/self/mountinfo").read_text(encoding="utf-8"):
                yield f"mount of container {container_id[:12]}"
        root = self._engine._call("info", lambda api: api.info()).get("DockerRootDir", "")
        with suppress(PermissionError):
            if (Path(root) / "containers" / container_id).exists():
                yield f"files of container {container_id[:12]} below {root}"


def _output(result: JobResult) -> str:
    return "".join(f"{run.meta.get('stdout')}{run.meta.get('stderr')}" for run in result.runs)
