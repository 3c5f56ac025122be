"""The command of the benchmarks, without running one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

from tests import benchmarks
from tests.benchmarks import __main__ as command

_NAMES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"tests.benchmarks.{name}")


@pytest.mark.parametrize("name", _NAMES)
def test_every_benchmark_runs_without_options(name: str) -> None:
    """`make bench` runs them all."""
    module = _module(name)
    inspect.signature(module.main).bind(*([module.PARTS] if hasattr(module, "PARTS") else []))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], "no such benchmark: nope; there are accuracy, build,"),
        (["queue.nope"], "no such benchmark: queue.nope; there are"),
        (["forging", "--examples", "3"], "forging takes no options"),
        (["queue", "--help"], "queue takes no options"),
    ],
)
def test_what_cannot_be_asked_for(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says why; nothing runs."""
    assert command.main(arguments) == 2
    out, error = capsys.readouterr()
    assert (out, says in error) == ("", True)
