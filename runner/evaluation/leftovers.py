"""Containers that could not be removed: the slot of each is out of use until it is gone, and no verdict changes."""

from __future__ import annotations

from runner.devices.quarantine import Quarantine
from sandbox.errors import Leftover, SandboxError


def remove(container: Leftover, slot: str, quarantine: Quarantine) -> None:
    """Remove a container of a slot."""
    try:
        container.close()
    except SandboxError as error:
        keep_out(slot, container, error, quarantine)


def keep_out(slot: str, container: Leftover | None, error: SandboxError, quarantine: Quarantine) -> None:
    """Keep a slot out of use until its container is gone, if one is left. The error says why."""
    if container is None:
        return

    def gone() -> bool:
        try:
            container.close()
        except SandboxError:
            # The first error was logged.
            return False
        return True

    quarantine.quarantine_container(slot, container.id, str(error), gone=gone)
