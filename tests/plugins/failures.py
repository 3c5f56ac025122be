"""Names a failed test when it fails, with the load of the machine: an interrupted run still says what failed.

At the end it prints the modules that took longest, in seconds of all their tests with set-up and teardown.
"""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

_NAME = "failures"
_MAX_MESSAGE = 200
#: Modules that are printed, and the least seconds for it.
_SLOWEST, _LEAST_S = 30, 10.0


class Failures:
    """Writes a line per failure to the terminal of the process that collects the results."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for set-up, call and teardown of each test."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(getattr(crash, "message", report.longrepr)).strip().partition("\n")[0][:_MAX_MESSAGE]
        when = f"{report.when}, {report.duration:.1f} s, load {os.getloadavg()[0]:.1f}"
        self._reporter.write(f"\nFAILED {report.nodeid} ({when}): {said}\n", flush=True)

    def pytest_terminal_summary(self) -> None:
        """Print the slowest modules."""
        by_time = sorted(self._seconds.items(), key=lambda item: -item[1])
        slow = [(module, seconds) for module, seconds in by_time[:_SLOWEST] if seconds >= _LEAST_S]
        if slow:
            self._reporter.section("seconds of the slowest modules")
        for module, seconds in slow:
            self._reporter.write_line(f"{seconds:7.1f} {module}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register it where there is a terminal: not in the processes that only run tests."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(reporter), _NAME)
