"""`traces`, as an operator calls it."""

from __future__ import annotations

import pytest

from runner.extras.tracing import commands
from tests.integration.cli.conftest import Call
from tests.support.collector import collector


def test_it_sends_what_has_ended_and_ends(call: Call, database_url: str) -> None:
    """Nothing has."""
    with collector() as collected:
        said = call("traces", "--once", "--endpoint", collected.url, "--since", "2 hours ago", database=database_url)
    assert (said.code, said.err.strip()) == (0, "traces of 0 jobs were sent")


def test_bad_arguments_are_named(call: Call, database_url: str) -> None:
    """Endpoint and time."""
    said = call("traces", "--endpoint", "localhost:4318", database=database_url)
    assert said.code == 2
    assert "expected an address like http://localhost:4318" in said.err
    said = call("traces", "--endpoint", "http://localhost:4318", "--since", "noon", database=database_url)
    assert said.code == 2
    assert "--since" in said.err


def test_it_says_what_to_install(call: Call, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the SDK is not there."""
    monkeypatch.setattr(commands, "_NEEDED", ("opentelemetry.nothing_such",))
    said = call("traces", "--once", database=database_url)
    assert said.code == 2
    assert "install kernel-runner[otel]" in said.err
