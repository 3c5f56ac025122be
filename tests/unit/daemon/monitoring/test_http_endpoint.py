"""Health, readiness and metrics over HTTP: addresses, answers, clients that misbehave."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from runner.base.config import HttpAddress
from runner.base.model import Json
from runner.daemon.monitoring import http_endpoint
from runner.daemon.monitoring.health import HealthReport
from runner.daemon.monitoring.http_endpoint import CLIENTS, Endpoint
from tests.plugins.scrape import get
from tests.support.waiting import PATIENCE_S, wait_until


class Answers(HealthReport):
    """Answers as the test says."""

    def __init__(self) -> None:
        self.good = True

    def health(self) -> tuple[bool, Json]:
        """Alive or not."""
        return self.good, {"alive": self.good}

    def ready(self) -> tuple[bool, Json]:
        """Ready or not."""
        return self.good, {"ready": self.good}

    def metrics(self) -> bytes:
        """One number."""
        return b"a 1\n"


@pytest.fixture
def answers() -> Answers:
    """What is asked."""
    return Answers()


@pytest.fixture
def served(answers: Answers) -> Iterator[Endpoint]:
    """An endpoint that listens nowhere yet."""
    made = Endpoint(answers)
    yield made
    made.close()


def bound(served: Endpoint) -> str:
    """Where it listens."""
    assert served.bound is not None
    return served.bound


def test_it_answers_on_a_port(served: Endpoint, answers: Answers) -> None:
    """200 with JSON while all is well, 503 while it is not; metrics as they come; else 404 with what there is."""
    served.listen(HttpAddress(host="127.0.0.1", port=0))
    address = bound(served)
    for good, status in ((True, 200), (False, 503)):
        answers.good = good
        assert get(address, "/healthz") == (status, json.dumps({"alive": good}) + "\n")
        assert get(address, "/readyz?verbose") == (status, json.dumps({"ready": good}) + "\n")
    assert get(address, "/metrics") == (200, "a 1\n")
    status, said = get(address, "/")
    assert status == 404
    assert json.loads(said)["error"] == "there is nothing at '/', expected /healthz, /readyz or /metrics"


def test_it_answers_on_a_socket_of_its_user_and_group(served: Endpoint, tmp_path: Path) -> None:
    """However long the path is, and over what an earlier process left there; it is gone afterwards."""
    path = tmp_path / ("d" * 120) / "http.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    (tmp_path / "left").rename(path)
    served.listen(HttpAddress(path=path))
    assert bound(served) == f"unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert get(f"unix:{path}", "/healthz")[0] == 200
    served.close()
    assert not path.exists()


def test_an_address_that_cannot_be_had_is_said(served: Endpoint, tmp_path: Path) -> None:
    """Jobs do not wait for it. A path that names a file of another program is an error, and the file is not removed."""
    path = tmp_path / "precious"
    path.write_text("data", encoding="utf-8")
    with socket.socket() as squatter, capture_logs() as logs:
        served.listen(HttpAddress(path=path))
        served.close()
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        served.listen(HttpAddress(host="127.0.0.1", port=squatter.getsockname()[1]))
        assert served.bound is None
    assert path.read_text(encoding="utf-8") == "data"
    assert "precious is no socket" in logs[0]["error"]
    assert logs[-1]["event"] == "http_not_listening"
    assert logs[-1]["error"].startswith("Address already in use: free the address, or name another as http_listen")


def test_clients_that_say_nothing_keep_no_other_out_for_long(served: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are hung up on, those beyond the limit at once."""
    monkeypatch.setattr(http_endpoint._Handler, "timeout", 0.2)
    served.listen(HttpAddress(host="127.0.0.1", port=0))
    host, _, port = bound(served).rpartition(":")
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(CLIENTS + 4)]
        for each in silent:
            each.settimeout(PATIENCE_S)
            # An end of file, or a reset: never an answer.
            with contextlib.suppress(ConnectionError):
                assert each.recv(100) == b""
    # The next one may ask as slowly as a busy machine lets it, and their places are free soon after they have gone.
    monkeypatch.undo()

    def is_let_in() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return get(bound(served), "/healthz")[0] == 200
        return False

    wait_until(is_let_in, "the next client is let in")


def test_clients_for_whom_there_is_no_thread_take_no_place(served: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are hung up on; later ones are answered."""
    served.listen(HttpAddress(host="127.0.0.1", port=0))
    refused = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr("socketserver.threading.Thread", refused)
    with capture_logs():
        for _ in range(CLIENTS + 1):
            with contextlib.suppress(OSError, http.client.HTTPException):
                get(bound(served), "/healthz")
    assert refused.call_count == CLIENTS + 1
    monkeypatch.undo()
    assert get(bound(served), "/healthz")[0] == 200
