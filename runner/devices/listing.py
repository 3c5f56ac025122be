"""The accelerators of this host, of all vendors. A library that fails affects neither the other one nor the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from runner.base.device_facts import Details, Reading, UnreachableError
from runner.base.model import Device
from runner.devices.vendors import SUPPORTED, Library, Support

T = TypeVar("T")

#: How long a vendor's library may take. Without persistence mode it starts every device first, seconds for each.
LIMIT_S: Final = 120.0


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The accelerators of this host, and the problems of the search, as sentences for the operator."""

    devices: tuple[Device, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Look:
    """A device with its settings and its state; None where it does not answer."""

    device: Device
    details: Details | None
    reading: Reading | None


def look_at_devices() -> tuple[tuple[Look, ...], tuple[str, ...]]:
    """Every accelerator with its settings and state, and the problems. Never raises."""
    return each_library(_looks)


def _looks(library: Library, problem: Callable[[str], None]) -> Iterator[Look]:
    for device in library.devices(problem):
        try:
            yield Look(device=device, details=library.details(device), reading=library.read(device))
        except UnreachableError as error:
            problem(f"{device.vendor} device {device.index} does not answer: {error}")
            yield Look(device=device, details=None, reading=None)


def list_devices() -> Listing:
    """Every accelerator that a vendor library reports. Never raises: what fails becomes a problem."""
    devices, problems = each_library(lambda library, problem: library.devices(problem))
    return Listing(devices=devices, problems=problems)


def each_library(
    ask: Callable[[Library, Callable[[str], None]], Iterable[T]],
) -> tuple[tuple[T, ...], tuple[str, ...]]:
    """The answers of every vendor's library, and the problems. Never raises."""
    answers: list[T] = []
    problems: list[str] = []
    for vendor, support in SUPPORTED.items():
        mine: list[T] = []
        sentences: list[str] = []
        thread = threading.Thread(
            target=_ask, args=(vendor, support, ask, mine, sentences), name=f"list-{vendor}", daemon=True
        )
        thread.start()
        thread.join(LIMIT_S)
        # A call of a driver that hangs cannot be ended; it may still add to the lists.
        answers += mine
        problems += sentences
        if thread.is_alive():
            problems.append(f"{vendor} devices cannot all be listed: the driver does not answer within {LIMIT_S:g} s")
    return tuple(answers), tuple(problems)


def _ask(
    vendor: str,
    support: Support,
    ask: Callable[[Library, Callable[[str], None]], Iterable[T]],
    answers: list[T],
    problems: list[str],
) -> None:
    # A vendor's library is foreign code around a driver. Its exceptions must not stop a host that can work without it,
    # and no type covers what the AMD bindings raise.
    try:
        library = support.open()
        if library is None:
            return
        try:
            answers.extend(ask(library, problems.append))
        finally:
            with suppress(Exception):
                library.close()
    except Exception as error:  # noqa: BLE001 - see above
        problems.append(f"{vendor} devices cannot be listed: {type(error).__name__}: {error}")
