"""`kernel-runner serve`: builds the daemon from the configuration and turns signals into events.

Owns the process: one daemon per state directory, what SIGTERM and SIGINT mean, the exit code. Called by the command
line.
"""

from __future__ import annotations

import fcntl
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from runner import logs
from runner.config import Config, notify_socket
from runner.daemon.loop import Daemon
from runner.daemon.readiness import Readiness
from runner.devices import detect_slots
from runner.errors import ConfigError, DatabaseUnavailableError, EngineUnavailableError
from runner.evaluate import EvaluationSettings, Evaluator
from runner.gpus import Registry
from runner.store import Store
from runner.store.probe import probe
from sandbox.engine import DockerEngine
from sandbox.errors import SandboxError

_log = logs.get_logger(__name__)


class _DockerPort:
    """The engine with its errors in the daemon's words."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine

    def check(self) -> object:
        """Ask the engine what it is."""
        try:
            return self._engine.check()
        except SandboxError as error:
            raise EngineUnavailableError(str(error)) from error

    def reap(self) -> int:
        """Remove this host's leftover containers."""
        try:
            return self._engine.reap()
        except SandboxError as error:
            raise EngineUnavailableError(str(error)) from error


def serve(config: Config, stop: threading.Event | None = None) -> int:
    """Run the daemon until `stop` is set or SIGTERM or SIGINT arrives; returns the exit code.

    The first signal finishes the current runs; the second gives them back to the queue and stops at once.

    Raises:
        ConfigError: the configuration is wrong, or another daemon uses the same state directory.
    """
    logs.configure(config.log_format, config.log_level)
    dsn = config.require_database_url()
    eval_python = config.require_eval_python()
    registry = Registry.load(config.gpus_dir)
    slots = detect_slots(registry, config)
    stop, abort = stop or threading.Event(), threading.Event()
    with _only_daemon(config.state_dir), _signals(stop, abort):
        _log.info("starting", **config.public())
        # Two daemons on one engine must not reap each other's containers; the state directory tells them apart.
        engine = DockerEngine(config.docker_host, owner=f"{config.host_name}:{config.state_dir}")
        evaluator = Evaluator(
            engine,
            registry,
            EvaluationSettings(
                eval_python=eval_python,
                state_dir=config.state_dir,
                host_name=config.host_name,
                build_timeout_s=config.build_timeout_s,
                max_run_s=config.max_run_s,
                park_containers=config.park_containers,
            ),
        )
        try:
            return Daemon(
                config,
                store_factory=lambda purpose: Store(dsn, application_name=f"kernel-runner {purpose}"),
                evaluator=evaluator,
                engine=_DockerPort(engine),
                check_database=lambda: require_schema(dsn),
                registry=registry,
                slots=slots,
                readiness=Readiness(notify_socket()),
            ).run(stop, abort)
        finally:
            evaluator.close()
            engine.close()


def require_schema(dsn: str) -> None:
    """Find out whether the database can be served.

    Raises:
        DatabaseUnavailableError: it does not answer, or lacks our schema or a migration; says what to do.
    """
    facts = probe(dsn)
    if facts.pending:
        found = "has no schema 'runner'" if facts.version is None else f"is at migration {facts.version!r}"
        raise DatabaseUnavailableError(
            f"database {facts.database!r} {found}, expected {facts.pending[-1]!r}: run `kernel-runner migrate`"
        )
    if facts.newer:
        _log.warning("the database was migrated by a newer release; update this host", found=facts.version)
    if not facts.direct:
        _log.warning(
            "notifications do not arrive, so jobs are found by polling only: connect to PostgreSQL directly or through "
            "a pooler in session mode"
        )


@contextmanager
def _only_daemon(state_dir: Path) -> Iterator[None]:
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        lock = (state_dir / "daemon.lock").open("a", encoding="ascii")
    except OSError as error:
        raise ConfigError(
            f"state_dir={str(state_dir)!r} cannot be written ({error.strerror}); create it for the daemon's user, or "
            "name another (KERNEL_RUNNER_STATE_DIR)"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another daemon uses state_dir={str(state_dir)!r}; stop it, or give this one its own state_dir and "
                "host_name"
            ) from error
        yield


@contextmanager
def _signals(stop: threading.Event, abort: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`, then `abort`. Only a process's main thread can be told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def told(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            abort.set()
        stop.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
