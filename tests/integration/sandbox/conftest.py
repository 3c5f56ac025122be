"""What the sandbox tests share: specs of small containers, and one-line runs in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.host.engine import ContainerReport, DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import binds, stage
from sandbox.protocol import PairRequest, Request, Step, StepResult, StepsRequest
from sandbox.spec import ACCOUNTS, Boot, Limits, Owner, SandboxSpec, Tmpfs
from tests.support.waiting import PATIENCE_S

MIB = 1 << 20
#: The uids of workers.
WORKERS = frozenset(both.worker for both in ACCOUNTS)

#: Prepended to a judge's program: `request()` reads the request, `say()` writes a frame.
JUDGE_PRELUDE = """
import json, os, socket, sys
sys.path.insert(0, '/kernel-runner')
from sandbox import protocol
decoder = protocol.Decoder()
def hear():
    while True:
        data = os.read(0, 65536)
        if not data:
            raise SystemExit('end of requests')
        for message in decoder.feed(data):
            return message
def request():
    return hear()['payload']
def say(kind, **fields):
    sys.stdout.buffer.write(protocol.encode({'type': kind, **fields}))
    sys.stdout.flush()
def step(name, text, judged=None):
    return say(**{**protocol.StepResult(name=name, command='judge', start_ns=0, duration_ns=0, exit_code=0,
               stdout=str(text)).to_message(), 'kind': 'step', 'judged': judged})
def line():
    return socket.socket(fileno=int(os.environ['KR_WORKER_FD']))
"""

#: Prepended to a worker's program, and to a rank checker's.
WORKER_PRELUDE = """
import os, socket, sys, time
line = socket.socket(fileno=int(os.environ.get('KR_JUDGE_FD') or os.environ['KR_RANK_CHECKER_FD']))
"""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Makes containers on this host and runs programs in them."""

    engine: DockerEngine
    template: SandboxSpec

    @property
    def python(self) -> str:
        """The interpreter inside."""
        return self.template.python

    def spec(self, boot: Boot | None = None, **limits: Any) -> SandboxSpec:  # noqa: ANN401 fields of Limits
        """A small container; `limits` replaces single limits."""
        return replace(self.template, boot=boot or Boot(kind="steps"), limits=replace(self.template.limits, **limits))

    def run(
        self,
        spec: SandboxSpec,
        request: Request,
        *,
        cancel: threading.Event | None = None,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> ContainerReport:
        """One container from start to removal."""
        with self.engine.start(spec) as container:
            return container.run(request, on_progress=on_progress, cancel=cancel or threading.Event())

    def steps(
        self,
        *steps: Step,
        files: Mapping[str, bytes] | None = None,
        **limits: Any,  # noqa: ANN401 fields of Limits
    ) -> ContainerReport:
        """Steps in a container of their own."""
        return self.run(self.spec(**limits), StepsRequest(files=files or {}, steps=steps))

    def program(
        self,
        source: str,
        *,
        timeout_s: float = PATIENCE_S,
        **limits: Any,  # noqa: ANN401 fields of Limits
    ) -> tuple[StepResult, ContainerReport]:
        """One Python program as the only step; it must have been reported."""
        report = self.steps(
            Step(name="test", argv=(self.python, "prog.py"), timeout_s=timeout_s),
            files={"prog.py": source.encode()},
            **limits,
        )
        assert report.ok, (report.message, report.outcome)
        (step,) = report.steps
        return step, report

    def pair_boot(self, judge: str, worker: str, rank_checker: str = "line.recv(1)") -> Boot:
        """Programs from source text, with their preludes; forks of a template, as a daemon starts them."""
        return Boot(
            kind="pair",
            judge=(self.python, "-I", "-c", JUDGE_PRELUDE + judge),
            worker=(self.python, "-I", "-c", WORKER_PRELUDE + worker),
            rank_checker=(self.python, "-I", "-c", WORKER_PRELUDE + rank_checker),
            preload="import json, socket",
        )

    def pair(
        self,
        judge: str,
        worker: str = "line.recv(1)",
        *,
        payload: Mapping[str, Any] | None = None,
        **limits: Any,  # noqa: ANN401 fields of Limits
    ) -> ContainerReport:
        """A pair in a container of its own."""
        return self.run(self.spec(self.pair_boot(judge, worker), **limits), PairRequest(payload=payload or {}))


@pytest.fixture(scope="session")
def workshop(docker_engine: DockerEngine, eval_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Containers with this host's root file system, 512 MiB and one core."""
    root = HostRoot(eval_python)
    staged = stage(tmp_path_factory.mktemp("stage"), {})
    template = SandboxSpec(
        image=docker_engine.ensure_host_root(root),
        python=root.python,
        boot=Boot(kind="steps"),
        # How fast a machine is decides nothing; what must end by a limit has one of its own.
        limits=Limits(wall_s=PATIENCE_S, memory_bytes=512 * MIB, pids=128, cpus=(0,)),
        binds=(*root.binds(), *binds(staged)),
        tmpfs=(
            Tmpfs(target="/work", size_bytes=128 * MIB, owner=Owner.WORKER),
            Tmpfs(target="/judge", size_bytes=16 * MIB, owner=Owner.JUDGE),
            Tmpfs(target="/tmp", size_bytes=128 * MIB, owner=Owner.ROOT, mode=0o1777),
        ),
    )
    return Workshop(engine=docker_engine, template=template)
