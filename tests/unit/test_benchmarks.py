"""The command of the benchmarks, without running one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

from tests import benchmarks

_NAMES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.benchmarks.{name}")


@pytest.mark.parametrize("name", _NAMES)
def test_every_benchmark_runs_without_options(name: str) -> None:
    """`make bench` runs them all."""
    module = _module(name)
    inspect.signature(module.main).bind(*([module.PARTS] if hasattr(module, "PARTS") else []))
