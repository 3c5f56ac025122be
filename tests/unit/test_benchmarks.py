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


def test_all_of_them_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, each once."""
    ran: list[str] = []
    for name in _NAMES:
        monkeypatch.setattr(_module(name), "main", lambda *_, name=name: ran.append(name))
    assert command.main([]) == 0
    assert ran == sorted(_NAMES)


def test_a_part_runs_alone_and_options_reach_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows the first option is the benchmark's."""
    seen: list[object] = []
    monkeypatch.setattr(_module("queue"), "main", seen.append)
    monkeypatch.setattr(_module("load"), "main", lambda options=(): seen.append(options))
    assert command.main(["queue.pickup", "queue.idle", "load"]) == 0
    assert command.main(["load", "--users", "10"]) == 0
    assert seen == [["pickup", "idle"], (), ["--users", "10"]]


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


def test_help_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts, too."""
    assert command.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*_NAMES, "queue.pickup", "sandbox.flood"))
