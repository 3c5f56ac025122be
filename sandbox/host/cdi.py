"""The Container Device Interface (CDI): which devices an engine can give by name, and with which nodes. Only reads.

A vendor's toolkit writes specs, and the engine edits containers by them (cncf-tags/container-device-interface).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

#: From this version of Docker's API on, `info` lists the devices that were found.
_LISTS_DEVICES: Final = (1, 50)


def offered(info: Mapping[str, Any], api_version: str) -> dict[str, tuple[str, ...]]:
    """The devices that an engine can give: full name, e.g. `nvidia.com/gpu=0` -> the nodes inside of a container.

    An engine that names directories of specs only supports CDI: the directories may be empty, and no device has a name
    then. So its list of devices counts, or the specs themselves where it is older than that list. A device without
    nodes: this process cannot read its spec.
    """
    nodes = dict(_devices(info.get("CDISpecDirs") or ()))
    if tuple(int(part) for part in api_version.split(".") if part.isdecimal()) < _LISTS_DEVICES:
        return nodes
    listed = (device for device in info.get("DiscoveredDevices") or () if device.get("Source") == "cdi")
    return {name: nodes.get(name, ()) for name in (str(device.get("ID")) for device in listed)}


def _devices(directories: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and nodes of each device, with those that its spec adds for every device. Later directories count more."""
    for directory in directories:
        for path in sorted(Path(directory).glob("*")):
            if path.suffix not in (".json", ".yaml", ".yml"):
                continue
            # This process cannot check a file that it cannot read or parse: then the device is not requested by CDI.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
                spec = yaml.safe_load(path.read_text(encoding="utf-8"))
                common = _nodes(spec)
                yield from [
                    (f"{spec['kind']}={device['name']}", tuple(dict.fromkeys((*_nodes(device), *common))))
                    for device in spec["devices"]
                ]


def _nodes(place: Mapping[str, Any]) -> tuple[str, ...]:
    edits = place.get("containerEdits") or {}
    return tuple(str(node["path"]) for node in edits.get("deviceNodes") or ())
