"""Tests side by side (`pytest -n`): one marked `alone` runs while no other does, and none that was found goes unrun.

Workers are processes; they share locked files. A worker holds the file `turn` while it runs a test: shared, or
exclusively where the test is marked. It passes through `queue` on the way, and keeps it while it waits, so that a test
which wants to be alone gets its turn soon. Without workers none of this does anything.

Of tests with judges outside of containers (fixture `processes`, mark `judging`) one runs at a time: a judge spins on
the last core and its worker on the others, so several would spend most of their time waiting for each other. The end of
a run prints how long workers waited for each lock; `tests.plugins.scheduling` keeps that short.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import pytest

from tests.plugins.scheduling import Scheduling, note_modules

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling as AnyScheduling

#: The fixture of forked judges and workers (`tests.plugins.judging`).
_JUDGES = "processes"
#: Entry of a worker's input, and of its output.
_INPUT = "kernel_runner_exclusive_tests"
#: Modules and folders that take longest; `--durations` of a whole run says which.
_LONGEST = (
    "tests/acceptance/test_verdicts.py",
    "tests/acceptance/escapes/",
    "tests/integration/systemd/",
    "tests/integration/extras/boards/test_tasks.py",
    "tests/acceptance/test_honest.py",
    "tests/acceptance/",
    "tests/chaos/",
    "tests/integration/extras/trainers/kernelbook/",
    "tests/integration/evaluation/",
    "tests/integration/cli/",
    "tests/integration/harness/",
    "tests/integration/sandbox/",
    "tests/integration/daemon/",
    "tests/integration/",
)


class _Node(Protocol):
    """A worker, as its parent sees it."""

    workerinput: dict[str, Any]
    workeroutput: dict[str, Any]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the modules for several workers: the longest first, then those that run alone, at last the others.

    A module is run by one worker, so a long one at the end would run while the other workers have nothing to do. A test
    that runs alone makes all workers wait for the longest test beside it; short ones are left for that time.
    """
    if hasattr(config, "workerinput"):
        alone = {item.path for item in items if item.get_closest_marker("alone") is not None}
        items.sort(key=lambda item: _place(item.nodeid, alone=item.path in alone))


def _place(nodeid: str, *, alone: bool) -> float:
    if alone:
        return len(_LONGEST) - 0.5
    return next((place for place, prefix in enumerate(_LONGEST) if nodeid.startswith(prefix)), len(_LONGEST))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark; take part if there are workers."""
    config.addinivalue_line("markers", "alone: measures or counts what other tests at the same time would disturb")
    config.addinivalue_line("markers", "judging: runs a judge outside of a container; one such test at a time")
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.pluginmanager.register(_ExclusiveTests(Path(worker[_INPUT])))
    elif config.getoption("numprocesses", None):
        config.pluginmanager.register(_Roll())


class _ExclusiveTests:
    """Runs the tests of one worker beside those of the others, and marked ones alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waited_s: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which modules have such tests, before the worker reports what it has found."""
        alone = [item for item in session.items if item.get_closest_marker("alone") is not None]
        note_modules(self._directory, judging=filter(_judges, session.items), alone=alone)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report how long this worker waited for each lock."""
        session.config.workeroutput[_INPUT] = dict(self._waited_s)  # type: ignore[attr-defined]  # set by xdist

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Wait for the turn of a test; the wait is no part of its time limit."""
        kind = fcntl.LOCK_SH if item.get_closest_marker("alone") is None else fcntl.LOCK_EX
        with ExitStack() as stack:
            # Before `turn`: a test that waits for another judge holds up no test that wants to be alone.
            if _judges(item):
                self._hold(stack, "judging", fcntl.LOCK_EX)
            queue = stack.enter_context((self._directory / "queue").open("w"))
            self._lock(queue, "queue", fcntl.LOCK_EX)
            self._hold(stack, "turn", kind)
            queue.close()
            return (yield)

    def _hold(self, stack: ExitStack, name: str, kind: int) -> None:
        """Lock a file until the stack is closed."""
        file = stack.enter_context((self._directory / name).open("w"))
        self._lock(file, name, kind)
        # Closing is not enough: a process that the test has forked may hold the file, too.
        stack.callback(fcntl.flock, file, fcntl.LOCK_UN)

    def _lock(self, file: IO[str], name: str, kind: int) -> None:
        began_s = time.monotonic()
        fcntl.flock(file, kind)
        self._waited_s[name] += time.monotonic() - began_s


def _judges(item: pytest.Item) -> bool:
    return _JUDGES in getattr(item, "fixturenames", ()) or item.get_closest_marker("judging") is not None


class _Roll:
    """Makes the directory of the locked files, hands out the modules, and calls the roll at the end."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="kernel-runner-exclusive-"))
        self._found: set[str] = set()
        self._run: set[str] = set()
        self._missing: set[str] = set()
        self._waited_s: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> AnyScheduling | None:
        """Ours in place of `loadscope`."""
        return Scheduling(config, log, self._directory) if config.getvalue("dist") == "loadscope" else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: _Node) -> None:
        """Note how long a worker has waited; one that died cannot say."""
        for name, seconds in getattr(node, "workeroutput", {}).get(_INPUT, {}).items():
            self._waited_s[name] += seconds

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: _Node) -> None:
        """Tell a worker where the locked files are."""
        node.workerinput[_INPUT] = str(self._directory)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note what a worker has found."""
        self._found.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what was run, or skipped."""
        self._run.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run that looks well although tests are missing."""
        if exitstatus == pytest.ExitCode.OK:
            self._missing = self._found - self._run
        if self._missing:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which, and how long all workers together waited for the locks."""
        waited = ", ".join(f"{name} {seconds:.0f}" for name, seconds in sorted(self._waited_s.items()))
        terminalreporter.write_line(f"seconds that workers waited for each other: {waited or 'unknown'}")
        for nodeid in sorted(self._missing):
            terminalreporter.write_line(f"NEVER RUN {nodeid}: its worker was given it and did not report it", red=True)

    def pytest_unconfigure(self) -> None:
        """Remove the locked files."""
        shutil.rmtree(self._directory, ignore_errors=True)
