"""HEAD on every page of a daemon that answers GET. Of the gateway: test_user_routes.py."""

from __future__ import annotations

import http.client

from runner.base.config import HttpAddress
from runner.daemon.monitoring.http_endpoint import Endpoint
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
