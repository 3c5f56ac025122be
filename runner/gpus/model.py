"""Record of one GPU type, as `runner/gpus/*.toml` and the operator's overlay describe it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Vendor(StrEnum):
    """Whose runtime a type needs."""

    #: No accelerator: the CPU type.
    NONE = "none"
    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True, kw_only=True)
class GpuType:
    """A registry entry."""

    name: str
    vendor: Vendor
    description: str = ""
    #: Other names frontends use for it.
    aliases: tuple[str, ...] = ()
    #: Devices per slot (8 for MI300x8).
    count: int = 1
    #: Regular expressions, any of which the whole device name must match (NVML name, amdsmi market name).
    device_names: tuple[str, ...] = ()
    #: Whether slots of this type are made for devices found at start-up; False: only where `slots` names the type.
    detect: bool = True
    #: nvcc's -gencode architecture, e.g. "90a"; None compiles for the device that is there (`-arch=native`).
    nvcc_arch: str | None = None
    #: "host" or an OCI image reference.
    image: str = "host"
    #: Interpreter inside an OCI image, with torch; where the Dockerfiles of sandbox/image put it. Unused with "host".
    image_python: str = "/opt/environment/bin/python"
    runtime: str = "runc"
    #: Added to every process in the container.
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_gib: float = 8.0
    pids: int = 512
    shm_mib: int = 64
    #: Size of each writable tmpfs.
    scratch_mib: int = 1024
