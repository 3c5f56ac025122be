"""Loads the shared fixtures; each lives in a plugin module of `tests/plugins`."""

import signal
from collections.abc import Iterator

import hypothesis
import pytest
import structlog

pytest_plugins = [
    "tests.plugins.engine",
    "tests.plugins.failures",
    "tests.plugins.images",
    "tests.plugins.judging",
    "tests.plugins.postgres",
    "tests.plugins.exclusive_tests",
    "tests.plugins.tiers",
]


# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_configure() -> None:
    """Let what the tests start hear an interrupt; a shell that runs them in its background has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _log_goes_nowhere_else() -> Iterator[None]:
    """A command that a test has run in this process has turned the log to a stream that is closed after the test."""
    yield
    structlog.reset_defaults()
