"""`kernel-runner serve`: builds the daemon from the configuration.

Owns the process: one daemon per state directory, the meaning of signals, the exit code.
"""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from runner.base import logs, metrics
from runner.base.config import Config
from runner.base.disk import DiskFloor
from runner.base.environment import notify_socket, watchdog_s
from runner.base.errors import ConfigError, DatabaseUnavailableError, EngineUnavailableError
from runner.base.gpu_types import Registry
from runner.base.model import Slot
from runner.daemon.instance import instance_id
from runner.daemon.loop import Daemon, ExitReason
from runner.daemon.monitoring.health import DaemonView, HealthReport
from runner.daemon.monitoring.http_endpoint import Endpoint
from runner.daemon.monitoring.queue_depth import QueueDepthCache
from runner.daemon.monitoring.readiness import Readiness
from runner.daemon.monitoring.watchdog import LONG_TASK_LIMIT_S, Watchdog
from runner.daemon.outcomes.spool import Spool
from runner.daemon.shutdown import ShutdownControl
from runner.daemon.signals import signals
from runner.devices import detect_slots
from runner.devices.quarantine import Quarantine
from runner.evaluation.container_spec import HOST_IMAGE, SLOT_LABEL
from runner.evaluation.evaluate import Evaluator
from runner.evaluation.leftovers import keep_out
from runner.store import QueueStore
from runner.store.probe import hidden_text, probe
from sandbox.errors import NotReaped, RootFilesystemError, SandboxError
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot

_log = logs.get_logger(__name__)


class _DockerAdapter:
    """The engine with its errors in the daemon's words."""

    def __init__(self, engine: DockerEngine, quarantine: Quarantine, slots: Collection[str]) -> None:
        self._engine = engine
        self._quarantine = quarantine
        self._slots = slots
        #: Where the engine keeps its data, once it has been asked.
        self.data_roots: Sequence[Path] = ()

    def check(self) -> object:
        """Ask the engine what it is."""
        try:
            facts = self._engine.check()
        except SandboxError as error:
            raise EngineUnavailableError(str(error)) from error
        self.data_roots = facts.data_roots
        return facts

    def reap(self) -> int:
        """Remove this host's leftover containers; one that will not go costs the slot it is on, and no other."""
        try:
            return self._engine.reap()
        except NotReaped as error:
            if any(labels.get(SLOT_LABEL) not in self._slots for _, labels in error.left):
                raise EngineUnavailableError(str(error)) from error
            for left, labels in error.left:
                keep_out(labels[SLOT_LABEL], left, error, self._quarantine)
            return 0
        except SandboxError as error:
            raise EngineUnavailableError(str(error)) from error


def serve(config: Config, control: ShutdownControl | None = None) -> int:
    """Run the daemon until it is told to stop; returns the exit code.

    The first SIGTERM, SIGINT or SIGHUP finishes the current runs; the second gives them back to the queue and stops at
    once.

    Raises:
        ConfigError: the configuration is wrong, or another daemon uses the same state directory.
    """
    logs.configure(config.log_format, config.log_level)
    registry = Registry.load(config.gpus_dir)
    slots = usable_slots(config, registry)
    control = control or ShutdownControl()
    readiness = Readiness(notify_socket())
    watchdog = Watchdog(readiness.tell if notify_socket() else None, watchdog_s=watchdog_s())
    health_report = HealthReport(readiness, watchdog)

    with (
        only_daemon(config.state_dir),
        signals(dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), control.hear_signal)),
        watchdog.running(),
        closing(Endpoint(health_report)) as endpoint,
    ):
        if config.http_address is not None:
            endpoint.listen(config.http_address)
        exit_reason = _serve(config, registry, slots, control, health_report)
    return 0 if exit_reason is ExitReason.CLEAN else 1


def usable_slots(config: Config, registry: Registry) -> tuple[Slot, ...]:
    """The slots of a daemon. What else it needs of this host is looked for as well, before anything is started.

    Raises:
        ConfigError: the configuration is wrong, or does not fit this host.
    """
    config.require_database_url()
    eval_python = config.require_eval_python()
    slots = detect_slots(registry, config, complete=False)
    if any(registry.get(slot.gpu_type).image == HOST_IMAGE for slot in slots):
        try:
            HostRoot(eval_python=eval_python).binds()
        except RootFilesystemError as error:
            raise ConfigError(f"eval_python={str(eval_python)!r} cannot be used in containers: {error}") from error
    return slots


def _serve(
    config: Config,
    registry: Registry,
    slots: Sequence[Slot],
    control: ShutdownControl,
    health_report: HealthReport,
) -> ExitReason:
    """The daemon, from its parts to its end."""
    instance = instance_id(config.state_dir)
    _log.info("starting", instance=instance, **config.public())
    watchdog, dsn = health_report.watchdog, config.require_database_url()
    engine = DockerEngine(config.docker_host, owner=daemon_owner(config))
    quarantine = Quarantine()
    evaluator = Evaluator(engine, registry, config, quarantine)
    port = _DockerAdapter(engine, quarantine, {slot.name for slot in slots})
    floor = DiskFloor(config, lambda: port.data_roots)
    spool = Spool(config.state_dir / "spool")

    def store(purpose: str) -> QueueStore:
        # The main thread's own tells the watchdog for what it waits.
        waiting = watchdog.expect if purpose == "claim" else None
        name = f"kernel-runner {purpose}"
        return QueueStore(dsn, application_name=name, writes=True, waiting=waiting, direct_host=config.direct_host)

    metrics.expect(
        {slot.gpu_type for slot in slots},
        [(slot, device) for slot in slots for device in slot.devices],
    )
    try:
        daemon = Daemon(
            config,
            store_factory=store,
            evaluator=evaluator,
            engine=port,
            check_database=lambda: require_schema(dsn, config.direct_host),
            registry=registry,
            slots=slots,
            spool=spool,
            instance=instance,
            readiness=health_report.readiness,
            quarantine=quarantine,
            check_disk=floor.check,
            watchdog=watchdog,
        )
        health_report.parts = DaemonView(
            host=config.host_name,
            snapshot=daemon.snapshot,
            spool=spool,
            disk_spaces=floor.disk_spaces,
            warm=lambda: evaluator.warm,
            build_workers=lambda: evaluator.builds,
            queue_depths=QueueDepthCache(store),
        )
        return daemon.run(control)
    finally:
        health_report.parts = None
        # Waiting containers are removed one by one.
        watchdog.expect(LONG_TASK_LIMIT_S)
        evaluator.close()
        engine.close()


def daemon_owner(config: Config) -> str:
    """The label of a daemon's containers and images.

    Two daemons on one engine must not reap each other's containers; the state directory tells them apart.
    """
    return f"{config.host_name}:{config.state_dir}"


def require_schema(dsn: str, direct_host: str | None = None) -> None:
    """Find out whether the database can be served.

    Raises:
        DatabaseUnavailableError: it does not answer, lacks our schema or a migration, or its sessions do not keep
            their settings; says what to do.
    """
    facts = probe(dsn, direct_host)
    if facts.misread:
        raise DatabaseUnavailableError(
            f"a session of database {facts.database!r} does not keep its settings ({'; '.join(facts.misread)}): set "
            "direct_host to the server itself"
        )
    if facts.hidden:
        raise DatabaseUnavailableError(f"database {facts.database!r}: {hidden_text(facts.hidden)}")
    if facts.pending:
        schema_text = "has no schema 'runner'" if facts.version is None else f"is at migration {facts.version!r}"
        raise DatabaseUnavailableError(
            f"database {facts.database!r} {schema_text}, expected {facts.pending[-1]!r}: run `kernel-runner migrate`"
        )
    if facts.newer:
        _log.warning("database_is_newer", found=facts.version, remedy="update this host")
    if not facts.direct:
        _log.warning(
            "notifications_do_not_arrive",
            effect="jobs are found by polling only",
            remedy="connect to PostgreSQL directly, or set direct_host",
        )


@contextmanager
def only_daemon(state_dir: Path) -> Iterator[None]:
    """Hold a state directory for this process.

    Raises:
        ConfigError: another daemon holds it, or it cannot be written.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        lock = (state_dir / "daemon.lock").open("a", encoding="ascii")
    except OSError as error:
        raise ConfigError(
            f"state_dir={str(state_dir)!r} cannot be written ({error.strerror}); create it for the daemon's user, "
            "let the service write there (ReadWritePaths= in a drop-in), or name another (KERNEL_RUNNER_STATE_DIR)"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"another daemon uses state_dir={str(state_dir)!r}; stop it, or give this one its own state_dir and "
                "host_name"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"state_dir={str(state_dir)!r} cannot be locked ({error.strerror}); name a directory on a local disk"
            ) from error
        yield
