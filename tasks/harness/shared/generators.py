"""The global generators of random numbers of a process: seeding them for a few microseconds each, and their states."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Mapping

import torch


def seed_all(seed: int) -> None:
    """Seed every global generator of this process."""
    seed_some(SEEDS, seed)


def seed_some(names: Iterable[str], seed: int) -> None:
    """Seed the global generators of these names."""
    for name in names:
        SEEDS[name](seed)


def states() -> dict[str, object]:
    """The state of each global generator that there is, comparable."""
    by_generator: dict[str, object] = {"python": random.getstate(), "torch": torch.get_rng_state().numpy().tobytes()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch lacks it
        by_generator["cuda"] = [state.cpu().numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        by_generator["numpy"] = repr(numpy.random.get_state())
    return by_generator


def _seed_torch(seed: int) -> None:
    # torch.manual_seed would record a stack trace for every device that is not initialised yet, each time.
    torch.default_generator.manual_seed(seed)


def _seed_cuda(seed: int) -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch lacks it
        torch.cuda.manual_seed_all(seed)


def _seed_numpy(seed: int) -> None:
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))


SEEDS: Mapping[str, Callable[[int], object]] = {
    "python": random.seed,
    "torch": _seed_torch,
    "cuda": _seed_cuda,
    "numpy": _seed_numpy,
}
