"""Names a failed test when it fails, with the load of the machine: an interrupted run still says what failed."""

from __future__ import annotations

import os

import pytest

_NAME = "failures"
_MAX_MESSAGE = 200


class Failures:
    """Writes a line per failure to the terminal of the process that collects the results."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for set-up, call and teardown of each test."""
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(getattr(crash, "message", report.longrepr)).strip().partition("\n")[0][:_MAX_MESSAGE]
        when = f"{report.when}, {report.duration:.1f} s, load {os.getloadavg()[0]:.1f}"
        self._reporter.write(f"\nFAILED {report.nodeid} ({when}): {said}\n", flush=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register it where there is a terminal: not in the processes that only run tests."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(reporter), _NAME)
