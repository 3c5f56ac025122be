"""The questions of `gpu add` on a terminal, when nothing on the command line says what the type starts from.

Owns the conversation only: drafting, validating and writing are `runner.cli.gpu_add`'s, with flags or without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import typer

from runner.cli.app import note
from runner.devices import Look, described, types_of
from runner.errors import ConfigError, NotFoundError
from runner.gpu_types import Registry, Wish

T = TypeVar("T")
_NONE = "none"
#: What the files of GPU types take.
FIGURE: Final = "a number above 0 and below 1e9"


def on_terminal() -> bool:
    """Whether questions can be asked and answered."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(
    looks: Sequence[Look],
    registry: Registry,
    wish: Wish,
    before: Look | None,
    *,
    choose: Callable[[str], Look],
    peak: Callable[[str], tuple[str, float]],
) -> tuple[Wish, Look | None]:
    """What the type shall be, and the device that it starts from; earlier answers are offered again.

    Args:
        looks: the devices of this host.
        registry: the types that are known.
        wish: earlier answers, or what the command line says.
        before: the device that was chosen earlier.
        choose: finds a device by what is typed; raises ConfigError.
        peak: reads `DTYPE=TFLOPS`; raises ConfigError.

    Raises:
        typer.Abort: end of input, or Ctrl-C.
    """
    for each in looks:
        names = ", ".join(entry.name for entry in types_of(registry, each.device)) or "no GPU type yet"
        note(f"{each.device.index} = {described(each.device)}: {names}")
    if not looks:
        note("no device is here; start from a type of the registry (`kernel-runner gpu list --here`)")

    def start(text: str) -> tuple[Look | None, str | None]:
        try:
            return None, registry.get(text).name
        except NotFoundError as error:
            if not looks:
                raise ConfigError(str(error)) from error
            return choose(text), None

    only = looks[0] if len(looks) == 1 else None
    device = before or only
    first = wish.extends if device is None else device.device.uuid
    look, extends = _asked("start from a device (index, UUID, PCI address) or a GPU type", start, first)
    if look is not None:
        text = "take settings from a GPU type too"
        extends = _asked(text, lambda given: registry.get(given).name, wish.extends, optional=True)
    name = _asked("name", _plain, wish.name or None)
    described_as = _asked("description", str, wish.description, optional=True)
    aliases = _asked("aliases, by commas", _list, ", ".join(wish.aliases) or None, optional=True)
    count = _asked("devices per slot", _positive, None if wish.count is None else str(wish.count), optional=True)
    image = _asked("image: host, or an OCI image", str, wish.image, optional=True)
    bandwidth = _asked("memory bandwidth in GB/s", _figure, _shown(wish.bandwidth_gb_s), optional=True)
    l2 = _asked("L2 cache in MiB", _figure, _shown(wish.l2_mib), optional=True)
    stated = ", ".join(f"{dtype}={rate:g}" for dtype, rate in wish.peak_tflops.items())
    peaks = _asked(
        "dense rates in TFLOP/s, like fp16=989.4, fp8=1979",
        lambda text: _peaks(text, peak),
        stated or None,
        optional=True,
    )
    detect = confirmed("recognise its devices by themselves", default=wish.detect)
    asked = replace(
        wish,
        name=name or "",
        extends=extends,
        description=described_as,
        aliases=aliases or (),
        count=count,
        image=image,
        bandwidth_gb_s=bandwidth,
        l2_mib=l2,
        peak_tflops=peaks or {},
        detect=detect,
    )
    return asked, look


def _asked(text: str, read: Callable[[str], T], default: str | None, *, optional: bool = False) -> T:
    """An answer that can be read; asked again until it can. `none`, or nothing at all, is None where that may be."""
    shown = default if default is not None else (_NONE if optional else None)
    while True:
        given = _typed(text, shown)
        if optional and given in ("", _NONE):
            return None  # type: ignore[return-value]  # T is optional for callers that say so
        try:
            return read(given)
        except (ConfigError, NotFoundError) as error:
            note(str(error))


def confirmed(text: str, *, default: bool) -> bool:
    """A yes or no."""
    while True:
        given = _typed(f"{text} (yes or no)", "yes" if default else "no").lower()
        if given in ("y", "yes", "n", "no"):
            return given.startswith("y")


def _typed(text: str, default: str | None) -> str:
    """A line from the terminal; prompts of typer's own write blanks to stdout, which is for the file.

    Raises:
        typer.Abort: end of input.
    """
    typer.echo(f"{text}: " if default is None else f"{text} [{default}]: ", nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise typer.Abort
    return line.strip() or default or ""


def _plain(text: str) -> str:
    if not text or not all(letter.isalnum() or letter in "_.-" for letter in text):
        raise ConfigError(f"name is {text!r}, expected letters, digits, '_', '.' and '-'")
    return text


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"found {text!r}, expected a whole number from 1 on")
    return int(text)


def is_figure(value: float) -> bool:
    """Whether it is FIGURE."""
    return 0 < value < 1e9


def _figure(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not is_figure(found):
        raise ConfigError(f"found {text!r}, expected {FIGURE}, or {_NONE}")
    return found


def _peaks(text: str, read: Callable[[str], tuple[str, float]]) -> Mapping[str, float]:
    return dict(read(part) for part in _list(text))


def _shown(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"
