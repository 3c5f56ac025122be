"""The file of a new GPU type, drafted from what a driver says of a device. Pure; `gpu detect --write` writes it."""

from __future__ import annotations

import json
import re
from typing import Any

from runner.base.gpu_types.model import Vendor
from runner.base.model import Device

#: Of the first of them that compile for its own instructions only with an architecture-specific target.
_SPECIFIC_SINCE = 9


def draft(name: str, device: Device, *, architecture: str | None, memory_bytes: int | None) -> str:
    """The file's text. What the driver does not say is left to its author: `runner.base.gpu_types.advise` names it.

    Args:
        name: of the type.
        device: the device that it is drafted from.
        architecture: its compute capability or gfx target.
        memory_bytes: its memory.
    """
    # A name that many of AMD's devices have says nothing.
    generic = device.vendor == Vendor.AMD and not re.search(r"\bMI\d", device.name)
    keys: dict[str, Any] = {
        "name": name,
        "device_names": [] if generic else [_pattern(device.name)],
        "pci_ids": [device.pci_id] if generic and device.pci_id else None,
        "partition": None if device.partition is None else _pattern(device.partition),
        "vendor": device.vendor,
        "memory_gib": 32.0,
        "pids": 2048,
        "scratch_mib": 4096,
        "sample_every_s": 0.1,
    }
    if architecture and device.vendor == Vendor.NVIDIA:
        major, _, minor = architecture.partition(".")
        keys["nvcc_arch"] = f"{major}{minor}{'a' if int(major) >= _SPECIFIC_SINCE else ''}"
    if architecture and device.vendor == Vendor.AMD:
        keys["environment"] = {"PYTORCH_ROCM_ARCH": architecture}
    lines = [f"{key} = {_toml(value)}" for key, value in keys.items() if value is not None]
    if memory_bytes is not None:
        lines += ["", "[device]", f"memory_gib = {memory_bytes >> 30}", 'sources = { memory_gib = "the driver" }']
    return "\n".join([*lines, ""])


def _pattern(text: str) -> str:
    """A regular expression for exactly this text. `re.escape` would escape blanks and hyphens too, which need none."""
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text)


def _toml(value: Any) -> str:  # noqa: ANN401 - any value of a file
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    # A JSON string, number or truth value is a TOML one, but for DEL, which no driver says.
    return json.dumps(value, ensure_ascii=False)
