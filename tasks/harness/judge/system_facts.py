"""The machine that the evaluation ran on, as KernelBot's `system_info` keys."""

from __future__ import annotations

import platform
import socket
from pathlib import Path

import torch


def facts(device: str) -> dict[str, str | int]:
    """Name and number of devices, CPU model, runtime, platform, torch version and host name."""
    info: dict[str, str | int] = {
        "gpu": "CPU",
        "device_count": 0,
        "cpu": _cpu_model(),
        "runtime": "CPU",
        "platform": platform.platform(),
        "torch": torch.__version__,
        "hostname": socket.gethostname(),
    }
    if device != "cpu" and torch.cuda.is_available():
        info |= {
            "gpu": torch.cuda.get_device_name(0),
            "device_count": torch.cuda.device_count(),
            "runtime": "ROCm" if torch.version.hip else "CUDA",
        }
    return info


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or platform.machine()
