"""The engine itself is killed and started again, in the middle of a run: an engine of the test's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.parking import remove
from runner.quarantine import Quarantine
from sandbox.engine import DockerEngine
from sandbox.errors import SandboxError
from sandbox.hostroot import HostRoot
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Ending
from tests.integration.sandbox.conftest import Workshop
from tests.integration.sandbox.test_crashes import _containers

PATIENCE_S = 60.0


class OwnEngine:
    """A dockerd in a directory of its own, to be killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = f"unix://{directory}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        # One that was killed leaves its pid files, its containerd's too, which dies with it. Where nobody collects
        # orphans, their numbers look alive.
        for left in ("pid", "exec/containerd/containerd.pid"):
            (self.directory / left).unlink(missing_ok=True)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    f"--host={self.url}",
                    f"--data-root={self.directory / 'data'}",
                    f"--exec-root={self.directory / 'exec'}",
                    f"--pidfile={self.directory / 'pid'}",
                    "--bridge=none",
                    "--iptables=false",
                    "--ip6tables=false",
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        engine = DockerEngine(self.url, owner="test", timeout_s=5)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                engine.check()
                break
            except SandboxError:
                assert time.monotonic() < deadline, (self.directory / "log").read_text(encoding="utf-8")[-2000:]
                time.sleep(0.1)
        engine.close()

    def end(self, how: signal.Signals) -> None:
        """Send it a signal and wait for its end."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(PATIENCE_S)

    def remove(self) -> None:
        """End it, with what it may have left running and mounted."""
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGTERM)
        for process in Path("/proc").glob("[0-9]*"):
            # What the containers were started with stays when the engine is killed.
            with contextlib.suppress(OSError):
                if str(self.directory).encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        for line in reversed(Path("/proc/mounts").read_text(encoding="utf-8").splitlines()):
            if line.split()[1].startswith(str(self.directory)):
                subprocess.run(["umount", line.split()[1]], check=False, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def own_engine() -> Iterator[OwnEngine]:
    """A running engine that nobody else uses."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("starting an engine needs root and dockerd")
    made = OwnEngine(Path(tempfile.mkdtemp(dir="/var/tmp", prefix="kernel-runner-test-")))
    try:
        made.start()
        yield made
    finally:
        made.remove()


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_engine_that_dies_costs_a_retry_and_no_restart(
    own_engine: OwnEngine, workshop: Workshop, eval_python: Path
) -> None:
    """Killed, and stopped in order, in the middle of a run: no verdict, the slot is out until the engine is back.

    Afterwards the same object starts boxes again, and what the dead engine left is gone.
    """
    engine = DockerEngine(own_engine.url, owner="tests-restart")
    spec = replace(workshop.spec(), image=engine.ensure_host_root(HostRoot(eval_python)))
    sleep = StepsRequest(files={}, steps=(Step(name="test", argv=("/bin/sleep", "100"), timeout_s=100),))
    quick = StepsRequest(files={}, steps=(Step(name="test", argv=("/bin/true",)),))
    quarantine = Quarantine(retry_s=0.2)
    for how in (signal.SIGKILL, signal.SIGTERM):
        parked = engine.start(spec)
        box = engine.start(spec)
        report = box.run(
            sleep,
            on_progress=lambda *_, how=how: own_engine.end(how),
            cancel=threading.Event(),
        )
        assert report.outcome.ending is Ending.DIED
        assert report.ok is None
        for each in (box, parked):
            remove(each, "cpu0", quarantine)
        assert set(quarantine.reasons()) == {"cpu0"}
        own_engine.start()
        _eventually(lambda: not quarantine.reasons())
        with engine.start(spec) as box:
            assert box.run(quick, on_progress=None, cancel=threading.Event()).ok
        engine.reap()
        assert _containers(engine, "tests-restart") == []
    quarantine.close()
    engine.close()
