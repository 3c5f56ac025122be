"""Machines as files: a fake library in another process reads which devices there are, and what became of them since.

The file is JSON: `{"devices": [answers, …]}`. It is read again at every call: a test can change a device while a daemon
runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: A module that takes the library's place in a process: found first because its folder comes first.
_SHIM = """import sys
from tests.fakes.{library} import {name}
from tests.fakes.machine import devices_of
sys.modules[__name__] = {name}(lambda: devices_of({path!r}))
"""


def devices_of(path: str) -> list[dict[str, Any]]:
    """The answers of every device of a machine."""
    return list(json.loads(Path(path).read_text(encoding="utf-8"))["devices"])


class Machine:
    """A folder for `sys.path` with a fake NVML, and the devices it shows."""

    def __init__(self, folder: Path, *devices: dict[str, Any]) -> None:
        self.folder = folder
        self._file = folder / "machine.json"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pynvml.py").write_text(_SHIM.format(library="nvml", name="Nvml", path=str(self._file)), "utf-8")
        self.show(*devices)

    def show(self, *devices: dict[str, Any]) -> None:
        """Let these be the devices from now on."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps({"devices": devices}), encoding="utf-8")
        # In one step: the other process never reads half a file.
        fresh.replace(self._file)
