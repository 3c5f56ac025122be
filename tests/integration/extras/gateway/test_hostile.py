"""Requests that no client sends: none ends in a 5xx, none changes anything, none gets a secret."""

from __future__ import annotations

import socket

import pytest

from runner.base.model import Verdict
from tests.integration.extras.gateway.conftest import ADMIN, BOUNDARY, Gate, multipart
from tests.integration.store.conftest import result, run_record
from tests.support.waiting import PATIENCE_S

#: Starlette leaves the file of a part that has no end to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Unclosed file <tempfile.Spooled:ResourceWarning")
CANARY = "canary-4f1d"
SEED = 998877665544
HOST = "the-name-of-a-host"
TYPE = f"multipart/form-data; boundary={BOUNDARY}"
WHOLE, _ = multipart()


def _in_encoding(encoding: bytes) -> tuple[bytes, str]:
    """The body, whose file names the encoding in which it is (RFC 7578 deprecates it)."""
    return WHOLE.replace(b"Content-Type", b"content-transfer-encoding: " + encoding + b"\r\nContent-Type"), TYPE


#: Bodies and their content types.
BODIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", TYPE),
    "no content type": (WHOLE, ""),
    "another content type": (WHOLE, "application/json"),
    "no boundary": (WHOLE, "multipart/form-data"),
    "an empty boundary": (WHOLE, 'multipart/form-data; boundary=""'),
    "a long boundary": (WHOLE, "multipart/form-data; boundary=" + "x" * 5000),
    "another boundary": (WHOLE, "multipart/form-data; boundary=other"),
    "cut in the file": (WHOLE[:-40], TYPE),
    "cut in a header": (WHOLE[:50], TYPE),
    "garbage": (bytes(range(256)) * 16, TYPE),
    "no end": (WHOLE.replace(b"--\r\n", b""), TYPE),
    "line feeds alone": (WHOLE.replace(b"\r\n", b"\n"), TYPE),
    "a name with a path": (WHOLE.replace(b"fast.py", b"../../etc/passwd"), TYPE),
    "a name of markup": (WHOLE.replace(b"fast.py", b"<script>.txt"), TYPE),
    "a long name": (WHOLE.replace(b"fast.py", b"n" * 100_000 + b".py"), TYPE),
    "a thousand parts": (WHOLE[:-30] + (f"\r\n--{BOUNDARY}\r\n".encode() * 1000) + WHOLE[-30:], TYPE),
    "a long header": (WHOLE.replace(b"application/octet-stream", b"x" * 100_000), TYPE),
    "many headers": (WHOLE.replace(b"Content-Type", b"".join(b"X-%d: y\r\n" % i for i in range(2000)) + b"C"), TYPE),
    "no name": (WHOLE.replace(b'name="file"; ', b""), TYPE),
    **{f"a file in {name}": _in_encoding(name.encode()) for name in ("base64", "Quoted-Printable", "x-other")},
    "many fields": (b"a=1&" * 5000, "application/x-www-form-urlencoded"),
}
#: Odd, and harmless.
HARMLESS = {
    "a name that is no text": (WHOLE.replace(b"fast.py", b"\xff\xfe\x00.py"), TYPE),
    "a name with quotes": (WHOLE.replace(b"fast.py", b'a\\"b.py'), TYPE),
    "a name with percent signs": (WHOLE.replace(b"fast.py", b"a%0Ab.py"), TYPE),
    "another case": (multipart(b"# long\n" * 20_000)[0], TYPE.replace("multipart/form-data", "Multipart/Form-Data")),
    "a foreign charset": (WHOLE, TYPE + "; charset=no-such-charset"),
    **{f"a file in {name}": _in_encoding(name.encode()) for name in ("binary", "8bit", "7Bit")},
    "a charset with surrogates": (WHOLE.replace(b"fast.py", b"+2AA-.py"), TYPE + "; charset=utf-7"),
}


#: Bodies of routes that take JSON, and what is no request at all.
BROKEN_JSON = [
    b"{",
    b"[]",
    b"1",
    b"null",
    b"\xff",
    b'"x"',
    b'{"code": 1}',
    b'{"code": null}',
    b'{"code": "\\u0000\\ud800"}',
    b'{"code": ' + b"[" * 50_000,
    b'{"code": 1e999}',
    b"{}" * 1000,
    b'{"code":"' + b"x" * 60_000 + b'"}',
]
NO_REQUESTS = [
    b"\x00\x01\x02\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    b"POST /submission/identity/CPU/test HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
    b"POST /submission/identity/CPU/test HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]


def test_a_broken_body_is_refused(gate: Gate) -> None:
    """With 4xx and a detail, and nothing is stored."""
    for kind, (body, content_type) in BODIES.items():
        for path in ("/submission/identity/CPU/test", "/identity/CPU/test"):
            answer = gate.ask("POST", path, body, cli="ada-token", headers={"Content-Type": content_type})
            assert 400 <= answer.status < 500, (kind, answer.text)
            assert answer.detail
        assert gate.sql("SELECT count(*) FROM leaderboard.submission") == [(0,)]
    # 4xx on each route that takes any.
    for body in BROKEN_JSON:
        for method, path in (
            ("POST", "/user/join"),
            ("POST", "/admin/invites"),
            ("POST", "/admin/leaderboards/identity/visibility"),
            ("PUT", "/admin/leaderboards/identity/rate-limits"),
        ):
            answer = gate.ask(method, path, body, cli="ada-token", admin=ADMIN)
            assert 400 <= answer.status < 500, (path, answer.text)
            assert answer.detail
    # A 4xx or the end of the connection; the next client is served.
    for raw in NO_REQUESTS:
        with socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S) as connection:
            got = b""
            try:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                while chunk := connection.recv(65536):
                    got += chunk
            except OSError:
                pass
        assert not got.startswith(b"HTTP/1.1 5"), got[:200]
        assert gate.ask("GET", "/health").status == 200
    # What a careless client may send.
    for kind, (body, content_type) in HARMLESS.items():
        answer = gate.ask(
            "POST", "/submission/identity/CPU/test", body, cli="ada-token", headers={"Content-Type": content_type}
        )
        assert answer.status == 202, (kind, answer.text)


def test_a_body_that_never_ends_is_cut(gate: Gate) -> None:
    """Chunks without an announced length are counted too."""
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    head = (
        f"POST /submission/identity/CPU/test HTTP/1.1\r\nHost: x\r\nX-Popcorn-Cli-Id: ada-token\r\n"
        f"Content-Type: {TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    got = b""
    with socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S) as connection:
        try:
            connection.sendall(head.encode())
            for _ in range(64):
                connection.sendall(chunk)
            got = connection.recv(65536)
        except OSError:
            pass
    assert got.startswith(b"HTTP/1.1 413") or not got


def plant(gate: Gate) -> int:
    """Secrets where only the database may have them; the id of a ranked submission that is over."""
    gate.sql("UPDATE leaderboard.leaderboard SET secret_seed = %s", SEED)
    gate.sql(
        "INSERT INTO runner.board (leaderboard_id, extra) VALUES (1, jsonb_build_object('hidden', %s::text))"
        " ON CONFLICT (leaderboard_id) DO UPDATE SET extra = EXCLUDED.extra",
        CANARY,
    )
    gate.sql("UPDATE leaderboard.user_info SET web_auth_id = %s WHERE id = 'bob'", CANARY)
    submission_id = int(gate.submit("/submission/identity/CPU/leaderboard").json["details"]["id"])
    for _ in range(2):
        job = gate.bench.claim()
        said = CANARY if job.secret else "public"
        told = {"duration": 1.0, "command": f"/{CANARY}/python"}
        records = [
            run_record(
                mode,
                score_s=2e-6 if mode == "leaderboard" else None,
                result={"test-count": "1", "test.0.spec": said, "test.0.message": said},
                meta={"stdout": said, "stderr": said, "success": True, "exit_code": 0, **told},
                compilation={"success": True, "command": f"/{CANARY}/nvcc", "stdout": said, "stderr": said},
                system_info={"gpu": "none", "hostname": HOST},
            )
            for mode in ("test", "leaderboard")
        ]
        gate.bench.store.complete(job, result(Verdict.ACCEPTED, *records, report={"x": CANARY}))
    return submission_id


def test_no_canary_leaves(gate: Gate) -> None:
    """What is secret in the database is in no answer: seeds, secret runs' data, tokens, hosts' paths."""
    submission_id = plant(gate)
    board = "/admin/leaderboards/identity"
    paths = ["/leaderboards", "/gpus/identity", "/runner_queue/CPU", "/submissions/identity/CPU", "/user/submissions"]
    paths += [f"/user/submissions/{submission_id}", f"/admin/submissions/{submission_id}", "/metrics", "/health"]
    paths += ["/submission_count/identity/CPU", "/admin/stats?leaderboard_name=identity", "/readyz"]
    paths += [f"{board}/submissions", f"{board}/invites", f"{board}/rate-limits"]
    for path in paths:
        for cli in (None, "ada-token", "bob-token"):
            for admin in (None, ADMIN):
                answer = gate.ask("GET", path, cli=cli, admin=admin).text
                assert not any(secret in answer for secret in (CANARY, str(SEED), "sha256:")), path
                # The operator sees the host's name.
                assert admin is not None or HOST not in answer, path
