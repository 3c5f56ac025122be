"""Readiness: said once per state, to the log and to the service manager."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from runner.base.errors import (
    DatabaseUnavailableError,
    EngineUnavailableError,
    EvaluationError,
    HostNameTakenError,
    InfrastructureError,
)
from runner.daemon.monitoring.readiness import DATABASE, ENGINE, EVALUATION, HOST_NAME, Readiness, missing
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A service manager's socket: its address and its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(PATIENCE_S)
        yield str(tmp_path / "notify"), end


def test_the_service_manager_hears_every_change(manager: tuple[str, socket.socket]) -> None:
    """READY only the first time it works, STATUS always on one line, STOPPING at the end."""
    address, end = manager
    readiness = Readiness(address)
    readiness.not_ready("the database", reason="connection\nrefused")
    assert end.recv(4096) == b"STATUS=not ready: waiting for the database: connection refused"
    readiness.working("serving 1 x CPU")
    assert end.recv(4096) == b"READY=1\nSTATUS=serving 1 x CPU"
    # A path may be no UTF-8.
    readiness.not_ready("the database", reason="gone \udcff")
    assert end.recv(4096) == b"STATUS=not ready: waiting for the database: gone \\udcff"
    readiness.working("serving 1 x CPU")
    assert end.recv(4096) == b"STATUS=serving 1 x CPU"
    readiness.stopping("nothing is running")
    assert end.recv(4096) == b"STOPPING=1\nSTATUS=nothing is running"


def test_a_pause_is_no_failure(manager: tuple[str, socket.socket]) -> None:
    """A host that starts drained is up: `systemctl start` returns. A pause is said once per reason."""
    address, end = manager
    readiness = Readiness(address)
    with capture_logs() as logs:
        for _ in range(3):
            readiness.paused("draining: a loud fan")
        assert (readiness.ready.is_set(), readiness.waiting_for) == (False, "draining: a loud fan")
        readiness.paused("draining: no fan")
        readiness.working("serving 1 x CPU")
    assert [line.get("reason") for line in logs] == ["draining: a loud fan", "draining: no fan", None]
    assert [end.recv(4096) for _ in range(3)] == [
        b"READY=1\nSTATUS=draining: a loud fan",
        b"STATUS=draining: no fan",
        b"STATUS=serving 1 x CPU",
    ]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (DatabaseUnavailableError("x"), DATABASE),
        (EngineUnavailableError("x"), ENGINE),
        (HostNameTakenError("x"), HOST_NAME),
        (EvaluationError("x"), EVALUATION),
        (InfrastructureError("x"), "else"),
    ],
)
def test_an_error_says_what_is_missing(error: InfrastructureError, what: str) -> None:
    """Whatever step met it."""
    assert missing(error, otherwise="else") == what
