"""Everything a daemon is built from, found out before anything is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from runner.base.config import Config
from runner.base.errors import ConfigError
from runner.base.gpu_types import Registry
from runner.base.model import Slot
from runner.devices import detect_slots
from runner.evaluation.container_spec import HOST_IMAGE
from sandbox.errors import RootFilesystemError
from sandbox.host.hostroot import HostRoot


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
