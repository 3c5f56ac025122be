"""What a reload of the configuration changes: at once, after the current runs, or not before a restart.

Owns the comparison of the running specification with the wanted one. `serve` builds a daemon from a `DaemonSpec`. A
reload makes another: it hands new values to the running parts, or asks for a new daemon after the current runs. A wrong
configuration changes nothing. One reload runs at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runner.base import logs
from runner.base.config import RELOAD, Config, Reload, Settings
from runner.base.errors import ConfigError
from runner.base.model import Slot
from runner.daemon.monitoring.readiness import Readiness
from runner.daemon.shutdown import ShutdownControl
from runner.devices import detect_slots
from runner.evaluation.container_spec import HOST_IMAGE
from runner.gpu_types import Registry
from sandbox.errors import RootFilesystemError
from sandbox.host.hostroot import HostRoot

_log = logs.get_logger(__name__)

#: Keys that determine the registry or the slots: those are compared instead.
_DERIVED = frozenset({"gpus_dir", "slots", "cpu_slots", "reserve_cpus"})


@dataclass(frozen=True, kw_only=True)
class DaemonSpec:
    """Everything a daemon is built from."""

    config: Config
    database_url: str = field(repr=False)
    eval_python: Path
    registry: Registry
    slots: tuple[Slot, ...]

    @classmethod
    def from_config(cls, config: Config) -> DaemonSpec:
        """Everything that can be found out before anything is started.

        Raises:
            ConfigError: the configuration is wrong, or does not fit this host.
        """
        registry = Registry.load(config.gpus_dir)
        database_url, eval_python = config.require_database_url(), config.require_eval_python()
        slots = detect_slots(registry, config)
        if any(registry.get(slot.gpu_type).image == HOST_IMAGE for slot in slots):
            try:
                HostRoot(eval_python=eval_python).binds()
            except RootFilesystemError as error:
                raise ConfigError(f"eval_python={str(eval_python)!r} cannot be used in containers: {error}") from error
        return cls(config=config, database_url=database_url, eval_python=eval_python, registry=registry, slots=slots)

    def parts_to_rebuild(self, other: DaemonSpec) -> list[str]:
        """Which differences to another specification need a new daemon; empty: none."""
        differing = [
            key
            for key, reload in RELOAD.items()
            if reload is Reload.AFTER_RUNS
            and key not in _DERIVED
            and getattr(self.config, key) != getattr(other.config, key)
        ]
        if self.registry.all() != other.registry.all():
            differing.append("GPU types")
        if self.slots != other.slots:
            differing.append("slots")
        return differing


class Reloader:
    """Reads the configuration again. Outlives the daemons that are built from its specifications."""

    def __init__(
        self, load: Callable[[], Config], first: DaemonSpec, *, control: ShutdownControl, readiness: Readiness
    ) -> None:
        self._load = load
        self._control = control
        self._readiness = readiness
        self._lock = threading.Lock()
        #: The specification of the running daemon, and the wanted one.
        self._built = self._wanted = first
        self.settings = Settings(first.config)
        self._apply: Callable[[Config], None] = lambda _config: None

    def begin(self) -> DaemonSpec:
        """The specification for the next daemon."""
        with self._lock:
            self._built = self._wanted
            self._apply = lambda _config: None
            self._control.request_rebuild(None)
            return self._built

    def on_change(self, apply: Callable[[Config], None]) -> None:
        """Pass every new configuration to the parts of the running daemon that do not read `settings` themselves."""
        with self._lock:
            self._apply = apply
            apply(self.settings.current)

    def reload(self) -> None:
        """Read the configuration and apply it, as far as that is possible at once."""
        with self._lock:
            self._readiness.reloading()
            # The service manager must hear the end of every reload, or it would wait and then kill the daemon.
            status = "the reload broke, see the log; the old configuration goes on"
            try:
                status = self._replace(DaemonSpec.from_config(self._fixed(self._load())))
            except ConfigError as error:
                _log.error("configuration_refused", error=str(error))
                status = f"configuration refused, the old one goes on: {error}"
            except Exception:  # noqa: BLE001 - the outermost frame of the reload's thread; logged
                _log.exception("reload_failed")
            finally:
                self._readiness.reloaded(status)

    def _replace(self, wanted: DaemonSpec) -> str:
        """Apply a specification; a sentence about it."""
        before = self.settings.current
        try:
            self._apply(wanted.config)
        except Exception:
            self._apply(before)
            raise
        self._wanted = wanted
        self.settings.replace(wanted.config)
        parts = self._built.parts_to_rebuild(wanted)
        _log.info("configuration_reloaded", changed=_changes(before, wanted.config), waits_for_runs=parts)
        self._control.request_rebuild(", ".join(parts) or None)
        waits = f"; {', '.join(parts)} after the current runs" if parts else ""
        return f"configuration reloaded{waits}"

    def _fixed(self, config: Config) -> Config:
        """The configuration, with the old values of keys that need a restart."""
        now = self.settings.current
        kept = {key: getattr(now, key) for key, reload in RELOAD.items() if reload is Reload.RESTART}
        for key, value in kept.items():
            if getattr(config, key) != value:
                _log.warning("restart_needed", key=key, found=str(getattr(config, key)), stays=str(value))
        return config.model_copy(update=kept)


def _changes(before: Config, after: Config) -> dict[str, str]:
    old, new = before.public(), after.public()
    return {key: f"{old[key]} -> {new[key]}" for key in new if getattr(before, key) != getattr(after, key)}
