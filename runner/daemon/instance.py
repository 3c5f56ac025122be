"""The identity of a state directory on a machine: by it the database tells a daemon that came back from another one.

The file is copied with a machine's disk, and daemons of one name would take each other's jobs. So the id has the boot
as well: after a machine's crash, its daemon waits for its own name until that has been silent for a minute.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from runner.base.durable import write_whole
from runner.base.errors import ConfigError
from runner.base.logs import get_logger
from sandbox.host.process_identity import boot_id

_log = get_logger(__name__)


def instance_id(state_dir: Path) -> str:
    """The id in the directory's file `instance`, which is made when there is none, and that of the boot.

    Raises:
        ConfigError: the directory cannot be read or written.
    """
    path = state_dir / "instance"
    try:
        instance = _read(path)
        if instance is None:
            instance = str(uuid.uuid4())
            # Durable: a daemon with a new id has to wait for its own name.
            write_whole(path, instance)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; the daemon's user must be able to read and write it") from error
    return f"{instance} {boot_id()}"


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    try:
        return str(uuid.UUID(text))
    except ValueError:
        _log.warning("instance_id_replaced", path=str(path))
        return None
