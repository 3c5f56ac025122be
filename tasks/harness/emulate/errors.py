"""What is said where the emulation ends."""

from __future__ import annotations


class EmulationError(RuntimeError):
    """Something was asked for that only a device can do."""


class NoDeviceCode(ImportError):
    """A library that compiles for devices was imported; whoever can do without it goes on without."""


def needs_device(what: str) -> EmulationError:
    """The error for a function of torch that is not emulated."""
    return EmulationError(
        f"{what} needs a CUDA device; this one is emulated on the CPU, without device code (run it on a GPU type)"
    )
