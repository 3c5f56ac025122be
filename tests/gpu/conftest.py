"""Judges files side by side while tests wait for them, keeps a record, and prints the figures at the end.

Where KERNEL_RUNNER_GPU_RECORD names a file, it gets a line of JSON for every test that begins or ends. Tests that have
ended according to it do not run again.
"""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.gpu.bench import Machine, Trial, Verdict, lacking, try_out
from tests.gpu.layers import BEGUN, last_outcomes
from tests.gpu.recording import append, figures, read, taken

#: Processes of one trial: judge and worker, both busy importing torch at first.
_CORES_PER_TRIAL = 2
_audited: list[str] = []


@pytest.fixture(scope="session")
def machine() -> Machine:
    """This machine."""
    return Machine.here()


@pytest.fixture(scope="session")
def audited() -> list[str]:
    """Lines of figures about the audit, printed at the end."""
    return _audited


@pytest.fixture(scope="session")
def verdict(request: pytest.FixtureRequest, machine: Machine) -> Iterator[Callable[[Trial], Verdict]]:
    """What the judge says to a trial. All that were selected are made side by side, as many as there are cores for."""
    chosen: Mapping[str, Trial] = {
        str(trial): trial
        for item in request.session.items
        if isinstance(trial := getattr(getattr(item, "callspec", None), "params", {}).get("trial"), Trial)
        and lacking(trial, machine) is None
    }
    groups = core_groups(sorted(os.sched_getaffinity(0)))
    own: queue.SimpleQueue[Sequence[int]] = queue.SimpleQueue()
    for cores in groups:
        own.put(cores)
    # A judge takes the last core that it may use for itself. So each thread has cores of its own.
    pool = ThreadPoolExecutor(len(groups), initializer=lambda: os.sched_setaffinity(0, own.get()))
    futures: Mapping[str, Future[Verdict]] = {
        name: pool.submit(try_out, trial, machine) for name, trial in chosen.items()
    }
    try:
        yield lambda trial: futures[str(trial)].result()
    finally:
        # Nobody waits for them any more; those that run end by themselves.
        pool.shutdown(cancel_futures=True)


def core_groups(cores: Sequence[int]) -> Sequence[Sequence[int]]:
    """Cores for each of the trials that are made side by side."""
    count = max(1, len(cores) // _CORES_PER_TRIAL)
    return [cores[number * len(cores) // count : (number + 1) * len(cores) // count] for number in range(count)]


def _record() -> Path | None:
    named = os.environ.get("KERNEL_RUNNER_GPU_RECORD")
    return Path(named) if named else None


def _write(line: Mapping[str, Any]) -> None:
    path = _record()
    if path is not None:
        append(path, {"layer": os.environ.get("KERNEL_RUNNER_GPU_LAYER", ""), **line})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has ended in an earlier slice of time; what had not ended then comes last."""
    path = _record()
    if path is None:
        return
    before = last_outcomes(read(path))
    ended = [item for item in items if before.get(_name(item), BEGUN) != BEGUN]
    items[:] = sorted((item for item in items if item not in ended), key=lambda item: _name(item) in before)
    config.hook.pytest_deselected(items=ended)


def _name(item: pytest.Item) -> str:
    """The same from wherever pytest was started."""
    return f"tests/gpu/{item.path.name}::{item.nodeid.partition('::')[2]}"


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError("the test took longer than KERNEL_RUNNER_GPU_CASE_S allows")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Limit a test's time, so that one that hangs does not cost its layer's."""
    _write({"test": _name(item), "outcome": BEGUN})
    taken()
    figures()
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(int(os.environ.get("KERNEL_RUNNER_GPU_CASE_S", "0")))
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write how a test ended."""
    report = yield
    if call.when == "call" or report.outcome != "passed":
        said = "" if call.excinfo is None else str(call.excinfo.value)[-2000:]
        line = {"test": _name(item), "outcome": report.outcome, "seconds": round(call.duration, 3), "said": said}
        _write({**line, "evaluations": taken(), "figures": figures()})
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    if _audited:
        terminalreporter.section("the audit on this device")
        for line in _audited:
            terminalreporter.write_line(line)
