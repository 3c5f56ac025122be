"""The errors at the limits of the emulation."""

from __future__ import annotations


class EmulationError(RuntimeError):
    """An operation needs a real device."""


class NoDeviceCode(ImportError):
    """A library that compiles for devices was imported. Programs with a fallback go on without it."""


def needs_device(what: str) -> EmulationError:
    """The error for a function of torch that is not emulated."""
    return EmulationError(
        f"{what} needs a CUDA device; this one is emulated on the CPU, without device code (run it on a GPU type)"
    )
