"""The file of a new GPU type, drafted from a device that is there or from another type. Pure; `gpu add` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.gpu_types.model import Vendor

#: Of the first of them that compile for its own instructions only with an architecture-specific target.
_SPECIFIC_SINCE = 9


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a driver says of the device that a type is drafted from."""

    vendor: Vendor
    name: str
    pci_id: str | None = None
    partition: str | None = None
    #: Compute capability or gfx target.
    architecture: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What its author wants; None and empty: what follows from the device or the type it starts from."""

    name: str
    extends: str | None = None
    description: str | None = None
    aliases: tuple[str, ...] = ()
    count: int | None = None
    image: str | None = None
    detect: bool = True
    bandwidth_gb_s: float | None = None
    l2_mib: float | None = None
    peak_tflops: Mapping[str, float] = field(default_factory=dict)


def draft(wish: Wish, found: Found | None) -> str:
    """The file's text, with stated keys only. `runner.gpu_types.advise` names the missing ones."""
    keys: dict[str, Any] = {"extends": wish.extends, "name": wish.name}
    if found is not None:
        keys |= _recognised(found, extends=wish.extends)
    keys |= {
        "description": wish.description,
        "aliases": list(wish.aliases) or None,
        "count": wish.count,
        "image": wish.image,
        "detect": None if wish.detect else False,
    }
    memory = None if found is None or found.memory_bytes is None else found.memory_bytes >> 30
    figures = {
        "memory_gib": memory,
        "l2_mib": wish.l2_mib,
        "bandwidth_gb_s": wish.bandwidth_gb_s,
        "peak_tflops": dict(wish.peak_tflops) or None,
        "sources": {"memory_gib": "the driver"} if memory else None,
    }
    lines = [f"{key} = {_toml(value)}" for key, value in keys.items() if value is not None]
    stated = [f"{key} = {_toml(value)}" for key, value in figures.items() if value is not None]
    return "\n".join([*lines, *(["", "[device]", *stated] if stated else []), ""])


def _recognised(found: Found, *, extends: str | None) -> dict[str, Any]:
    """How such devices are known again, and, unless inherited, what their containers get."""
    generic = found.vendor is Vendor.AMD and not re.search(r"\bMI\d", found.name)
    keys: dict[str, Any] = {
        # A name that other devices have as well says nothing.
        "device_names": [] if generic else [_pattern(found.name)],
        "pci_ids": [found.pci_id] if generic and found.pci_id else None,
        "partition": None if found.partition is None else _pattern(found.partition),
    }
    if extends is None:
        keys |= {"vendor": found.vendor.value, "memory_gib": 32.0, "pids": 2048, "scratch_mib": 4096}
        if found.architecture and found.vendor is Vendor.NVIDIA:
            major, _, minor = found.architecture.partition(".")
            keys["nvcc_arch"] = f"{major}{minor}{'a' if int(major) >= _SPECIFIC_SINCE else ''}"
        if found.architecture and found.vendor is Vendor.AMD:
            keys["environment"] = {"PYTORCH_ROCM_ARCH": found.architecture}
    return keys


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
