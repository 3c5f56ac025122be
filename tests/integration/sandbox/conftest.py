"""What the sandbox tests share: specs of small containers, and one-line runs in them."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.host.build_archive import BuildArchive
from sandbox.host.engine import Container, ContainerReport, DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import binds, stage
from sandbox.policy.hostconfig import LABEL_OWNER
from sandbox.protocol import PairRequest, Request, Step, StepResult, StepsRequest
from sandbox.spec import ACCOUNTS, Boot, Limits, Owner, SandboxSpec, Tmpfs
from tests.integration.sandbox.engine_proxy import EngineProxy
from tests.support.waiting import PATIENCE_S

MIB = 1 << 20
#: The uids of workers.
WORKERS = frozenset(both.worker for both in ACCOUNTS)

#: Done at once; and longer than any test.
QUICK = StepsRequest(files={}, steps=(Step(name="test", argv=("/bin/true",)),))
SLEEP = StepsRequest(files={}, steps=(Step(name="test", argv=("/bin/sleep", "1000"), timeout_s=1000),))

#: Prepended to every program of a pair: `open_descriptors()` says what each descriptor is.
_PRELUDE = """
import json, os, socket, sys, time
def open_descriptors():
    found = []
    for fd in range(256):
        try:
            found.append(os.readlink(f'/proc/self/fd/{fd}').split(':')[0])
        except FileNotFoundError:
            pass
    return found
"""
#: Prepended to a judge's program: `request()` reads the request, `say()` writes a frame, `next_line()` takes the socket
#: of a further process.
_JUDGE_PRELUDE = """
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
further = socket.socket(fileno=int(os.environ['KR_RANKS_FD']))
def next_line():
    return socket.socket(fileno=socket.recv_fds(further, 1, 1)[1][0])
def next_worker():
    say('spawn', role='candidate')
    return next_line()
"""

#: Prepended to a worker's program, and to a rank checker's.
_WORKER_PRELUDE = """
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
        archive: BuildArchive | None = None,
        into: BuildArchive | None = None,
    ) -> ContainerReport:
        """One container from start to removal, with a build archive for it or from it."""
        with self.engine.start(spec) as container:
            return converse(container, request, cancel=cancel, on_progress=on_progress, archive=archive, into=into)

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
        **limits: Any,  # noqa: ANN401 fields of Limits
    ) -> tuple[StepResult, ContainerReport]:
        """One Python program as the only step; it must have been reported."""
        report = self.steps(
            Step(name="test", argv=(self.python, "prog.py"), timeout_s=PATIENCE_S),
            files={"prog.py": source.encode()},
            **limits,
        )
        assert report.ok, (report.message, report.outcome)
        (step,) = report.steps
        return step, report

    def pair_boot(self, judge: str, worker: str, rank_checker: str = "line.recv(1)", **changes: str) -> Boot:
        """Programs from source text, with their preludes; forks of a template, as a daemon starts them."""

        def program(prelude: str, source: str) -> tuple[str, ...]:
            return self.python, "-I", "-c", _PRELUDE + prelude + source

        boot = Boot(
            kind="pair",
            judge=program(_JUDGE_PRELUDE, judge),
            worker=program(_WORKER_PRELUDE, worker),
            rank_checker=program(_WORKER_PRELUDE, rank_checker),
            preload="import json, socket",
        )
        return replace(boot, **changes)  # type: ignore[arg-type]  # of texts only

    def pair(
        self,
        judge: str,
        worker: str = "line.recv(1)",
        rank_checker: str = "line.recv(1)",
        *,
        boot: Mapping[str, str] | None = None,
        **request: Any,  # noqa: ANN401 fields of PairRequest
    ) -> ContainerReport:
        """A pair in a container of its own; `boot` replaces texts of its Boot."""
        spec = self.spec(self.pair_boot(judge, worker, rank_checker, **(boot or {})))
        return self.run(spec, PairRequest(**{"payload": {}, **request}))

    def said(self, *programs: str, **settings: Any) -> Any:  # noqa: ANN401 see `pair`, and whatever JSON holds
        """The JSON that the judge of such a pair gave as its step's output."""
        report = self.pair(*programs, **settings)
        assert report.ok, (report.message, report.outcome)
        return json.loads(report.steps[0].stdout)

    @contextmanager
    def imported(self, archive: bytes, *changes: str) -> Iterator[str]:
        """An image of its own, by its reference."""
        repository, tag = "kernel-runner/test", uuid.uuid4().hex
        with self.engine._client(60) as api:
            api.import_image_from_data(archive, repository=repository, tag=tag, changes=list(changes))
        try:
            yield f"{repository}:{tag}"
        finally:
            with self.engine._client(60) as api:
                api.remove_image(f"{repository}:{tag}")

    @contextmanager
    def proxied(self, *, owner: str | None = None, **hooks: Any) -> Iterator[tuple[EngineProxy, DockerEngine]]:  # noqa: ANN401 of EngineProxy
        """The engine behind a proxy, for an owner of its own unless one is named."""
        proxy = EngineProxy(self.engine.base_url, **hooks)
        engine = DockerEngine(proxy.url, owner=owner or new_owner())
        try:
            yield proxy, engine
        finally:
            engine.close()
            proxy.close()


def new_owner() -> str:
    """An owner label that no other engine has."""
    return f"tests-{uuid.uuid4().hex[:12]}"


def containers(engine: DockerEngine, owner: str) -> dict[str, dict[str, Any]]:
    """What the engine has with this owner's label, by id."""
    with engine._client(60) as api:
        listed = api.containers(all=True, filters={"label": f"{LABEL_OWNER}={owner}"})
    return {container["Id"]: container for container in listed}


def converse(
    container: Container,
    request: Request,
    *,
    cancel: threading.Event | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
    archive: BuildArchive | None = None,
    into: BuildArchive | None = None,
) -> ContainerReport:
    """One request to a container."""
    return container.run(
        replace(request, archive_bytes=0 if archive is None else archive.size_bytes),
        on_progress=on_progress,
        cancel=cancel or threading.Event(),
        archive=archive,
        receive=into,
    )


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
