"""Prints the core-seconds of each module: of the tests' process and of all below it, whatever else the machine does.

Loaded by `-p tests.plugins.cores`, without `-n`. A process counts with the children that it has waited for. So the
containers of an engine count where that engine is a descendant of `KERNEL_RUNNER_TEST_CORES_ROOT`, a process id.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_ROOT: Final = int(os.environ.get("KERNEL_RUNNER_TEST_CORES_ROOT", str(os.getpid())))
_used: defaultdict[str, float] = defaultdict(float)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure a test with the fixtures that are made and closed around it."""
    before = core_seconds(_ROOT)
    try:
        return (yield)
    finally:
        began = time.thread_time()
        after = core_seconds(_ROOT)
        looking = time.thread_time() - began
        _used[item.nodeid.partition("::")[0]] += max(0.0, after - before - looking)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was used, most first."""
    terminalreporter.section("core-seconds")
    for module, seconds in sorted(_used.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"{seconds:8.1f} {module}")


def core_seconds(root: int) -> float:
    """What a process and all below it have used so far."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            # It may end while it is read.
            with suppress(OSError):
                fields = (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(path.name))
                ticks[int(path.name)] = sum(int(field) for field in fields[11:15])
    waiting, found = [root], 0
    while waiting:
        pid = waiting.pop()
        found += ticks.get(pid, 0)
        waiting += children.get(pid, [])
    return found / _TICKS
