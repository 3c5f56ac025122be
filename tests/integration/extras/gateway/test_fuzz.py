"""Random and hostile requests to every route: no 5xx but a told 501, no canary in an answer, no growing memory.

Hypothesis draws them: each route of the application with odd names in its holes, odd queries, headers and bodies, and
now and then a connection that is left half-open. `make fuzz` runs for an hour; `KERNEL_RUNNER_TEST_FUZZ_S` says how
many seconds.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import time
import tracemalloc
from contextlib import closing, suppress
from typing import Any, Final
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from runner.extras.gateway.app import routes
from tests.integration.extras.gateway.conftest import ADMIN, BOUNDARY, Gate, multipart
from tests.integration.extras.gateway.test_hostile import CANARY, SEED, plant

LONG_S: Final = float(os.environ.get("KERNEL_RUNNER_TEST_FUZZ_S") or 0)
#: Growth of Python's own memory over a round of requests, in bytes; caches are full before.
GROWTH: Final = 2 * 1024 * 1024
#: Where a submission to the board is held as a stream, and how paths of streams without an end end.
STREAM: Final = "/identity/CPU/"
ENDLESS: Final = "/live/events"
PLACES: Final = sorted({(method, route.path) for route in routes() for method in (route.methods or set()) - {"HEAD"}})

odd_text = st.text(max_size=60) | st.sampled_from(
    (
        *("identity", "CPU", "test", "leaderboard", "github", "1", "0", "-1", "2147483648", "9" * 18, "9" * 30, "NaN"),
        *("..", "../../etc/passwd", "%00", "\r\nX-Evil: 1", "<script>", "' OR 1=1 --", "a" * 3000, "\ud7ff\ue000"),
    )
)
json_value = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), odd_text),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(odd_text, inner, max_size=4)),
    max_leaves=8,
)
KEYS: Final = (
    *("code", "leaderboards", "leaderboard", "count", "visibility", "mode_category", "max_submissions_per_hour"),
    *("directory", "problem_set", "force", "repository", "token", "csrf", "next", "board", "gpu", "mode", "name"),
)
json_body = st.one_of(st.dictionaries(st.sampled_from(KEYS), json_value, max_size=5), json_value).map(
    lambda value: (json.dumps(value).encode(), "application/json")
)


@st.composite
def form_body(draw: st.DrawFn) -> tuple[bytes, str]:
    """A form with a file, cut or changed somewhere."""
    fields = draw(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=30), max_size=3))
    name = draw(st.one_of(st.none(), st.text(max_size=30).map(lambda text: text.replace("\r", "").replace("\n", ""))))
    whole, headers = multipart(
        draw(st.binary(max_size=300)),
        None if name is None else name.encode("utf-8", "replace").decode(),
        part=draw(st.sampled_from(["file", "other", ""])),
        fields={key: value.encode("utf-8", "replace").decode() for key, value in fields.items()},
    )
    if draw(st.booleans()):
        at = draw(st.integers(0, len(whole)))
        whole = draw(st.sampled_from([whole[:at], whole[:at] + draw(st.binary(max_size=20)) + whole[at:]]))
    return whole, headers["Content-Type"]


bodies = st.one_of(
    st.none(),
    json_body,
    form_body(),
    st.binary(max_size=500).map(lambda data: (data, "application/x-www-form-urlencoded")),
    st.binary(max_size=500).map(lambda data: (data, f"multipart/form-data; boundary={BOUNDARY}")),
)


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """One request to one of the routes."""
    method, path = draw(st.sampled_from(PLACES))
    parts = [quote(draw(odd_text), safe="") if "{" in part else part for part in path.split("/")]
    names = st.sampled_from(["limit", "offset", "user_id", "force", "provider", "state", "gpu", "board", *KEYS])
    query = draw(st.lists(st.tuples(names, odd_text), max_size=3))
    text = "&".join(f"{key}={quote(value, safe='')}" for key, value in query)
    headers = draw(
        st.dictionaries(
            st.sampled_from(
                ["Cookie", "Origin", "Sec-Fetch-Site", "Accept-Encoding", "X-Forwarded-For", "Range", "Expect-X"]
            ),
            st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=60),
            max_size=3,
        )
    )
    return {
        "method": draw(st.sampled_from([method, method, method, "PATCH", "OPTIONS"])),
        "path": "/".join(parts) + (f"?{text}" if text else ""),
        "body": draw(bodies),
        "headers": headers,
        "cli": draw(st.sampled_from([None, "ada-token", "wrong", f"sha256:{'0' * 64}"])),
        "admin": draw(st.sampled_from([None, None, ADMIN, "wrong"])),
        "half_open": draw(st.integers(0, 15)) == 0,
    }


def ask(gate: Gate, sent: dict[str, Any]) -> None:
    """Send one request and look at the answer."""
    body, kind = sent["body"] or (None, None)
    headers = {**sent["headers"], **({} if kind is None else {"Content-Type": kind})}
    if sent["half_open"]:
        with closing(socket.create_connection(("127.0.0.1", gate.port), timeout=20)) as connection, suppress(OSError):
            head = f"{sent['method']} {sent['path']} HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: ada-token\r\n"
            connection.sendall(f"{head}Content-Length: 1000\r\n\r\nabc".encode("latin-1", "replace"))
        return
    if sent["path"].startswith(STREAM) and sent["method"] == "POST":
        # It may be a submission, whose stream would live until its end.
        return
    if sent["path"].partition("?")[0].endswith(ENDLESS) and sent["method"] == "GET":
        return
    answer = gate.ask(sent["method"], sent["path"], body, cli=sent["cli"], admin=sent["admin"], headers=headers)
    assert answer.status < 500 or answer.status == 501, (sent, answer.text)
    assert CANARY.encode() not in answer.body, sent
    assert str(SEED).encode() not in answer.body, sent
    assert b"Traceback" not in answer.body, sent
    assert answer.headers["x-content-type-options"] == "nosniff", sent
    assert "x-evil" not in answer.headers, sent
    if answer.status >= 400 and answer.headers["content-type"] == "application/json" and answer.body:
        assert answer.detail, sent


# Starlette leaves the file of a part that has no end to the garbage collector.
@pytest.mark.filterwarnings("ignore:Unclosed file <tempfile.Spooled:ResourceWarning")
# The gateway's threads draw pauses from `random` meanwhile, and Hypothesis takes that for the strategies' doing.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.timeout(int(LONG_S) + 600)
def test_no_request_breaks_the_gateway(gate: Gate) -> None:
    """Hypothesis shrinks one that does; Python's own memory does not grow after the first quarter of the time."""
    plant(gate)

    @settings(
        max_examples=150,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(requests())
    def round_of_requests(sent: dict[str, Any]) -> None:
        ask(gate, sent)

    began = time.monotonic()
    round_of_requests()
    while time.monotonic() < began + LONG_S / 4:
        round_of_requests()
    if LONG_S:
        before = traced()
        while time.monotonic() < began + LONG_S:
            round_of_requests()
        grown = traced() - before
        largest = ours().statistics("lineno")[:20]
        tracemalloc.stop()
        lines = "\n".join(map(str, largest))
        assert grown < GROWTH, f"{grown} bytes more than after a quarter of the time, most of them here:\n{lines}"
    # Nothing is stuck: the next client is served.
    assert gate.ask("GET", "/health").status == 200


def traced() -> int:
    """Bytes of Python's objects that were made since the first call, and live."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    gc.collect()
    return sum(trace.size for trace in ours().traces)


def ours() -> tracemalloc.Snapshot:
    """What lives, but for what Hypothesis keeps of its own examples."""
    return tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(inclusive=False, filename_pattern="*hypothesis*")]
    )
