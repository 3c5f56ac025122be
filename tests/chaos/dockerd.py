"""A container engine of a test's own, to be restarted and killed while a daemon uses it; counts what it holds.

Its containers' cgroups lie below a parent of its own, so that they can be told from everybody else's. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from sandbox.errors import SandboxError
from sandbox.host.engine import DockerEngine

_START_S: Final = 60.0
_STOP_S: Final = 60.0


class Dockerd:
    """One dockerd with everything it owns in one directory. Use as a context manager."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        """`settings`: what its daemon.json says besides."""
        self.directory = Path(tempfile.mkdtemp(prefix="kernel-runner-dockerd-", dir="/var/tmp"))
        self.url = f"unix://{self.directory}/docker.sock"
        self._parent = f"/{self.directory.name}"
        # Containers of others must find their files.
        self.directory.chmod(0o755)
        told = {"cgroup-parent": self._parent, **(settings or {})}
        (self.directory / "daemon.json").write_text(json.dumps(told), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._was_killed = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for process in Path("/proc").glob("[0-9]*"):
            # Containers and what they were started with outlive an engine that was killed and not started again.
            with contextlib.suppress(OSError):
                if str(self.directory).encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        deadline = time.monotonic() + _STOP_S
        while (left := self._processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        # The storage driver binds its directory onto itself.
        for target in (*reversed(self.mounts()), str(self.directory / "data")):
            subprocess.run(["umount", target], check=False, capture_output=True, timeout=_STOP_S)
        for path in self._cgroups():
            with contextlib.suppress(OSError):
                path.rmdir()
        for parent in Path("/sys/fs/cgroup").glob(f"*{self._parent}"):
            with contextlib.suppress(OSError):
                parent.rmdir()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    f"--host={self.url}",
                    f"--data-root={self.directory / 'data'}",
                    f"--exec-root={self.directory / 'exec'}",
                    f"--pidfile={self.directory / 'pid'}",
                    f"--config-file={self.directory / 'daemon.json'}",
                    "--bridge=none",
                    "--iptables=false",
                    "--ip6tables=false",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_S
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"dockerd did not start: {(self.directory / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self, *, kill: bool = False) -> None:
        """Stop it as a service manager would, or kill it."""
        if self._process is None:
            return
        if kill:
            self._was_killed = True
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait(timeout=_STOP_S)
        self._process = None
        if kill:
            self._forget_containerd()

    def _forget_containerd(self) -> None:
        """The killed engine's containerd dies with it; an engine that starts before it was reaped would wait for it."""
        file = self.directory / "exec" / "containerd" / "containerd.pid"
        deadline = time.monotonic() + _STOP_S
        while file.exists() and _runs(file.read_text(encoding="ascii").strip()):
            assert time.monotonic() < deadline, "containerd outlives dockerd"
            time.sleep(0.05)
        file.unlink(missing_ok=True)

    def answers(self) -> bool:
        """Whether it takes calls."""
        engine = DockerEngine(self.url, owner="nobody", timeout_s=5)
        try:
            engine.check()
        except SandboxError:
            return False
        finally:
            engine.close()
        return True

    def containers(self) -> list[str]:
        """Every container it knows, running or not."""
        return self._listed("ps", "--all", "--quiet")

    def volumes(self) -> list[str]:
        """Every volume it knows."""
        return self._listed("volume", "ls", "--quiet")

    def cgroups(self) -> list[str]:
        """Cgroups of containers, in every hierarchy, but for those that the engine has lost."""
        lost = self.lost()
        return [str(path) for path in self._cgroups() if path.name not in lost]

    def processes(self) -> list[str]:
        """Processes that live in those cgroups, each with its name."""
        lost = self.lost()
        return [f"{pid} {_name(pid)}" for pid, container in self._processes().items() if container not in lost]

    def lost(self) -> set[str]:
        """Containers it was killed while starting, and does not know any more, though their cgroups are still there.

        No client of the engine can remove them, and nothing of the container's own runs in them: at most runc's first
        process, which waits for the order to go on.
        """
        if not self._was_killed:
            return set()
        known = set(self._listed("ps", "--all", "--quiet", "--no-trunc"))
        at_work = {container for pid, container in self._processes().items() if _name(pid) != "runc:[2:INIT]"}
        return {path.name for path in self._cgroups()} - known - at_work

    def _cgroups(self) -> list[Path]:
        return [path for path in Path("/sys/fs/cgroup").glob(f"*{self._parent}/*") if path.is_dir()]

    def _processes(self) -> dict[str, str]:
        """Processes in its containers' cgroups, and whose they are."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                _, parent, below = (process / "cgroup").read_text(encoding="utf-8").partition(f"{self._parent}/")
                if parent:
                    found[process.name] = below.splitlines()[0].partition("/")[0]
        return found

    def mounts(self) -> list[str]:
        """What is mounted below its directory, but for the storage driver's own directory."""
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        targets = [line.split()[4] for line in text.splitlines()]
        return [each for each in targets if each.startswith(f"{self.directory}/") and each != f"{self.directory}/data"]

    def _listed(self, *arguments: str) -> list[str]:
        done = subprocess.run(
            ["docker", "--host", self.url, *arguments], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.split()


def _name(pid: str) -> str:
    """What the kernel calls a process; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _runs(pid: str) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
