"""A host of its own for an installation: a container that boots systemd, with an engine and a PostgreSQL inside.

Nothing in it is a fake; what it lacks is a kernel of its own. Its evaluation environment and the packages are bound
from outside, because they are large.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.host.engine import DockerEngine
from tests.plugins.images import PYTHON, download
from tests.plugins.live import ROOT
from tests.support.waiting import PATIENCE_S, wait_until

#: Where the documentation has them, seen from a folder of the operator's.
EVALUATION = "/opt/torch"
FOLDER = "/srv"
PACKAGES = f"{FOLDER}/dist"
#: The engine inside leaves cgroups to systemd, as Docker does where cgroups are version 2. Nothing needs its network.
_DOCKER = '{"exec-opts": ["native.cgroupdriver=systemd"], "bridge": "none", "iptables": false, "ip6tables": false}\n'
#: Each look is a process on the machine.
_LOOK_S = 0.5


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test of all begins first, so that it is not the last to end."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a command on the machine ended."""

    code: int
    out: str
    err: str


class Machine:
    """A booted host; commands run as root."""

    def __init__(self, engine: DockerEngine, container: str) -> None:
        self._engine = engine
        self._container = container

    def ask(self, *argv: str, stdin: str | None = None, environment: Mapping[str, str] | None = None) -> Ran:
        """Run a command, whatever comes of it."""
        if stdin is not None:
            self.write("/run/test-stdin", stdin, mode=0o600)
            argv = ("sh", "-c", 'exec "$@" < /run/test-stdin', "sh", *argv)
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **(environment or {})}
        created = self._engine._call(
            "exec", lambda api: api.exec_create(self._container, list(argv), environment=dict(variables))
        )
        out, err = self._engine._call("exec", lambda api: _outputs(api, created["Id"]), timeout_s=2 * PATIENCE_S)
        code = self._engine._call("exec", lambda api: api.exec_inspect(created["Id"]))["ExitCode"]
        return Ran(code=code, out=out.decode(errors="replace"), err=err.decode(errors="replace"))

    def run(self, *argv: str, stdin: str | None = None, environment: Mapping[str, str] | None = None) -> str:
        """Run a command that works; its output."""
        ran = self.ask(*argv, stdin=stdin, environment=environment)
        assert ran.code == 0, f"{' '.join(argv)} ended with {ran.code}:\n{ran.out[-6000:]}{ran.err[-6000:]}"
        return ran.out

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Put a file there."""
        data, content = io.BytesIO(), text.encode()
        with tarfile.open(fileobj=data, mode="w") as tar:
            member = tarfile.TarInfo(Path(path).name)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
        if path.startswith("/run/"):
            # The engine writes below a memory file system, which hides it.
            self.run("sh", "-c", f"umask 077; printf %s {quoted(text)} > {path}")
            return
        folder = str(Path(path).parent)
        self._engine._call("put", lambda api: api.put_archive(self._container, folder, data.getvalue()))

    def sql(self, query: str) -> str:
        """What the database's administrator gets for a query: fields separated by |."""
        return self.run("runuser", "-u", "postgres", "--", "psql", "-XqAt", "-d", "kernelbot", "-c", query).strip()

    def show(self, *names: str) -> list[str]:
        """Properties of the service."""
        shown = self.run("systemctl", "show", "kernel-runner", *(f"--property={name}" for name in names))
        found = dict(line.split("=", 1) for line in shown.splitlines())
        return [found[name] for name in names]

    def journal(self) -> str:
        """What the service has said."""
        return self.run("journalctl", "--unit=kernel-runner", "--no-pager", "--output=cat")

    def until(self, what: str, question: Callable[[], bool]) -> None:
        """Wait for something."""
        wait_until(question, what, pause_s=_LOOK_S, explain=lambda: f"; the service said:\n{self.journal()[-6000:]}")


def _outputs(api: Any, exec_id: str) -> tuple[bytes, bytes]:  # noqa: ANN401 - parts of the SDK that have no types
    """Run a command that was created; its output and its errors.

    Not by the SDK's `exec_start`: that reads the connection's socket, and loses what came together with the headers.
    """
    url = api._url("/exec/{0}/start", exec_id)
    data = api._result(api._post_json(url, data={"Detach": False, "Tty": False}, stream=True), binary=True)
    streams = {1: bytearray(), 2: bytearray()}
    at = 0
    while at < len(data):
        stream, length = struct.unpack_from(">BxxxL", data, at)
        streams[stream] += data[at + 8 : at + 8 + length]
        at += 8 + length
    return bytes(streams[1]), bytes(streams[2])


def quoted(text: str) -> str:
    """A word for a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.fixture(scope="session")
def packages() -> Iterator[Path]:
    """What `make package` makes, with the dependencies' wheels from a folder that is kept for the next time.

    `make release` names its own, with the packages of the release before below `before/`.
    """
    if ready := os.environ.get("KERNEL_RUNNER_TEST_PACKAGES"):
        yield Path(ready)
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for name in ("discord", "gateway", "nvidia") for each in project["optional-dependencies"][name]]
    needed = [*project["dependencies"], *extras, "setuptools>=77"]
    wheels = download(f"daemon-{hashlib.sha256(repr(needed).encode()).hexdigest()[:12]}", *needed)
    with tempfile.TemporaryDirectory(prefix="kernel-runner-test-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = subprocess.run(
            [str(ROOT / ".ci" / "package"), str(folder / "dist")],
            env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PYTHONS": PYTHON},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        yield folder / "dist"


@pytest.fixture(scope="session")
def evaluation() -> Iterator[Path]:
    """An evaluation environment for the machine's Python: the packages of .venv-eval, as links to the same files."""
    packages = ROOT / ".venv-eval" / "lib" / f"python{PYTHON}" / "site-packages"
    if not (packages / "torch").is_dir():
        pytest.skip(f".venv-eval is not of Python {PYTHON}, as the machine is")
    with tempfile.TemporaryDirectory(prefix="kernel-runner-test-", dir="/var/tmp") as name:
        folder = Path(name) / "evaluation"

        def copy(source: str, target: str) -> str:
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)
            return target

        shutil.copytree(packages, folder / "lib" / f"python{PYTHON}" / "site-packages", copy_function=copy)
        Path(name).chmod(0o755)
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(f"/usr/bin/python{PYTHON}")
        (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {PYTHON}\n", encoding="utf-8")
        yield folder


@pytest.fixture
def machine(docker_engine: DockerEngine, debian_image: str, packages: Path, evaluation: Path) -> Iterator[Machine]:
    """A host that has booted: systemd as process 1, Docker and PostgreSQL running, no network but its own."""
    legacy = not Path("/sys/fs/cgroup/cgroup.controllers").exists()

    def create(api: object) -> str:
        config = api.create_host_config(  # type: ignore[attr-defined]  # an APIClient
            network_mode="none",
            binds=["/sys/fs/cgroup:/sys/fs/cgroup:rw", f"{packages}:{PACKAGES}:ro", f"{evaluation}:{EVALUATION}:ro"],
            cap_add=["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            tmpfs={"/run": "", "/tmp": "exec"},
        )
        # Mounts are shared on a real host, and credentials come by one. The namespace is unknown to the library. Under
        # version 1 one of its own would hide the hierarchy from systemd.
        config["CgroupnsMode"] = "host" if legacy else "private"
        config["Mounts"] = [{"Type": "volume", "Target": "/var/lib/docker"}]
        made = api.create_container(  # type: ignore[attr-defined]  # as above
            debian_image,
            ["sh", "-c", "mount --make-rshared / && exec /lib/systemd/systemd"],
            name=f"kernel-runner-test-machine-{uuid.uuid4().hex[:8]}",
            hostname="machine",
            environment={"container": "docker"},
            labels={"kernel-runner-test": "machine"},
            host_config=config,
        )
        return str(made["Id"])

    container = docker_engine._call("create", create)
    try:
        found = Machine(docker_engine, container)
        found.write("/etc/docker/daemon.json", _DOCKER)
        docker_engine._call("start", lambda api: api.start(container))
        states = ("running", "degraded")
        end_s = time.monotonic() + PATIENCE_S
        while (state := found.ask("systemctl", "is-system-running").out.strip()) not in states:
            assert time.monotonic() < end_s, f"systemd does not boot: {state}"
            time.sleep(_LOOK_S)
        assert state == "running", found.run("systemctl", "--failed")
        yield found
    finally:
        docker_engine._call("remove", lambda api: api.remove_container(container, v=True, force=True), timeout_s=60)
        # Some hierarchies are not systemd's, and the engine that made these is gone.
        for slice_ in Path("/sys/fs/cgroup").glob("*/kernelrunner.slice"):
            for left in (*slice_.glob("docker-*.scope"), slice_):
                with suppress(OSError):
                    left.rmdir()
