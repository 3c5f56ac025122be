"""HEAD on every page that answers GET."""

from __future__ import annotations

import http.client

from runner.base.config import HttpAddress
from runner.daemon.monitoring.http_endpoint import Endpoint
from runner.extras.gateway.app import routes
from tests.support.waiting import PATIENCE_S
from tests.unit.daemon.monitoring.test_http_endpoint import Answers


def _ask(address: str, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        headers = {name: value for name, value in answer.getheaders() if name.lower() != "date"}
        return answer.status, headers, answer.read()
    finally:
        connection.close()


def test_a_daemon_answers_probes() -> None:
    """Whether it is well or not, and where there is nothing."""
    answers = Answers()
    endpoint = Endpoint(answers)
    try:
        endpoint.listen(HttpAddress(host="127.0.0.1", port=0))
        assert endpoint.bound is not None
        for answers.good in (True, False):
            for path in ("/healthz", "/readyz", "/metrics", "/nothing"):
                status, headers, body = _ask(endpoint.bound, "GET", path)
                assert _ask(endpoint.bound, "HEAD", path) == (status, headers, b""), path
                assert body
    finally:
        endpoint.close()


def test_the_gateway_answers_probes() -> None:
    """Every route of it that takes GET takes HEAD."""
    taken = [route.methods or set() for route in routes()]
    assert any("GET" in methods for methods in taken)
    assert all("HEAD" in methods for methods in taken if "GET" in methods)
