"""Judges files side by side while tests wait for them, and prints the table of times at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gpu.bench import Machine, Timed, Trial, Verdict, lacking, table, try_out

#: Processes of one trial: judge and worker, both busy importing torch at first.
_CORES_PER_TRIAL = 2
_timed: list[Timed] = []
_audited: list[str] = []


@pytest.fixture(scope="session")
def machine() -> Machine:
    """This machine."""
    return Machine.here()


@pytest.fixture(scope="session")
def timed() -> list[Timed]:
    """What the table at the end shows."""
    return _timed


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
    pool = ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // _CORES_PER_TRIAL))
    futures: Mapping[str, Future[Verdict]] = {
        name: pool.submit(try_out, trial, machine) for name, trial in chosen.items()
    }
    try:
        yield lambda trial: futures[str(trial)].result()
    finally:
        # Nobody waits for them any more; those that run end by themselves.
        pool.shutdown(cancel_futures=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the times, and write them to the file that KERNEL_RUNNER_GPU_TABLE names."""
    if _audited:
        terminalreporter.section("the audit on this device")
        for line in _audited:
            terminalreporter.write_line(line)
    if not _timed:
        return
    machine = Machine.here()
    lines = [f"{machine.count} x {machine.name}", *table(_timed)]
    terminalreporter.section("times on this device")
    for line in lines:
        terminalreporter.write_line(line)
    wanted = os.environ.get("KERNEL_RUNNER_GPU_TABLE")
    if wanted:
        Path(wanted).write_text("\n".join(lines) + "\n", encoding="utf-8")
