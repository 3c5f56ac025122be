"""The routes that popcorn-cli and kernelboard call, as their requests look on the wire."""

from __future__ import annotations

import base64
import http.client
import io
import re
import time
import zipfile
from collections.abc import Callable
from datetime import datetime
from urllib.parse import quote, urlencode

import pytest

from runner.base.errors import StaleAttemptError
from runner.base.model import Verdict
from runner.extras.gateway.app import routes
from tests.integration.extras.gateway.conftest import ADMIN, CODE, Gate, multipart, streamed
from tests.integration.extras.gateway.contract.clients import parsed
from tests.integration.extras.gateway.test_pages import Browser
from tests.integration.store.conftest import result, run_record
from tests.support.waiting import PATIENCE_S, wait_until

Finish = Callable[..., None]
REFUSED = [
    ("nothing/CPU/test", CODE, "x.py", 404, "does not exist"),
    ("identity/H100/test", CODE, "x.py", 400, "Choose from: CPU"),
    ("identity/CPU/private", CODE, "x.py", 400, "Unknown mode"),
    ("identity/CPU/other", CODE, "x.py", 400, "Unknown mode"),
    ("identity/CPU/test", b"", "x.py", 400, "expected 1 to 1000000"),
    ("identity/CPU/test", b"x" * 1_000_001, "x.py", 413, "too large"),
    ("identity/CPU/test", b"x" * 3_000_000, "x.py", 413, "too large"),
    ("identity/CPU/test", b"\xff\xfe", "x.py", 400, "not UTF-8"),
    ("identity/CPU/test", b"a\x00b", "x.py", 400, "NUL"),
    ("identity/CPU/test", CODE, "x.txt", 400, "file name"),
    ("identity/CPU/test", CODE, "x" * 300 + ".py", 400, "file name"),
    ("identity/CPU/test", b"#!POPCORN leaderboard other\n", "x.py", 400, "but the file says"),
]
CREDENTIALS = [
    ({}, 400, "Missing X-Web-Auth-Id or X-Popcorn-Cli-Id header"),
    ({"X-Popcorn-Cli-Id": "no"}, 401, "Invalid or unauthorized auth header"),
    ({"X-Popcorn-Cli-Id": ""}, 401, "Invalid or unauthorized auth header"),
    ({"X-Popcorn-Cli-Id": "a" * 5000}, 401, "Invalid or unauthorized auth header"),
    ({"X-Web-Auth-Id": "ada-token"}, 401, "Invalid or unauthorized auth header"),
    ({"X-Web-Auth-Id": "wrong", "X-Popcorn-Cli-Id": "ada-token"}, 401, "Invalid or unauthorized auth header"),
    ({"X-Popcorn-Cli-Id": "ada-token"}, 200, None),
    ({"X-Web-Auth-Id": "ada-web"}, 200, None),
    ({"X-Web-Auth-Id": "ada-web", "X-Popcorn-Cli-Id": "wrong"}, 200, None),
]
BOUNDS = [
    ("limit=0", 400),
    ("limit=101", 400),
    ("offset=-1", 400),
    ("limit=x", 422),
    ("limit=", 422),
    ("offset=99999999999", 400),
    ("limit=1e3", 422),
    ("limit=" + "9" * 5000, 422),
    ("limit=%EF%BC%91", 422),
]


def test_what_can_be_read_without_a_submission(gate: Gate) -> None:
    """Health, metrics for operators only, GPU types, the queue; 404, 400 and 422 for what is not there."""
    assert gate.ask("GET", "/health").json == {"status": "ok"}
    assert gate.ask("GET", "/readyz").status == 200
    assert gate.ask("GET", "/metrics").status == 401
    assert b"kernel_runner_gateway_requests_total" in gate.ask("GET", "/metrics", admin=ADMIN).body
    # As all errors.
    for path in ("/nothing", "/user", "/submission/a", "/%00", "/%ff%fe", "/a/b/c/d/e"):
        answer = gate.ask("GET", path)
        assert (answer.status, answer.detail) == (404, "Not Found")
    # The client makes two slashes of it.
    for path in ("//leaderboards", "/leaderboards/", "///leaderboards//"):
        assert [board["name"] for board in gate.ask("GET", path).json] == ["identity"]
    # A list of names; case of the board does not matter.
    assert gate.ask("GET", "/gpus/identity").json == ["CPU"]
    assert gate.ask("GET", "/gpus/IDENTITY").json == ["CPU"]
    assert gate.ask("GET", "/gpus/nothing").status == 404
    assert gate.ask("GET", "/gpus/identity", cli="wrong").status == 401
    # 400 out of bounds, 422 for what is no number.
    for query, status in BOUNDS:
        answer = gate.ask("GET", f"/user/submissions?{query}", cli="ada-token")
        assert answer.status == status
    # Integers, or null for a GPU type that is unknown.
    unknown = {"runner": "unknown", "gpu": "Z9", "status": "unavailable", "error": "unknown gpu"}
    none = {"queued_jobs": None, "running_jobs": None, "available_runners": None}
    assert gate.ask("GET", "/runner_queue/Z9").json == {**unknown, **none}
    gate.bench.register("host-a", "CPU")
    gate.bench.submit()
    ours = {"runner": "kernel-runner", "gpu": "CPU", "status": "available", "error": None}
    counts = {"queued_jobs": 1, "running_jobs": 0, "available_runners": 1}
    assert gate.ask("GET", "/runner_queue/CPU").json == {**ours, **counts}
    assert gate.ask("GET", "/runner_queue/cpu").json == {**ours, **counts, "gpu": "cpu"}


def test_a_name_in_a_path_is_the_name(gate: Gate) -> None:
    """Whatever it has that paths give a meaning; and after a login the page of a name that is not ASCII comes next."""
    names = ("org/ada", "https://orcid.example/0000-1", "/", "a?b#c", "a%2Fb", "..", "\u00e4 \u77e9\u9635")
    for name in names:
        gate.user(name, token=f"token-{name.encode().hex()}")
    for name in names:
        answer = gate.ask("POST", f"/admin/ban/{quote(name, safe='')}", admin=ADMIN)
        assert (answer.status, answer.json) == (200, {"status": "ok", "user_id": name, "banned": True})
    banned = gate.sql("SELECT id FROM leaderboard.user_info WHERE is_banned")
    assert {name for (name,) in banned} == set(names)
    matrix = "\u77e9\u9635"
    gate.bench.board(matrix)
    gate.sql("UPDATE leaderboard.leaderboard SET visibility = 'closed'")
    page = f"/board/{quote(matrix)}"
    sent_on = gate.ask("GET", page).headers["location"]
    assert sent_on == f"/login?{urlencode({'next': page})}"
    assert f'name="next" value="{page}"' in gate.ask("GET", sent_on).text


def test_head_ends_and_nothing_is_kept_between(gate: Gate) -> None:
    """On every route: HEAD leaves its connection to the next request; only a user's own cache keeps what says so."""
    gate.submit()
    parts = {"leaderboard": "identity", "name": "identity", "gpu": "CPU", "id": "1", "title": "Reference"}
    parts |= {"provider": "github"}
    cookie = Browser(gate, "ada-token").cookie
    headers = {"X-Popcorn-Cli-Id": "ada-token", "Authorization": f"Bearer {ADMIN}", "Cookie": cookie}
    paths = sorted({route.path for route in routes() if "GET" in (route.methods or ())})
    assert len(paths) > 30
    for path in paths:
        named = {**parts, "name": "style.css"} if path.startswith("/static/") else parts
        connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=PATIENCE_S)
        try:
            for method, asked in (("HEAD", path.format_map(named)), ("GET", "/health")):
                connection.request(method, asked, headers=headers)
                answer = connection.getresponse()
                body, kept = answer.read(), answer.headers.get_all("Cache-Control", [])
                assert (answer.status == 405, len(kept)) == (False, 1), path
                assert kept == ["no-store"] or any(part in asked for part in ("/static/", "/feed", "/picture")), path
        finally:
            connection.close()
        assert body == b'{"status":"ok"}', path
    assert gate.sql("SELECT count(*) FROM leaderboard.submission") == [(1,)]


def test_leaderboards_without_secrets(gate: Gate) -> None:
    """Every board, and no secret seed; of a closed one no task."""
    gate.bench.board("private")
    gate.bench.board("odd")
    gate.sql("UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = 'private'")
    gate.sql("UPDATE leaderboard.leaderboard SET task = '[1]' WHERE name = 'odd'")
    answer = gate.ask("GET", "/leaderboards")
    assert answer.headers["content-type"] == "application/json"
    public, private, odd = answer.json
    keys = "creator_id deadline description forum_id gpu_types id name task visibility"
    assert " ".join(sorted(public)) == keys
    assert public["deadline"].endswith("+00:00")
    assert (public["gpu_types"], public["task"]["lang"]) == (["CPU"], "py")
    assert (private["visibility"], private["task"]) == ("closed", {})
    # popcorn-cli reads an object of every board.
    assert odd["task"] == {}


def test_who_is_let_in(gate: Gate) -> None:
    """By either header; with both, that of the website decides."""
    for headers, status, detail in CREDENTIALS:
        answer = gate.ask("GET", "/user/submissions", headers=headers)
        assert (answer.status, None if status == 200 else answer.detail) == (status, detail)
    # Who reads the table cannot log in with what it holds; a token that KernelBot stored as it is works.
    ((stored,),) = gate.sql("SELECT cli_id FROM leaderboard.user_info WHERE id = 'ada'")
    assert stored.startswith("sha256:")
    assert gate.ask("GET", "/user/submissions", cli=stored).status == 401
    gate.sql("UPDATE leaderboard.user_info SET cli_id = 'as-kernelbot-stores-it' WHERE id = 'ada'")
    assert gate.ask("GET", "/user/submissions", cli="as-kernelbot-stores-it").status == 200
    gate.sql("UPDATE leaderboard.user_info SET cli_valid = false WHERE id = 'ada'")
    assert gate.ask("GET", "/user/submissions", cli="as-kernelbot-stores-it").status == 401


def test_a_submission_is_answered_at_once(gate: Gate) -> None:
    """202 with its id, the id of its job status, and the queue; in each mode."""
    for mode in ("test", "benchmark", "profile", "leaderboard", "LeaderBoard"):
        check_answer(gate, mode)
    # The user keeps the name that an operator gave.
    assert gate.sql("SELECT user_name FROM leaderboard.user_info WHERE id = 'ada'") == [("Ada",)]


def check_answer(gate: Gate, mode: str) -> None:
    """Submit, and look at the answer and at what is stored."""
    code = f"# {mode}\n".encode() + CODE
    answer = gate.submit(f"/submission/identity/cpu/{mode}", code)
    told = answer.json
    assert (answer.status, set(told)) == (202, {"details", "runner_queue", "status"})
    assert (told["status"], told["runner_queue"]["gpu"]) == ("accepted", "CPU")
    stored = gate.sql(
        "SELECT s.id, s.user_id, s.file_name, c.code FROM leaderboard.submission s"
        " JOIN leaderboard.code_files c ON c.id = s.code_id ORDER BY s.id DESC LIMIT 1"
    )
    assert stored == [(told["details"]["id"], "ada", "fast.py", code)]
    statuses = gate.sql("SELECT id FROM leaderboard.submission_job_status ORDER BY submission_id DESC LIMIT 1")
    assert statuses == [(told["details"]["job_status_id"],)]


def test_what_is_refused_and_what_is_taken(gate: Gate) -> None:
    """With a sentence, and nothing is stored; a website's and a path's names are taken."""
    for path, code, name, status, words in REFUSED:
        answer = gate.submit(f"/submission/{path}", code, name)
        assert (answer.status, words in answer.detail) == (status, True)
        assert gate.sql("SELECT count(*) FROM leaderboard.submission") == [(0,)]
    # As FastAPI says it.
    body, headers = multipart(part="other")
    answer = gate.ask("POST", "/submission/identity/CPU/test", body, cli="ada-token", headers=headers)
    (fault,) = answer.detail
    assert (answer.status, fault["loc"], fault["type"]) == (422, ["body", "file"], "missing")
    # Plain statuses: clients show the detail.
    body, headers = multipart()
    missing = gate.ask("POST", "/identity/CPU/test", body, headers=headers)
    assert (missing.status, missing.detail) == (400, "Missing X-Popcorn-Cli-Id header")
    wrong = gate.ask("POST", "/identity/CPU/test", body, cli="no", headers=headers)
    assert (wrong.status, wrong.detail) == (401, "Invalid or unauthorized X-Popcorn-Cli-Id")
    assert gate.submit("/nothing/CPU/test").status == 404
    # As kernelboard does; an unnamed part is `submission.py`, of a path the last part counts; a word is no crime.
    assert gate.submit(cli=None, web="ada-web", name="").status == 202
    # KernelBot's ban of this word hits honest code.
    assert gate.submit(name="/home/ada/kernels/best.py", code=b"stream = 1\n").status == 202
    assert gate.sql("SELECT file_name FROM leaderboard.submission ORDER BY id") == [("submission.py",), ("best.py",)]


def test_a_ban_a_deadline_and_a_stop(gate: Gate) -> None:
    """All hold for HTTP; the stop holds for SQL too."""
    banned = {"status": "ok", "user_id": "ada", "banned": True}
    assert gate.ask("POST", "/admin/ban/ada", admin=ADMIN).json == banned
    assert gate.submit().status == 403
    assert gate.ask("DELETE", "/admin/ban/ada", admin=ADMIN).json == {**banned, "banned": False}
    assert gate.ask("POST", "/admin/ban/nobody", admin=ADMIN).status == 404
    assert gate.ask("POST", "/admin/stop", admin=ADMIN).json == {"status": "ok", "accepts_jobs": False}
    answer = gate.submit()
    assert (answer.status, "no submissions are accepted now" in answer.detail) == (400, True)
    with pytest.raises(Exception, match="no submissions are accepted now"):
        gate.bench.submit()
    assert gate.ask("POST", "/admin/start", admin=ADMIN).json == {"status": "ok", "accepts_jobs": True}
    assert gate.submit().status == 202
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now() - interval '1 minute'")
    answer = gate.submit()
    assert (answer.status, "closed at" in answer.detail) == (400, True)


def test_a_token_reads_pages_and_cancels_but_sends_no_form(gate: Gate) -> None:
    """Only its user's; texts in the JSON of a page are as they were written."""
    submission_id = gate.submit(code=b"a < b\n").json["details"]["id"]
    assert gate.ask("GET", "/mine?format=json", cli="ada-token").json["lines"][0]["id"] == submission_id
    view = f"/view/{submission_id}?format=json"
    assert gate.ask("GET", view, cli="ada-token").json["code"]["text"] == "a < b\n"
    gate.sql("UPDATE leaderboard.leaderboard SET description = 'a < b'")
    assert gate.ask("GET", "/board/identity?format=json").json["description"] == "a < b"
    assert [gate.ask("GET", view, cli=token).status for token in ("bob-token", "nobody-s", None)] == [403, 401, 401]
    origin = {"Origin": f"http://127.0.0.1:{gate.port}", "Host": f"127.0.0.1:{gate.port}"}
    assert gate.ask("POST", f"/view/{submission_id}/cancel", b"csrf=", cli="ada-token", headers=origin).status == 401
    path = f"/user/submissions/{submission_id}/cancel"
    assert [gate.ask("POST", path, cli=token).status for token in (None, "bob-token", "ada-token")] == [400, 403, 200]
    assert gate.ask("GET", view, cli="ada-token").json["progress"] == {"text": "cancelled", "done": True}


def test_the_hourly_limit_says_when_to_come_back(gate: Gate) -> None:
    """429 with Retry-After; other categories and users are free. Who deletes or cancels gets nothing back."""
    limit = {"mode_category": "test", "max_submissions_per_hour": 2}
    gate.send_json("PUT", "/admin/leaderboards/identity/rate-limits", limit, admin=ADMIN)
    assert [gate.submit().status for _ in range(2)] == [202, 202]
    began = time.monotonic()
    gate.sql("UPDATE leaderboard.submission SET submission_time = now() - interval '40 minutes' WHERE id = 1")
    answer = gate.submit()
    assert answer.status == 429
    assert 1199 - (time.monotonic() - began) <= int(answer.headers["retry-after"]) <= 1200
    said = r"Rate limit exceeded: 2/2 test submissions per hour\. Try again in 1\d\d\ds\."
    assert re.fullmatch(said, answer.detail)
    path = "/user/submissions/1"
    refused = gate.ask("DELETE", path, cli="ada-token")
    assert (refused.status, refused.detail) == (
        429,
        "submission 1 counts for the hourly limit. Cancel it, and delete it when it is an hour old.",
    )
    assert gate.ask("POST", f"{path}/cancel", cli="ada-token").status == 200
    assert gate.submit().status == 429
    ranked = gate.submit("/submission/identity/CPU/leaderboard")
    assert ranked.status == 202
    assert gate.submit(cli="bob-token").status == 202
    assert gate.ask("DELETE", f"/user/submissions/{ranked.json['details']['id']}", cli="ada-token").status == 200
    gate.sql("UPDATE leaderboard.submission SET submission_time = now() - interval '61 minutes'")
    assert gate.ask("DELETE", path, cli="ada-token").status == 200


@pytest.mark.usefixtures("limits_stand_still")
def test_requests_are_limited_per_user_and_address(open_gate: Callable[..., Gate]) -> None:
    """With Retry-After; another user goes on."""
    gate = open_gate(gateway_requests_per_minute=100)
    gate.user("ada")
    gate.user("bob")
    statuses = [gate.ask("GET", "/user/submissions", cli="ada-token").status for _ in range(130)]
    assert set(statuses) == {200, 429}
    refused = gate.ask("GET", "/user/submissions", cli="ada-token")
    assert int(refused.headers["retry-after"]) >= 1
    assert "Too many requests" in refused.detail
    assert gate.ask("GET", "/user/submissions", cli="bob-token").status == 200
    assert 429 in [gate.ask("GET", "/user/submissions", cli="guess").status for _ in range(10)]
    assert 429 in [gate.ask("GET", "/leaderboards").status for _ in range(80)]


def test_a_closed_board(gate: Gate) -> None:
    """Anonymous 401, without an invitation 403, by the website never."""
    gate.sql("UPDATE leaderboard.leaderboard SET visibility = 'closed'")
    anonymous = gate.ask("GET", "/gpus/identity")
    assert (anonymous.status, anonymous.detail) == (401, "Authentication required for closed leaderboard")
    stranger = gate.ask("GET", "/gpus/identity", cli="ada-token")
    assert (stranger.status, stranger.detail) == (403, "You do not have access to this leaderboard")
    assert gate.submit().status == 403
    made = gate.send_json("POST", "/admin/invites", {"leaderboard": "identity", "count": 2}, admin=ADMIN)
    code, other = made.json["codes"]
    assert (len(code), code != other) == (22, True)
    assert gate.send_json("POST", "/user/join", {"code": code}, web="ada-web").status == 400
    for _ in range(2):
        joined = gate.send_json("POST", "/user/join", {"code": code}, cli="ada-token")
        assert joined.json == {"status": "ok", "leaderboards": ["identity"]}
    claimed = gate.send_json("POST", "/user/join", {"code": code}, cli="bob-token")
    assert (claimed.status, claimed.detail) == (400, "This invite code has already been claimed")
    for bad, sentence in (({"code": "x"}, "Invalid invite code"), ({}, "Missing required field: code")):
        answer = gate.send_json("POST", "/user/join", bad, cli="bob-token")
        assert (answer.status, answer.detail) == (400, sentence)
    assert gate.ask("GET", "/gpus/identity", cli="ada-token").json == ["CPU"]
    assert gate.submit().status == 202
    by_web = gate.submit(cli=None, web="ada-web")
    assert (by_web.status, by_web.detail) == (403, "Closed leaderboards only accept submissions via CLI")


def test_a_ranked_submission_from_the_queue_to_the_ranking(gate: Gate, finish: Finish) -> None:
    """What a client that polls reads, and what the ranking says."""
    submission_id = gate.submit("/submission/identity/CPU/leaderboard").json["details"]["id"]
    path = f"/user/submissions/{submission_id}"
    waiting = gate.ask("GET", path, cli="ada-token").json
    assert (waiting["done"], waiting["runs"], waiting["runner_queue"]) == (False, [], None)
    assert waiting["job"] == {"status": "pending", "error": None, "last_heartbeat": None}
    finish(score_s=2.8115e-6)
    told = gate.ask("GET", path, cli="ada-token").json
    keys = "code done file_name id job leaderboard_id leaderboard_name runner_queue runs submission_time user_id"
    assert " ".join(sorted(told)) == keys
    assert (told["done"], told["job"]["status"], told["code"]) == (True, "succeeded", CODE.decode())
    assert isinstance(told["user_id"], str)
    assert told["submission_time"].endswith("Z")
    public = {run["mode"]: run for run in told["runs"] if not run["secret"]}
    secret = [run for run in told["runs"] if run["secret"]]
    assert public["leaderboard"]["score"] == "0.0000028115"
    assert {"result", "diagnostics"} <= set(public["test"])
    assert "result" not in public["leaderboard"]
    assert {(run["mode"], run["passed"]) for run in secret} >= {("leaderboard", True)}
    for run in secret:
        assert set(run) == {"start_time", "end_time", "mode", "secret", "runner", "score", "passed"}
        assert (run["score"], run["start_time"], run["end_time"]) == (None, *[told["submission_time"]] * 2)
    assert datetime.fromisoformat(told["job"]["last_heartbeat"]).microsecond == 0, "the end of the secret run"
    place = {"rank": 1, "leaderboard_name": "identity", "gpu_type": "CPU", "user_id": "ada", "user_name": "Ada"}
    place |= {"submission_id": submission_id, "submission_name": "fast.py", "submission_score": 2.8115e-06}
    place |= {"submission_time": told["submission_time"], "late": False}
    assert gate.ask("GET", "/submissions/identity/CPU").json == [place]
    assert gate.ask("GET", "/submission_count/identity/CPU").json == {"count": 1}
    assert gate.ask("GET", "/submission_count/identity/CPU?user_id=ada").json == {"count": 1}
    (line,) = gate.ask("GET", "/user/submissions?leaderboard=identity", cli="ada-token").json
    assert set(line) == {"id", "leaderboard_name", "file_name", "submission_time", "done", "runs"}
    assert {"gpu_type": "CPU", "score": "0.0000028115"} in line["runs"]


def test_equal_scores_share_a_rank_and_numbers_are_numbers(gate: Gate, finish: Finish) -> None:
    """The id of a user is a number where it is one."""
    gate.user("17", token="seventeen")
    for token in ("ada-token", "seventeen", "bob-token"):
        gate.submit("/submission/identity/CPU/leaderboard", cli=token)
        finish(score_s=2e-6 if token != "bob-token" else 3e-6)
    gate.submit("/submission/identity/CPU/leaderboard", b"# wrong", cli="bob-token")
    finish(score_s=1e-6, secret=False)
    newest, first = gate.ask("GET", "/user/submissions", cli="bob-token").json
    assert (newest["runs"], len(first["runs"]) > 0) == ([], True), "scores are told where the secret run passed"
    places = gate.ask("GET", "/submissions/identity/CPU?limit=10&offset=0").json
    assert [(place["rank"], place["user_id"]) for place in places] == [(1, "ada"), (1, 17), (3, "bob")]
    assert [place["rank"] for place in gate.ask("GET", "/submissions/identity/CPU?limit=1&offset=2").json] == [3]


def test_a_submission_belongs_to_its_owner(gate: Gate, finish: Finish) -> None:
    """Others get 403 and delete nothing; an unknown one is 404, no number 422."""
    submission_id = gate.submit().json["details"]["id"]
    path = f"/user/submissions/{submission_id}"
    for method in ("GET", "DELETE"):
        answer = gate.ask(method, path, cli="bob-token")
        assert (answer.status, answer.detail) == (403, "Not authorized to view this submission")
        assert gate.ask(method, "/user/submissions/4711", cli="ada-token").status == 404
        assert gate.ask(method, "/user/submissions/99999999999999999", cli="ada-token").status == 404
        assert gate.ask(method, "/user/submissions/x", cli="ada-token").status == 422
    gate.bench.register("host-a", "CPU")
    job = gate.bench.claim()
    assert gate.ask("DELETE", path, cli="ada-token").json == {"status": "ok", "submission_id": submission_id}
    assert gate.ask("GET", path, cli="ada-token").status == 404
    assert gate.sql("SELECT count(*) FROM runner.job") == [(0,)]
    # The host finds out: its attempt is not the queue's any more.
    (ended,) = gate.bench.store.complete_all([(job, result(Verdict.ACCEPTED, run_record("test")))])
    assert isinstance(ended, StaleAttemptError)


def test_a_failed_public_run_tells_why(gate: Gate) -> None:
    """Its result, and what it printed; never the command of a host."""
    submission_id = gate.submit().json["details"]["id"]
    told = {"stdout": "out", "stderr": "err", "success": True, "exit_code": 1, "duration": 1.5}
    record = run_record(
        "test",
        passed=False,
        result={"test-count": "1", "test.0.spec": "size: 4", "test.0.error": "mismatch"},
        meta={**told, "command": "/srv/host/secret-path/python"},
    )
    gate.bench.store.complete(gate.bench.claim(), result(Verdict.WRONG_ANSWER, record))
    answer = gate.ask("GET", f"/user/submissions/{submission_id}", cli="ada-token")
    (run,) = answer.json["runs"]
    assert (run["passed"], run["result"]["test.0.error"]) == (False, "mismatch")
    assert run["diagnostics"] == {**told, "compilation": None}
    assert b"secret-path" not in answer.body
    # Without meta, with JSON nulls, with nonsense for results.
    submission_id = gate.submit().json["details"]["id"]
    gate.sql("DELETE FROM runner.job")
    for meta, kept in ((None, None), ("null", "null"), ('"text"', "[1]"), ("[]", '{"test-count": "x"}')):
        gate.sql(
            "INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, passed, meta,"
            " result, system_info) VALUES (%s, now(), now(), 'test', false, 'CPU', false, %s, %s, '{}')",
            submission_id,
            meta,
            kept,
        )
    gate.sql("UPDATE leaderboard.submission SET done = true")
    answer = gate.ask("GET", f"/user/submissions/{submission_id}", cli="ada-token")
    assert (answer.status, len(answer.json["runs"])) == (200, 4)


def test_a_stream_from_first_sign_to_result(gate: Gate, finish: Finish) -> None:
    """All modes of old clients; the secret run is in it without content."""
    with streamed(gate.port, "leaderboard") as stream:
        finish(score_s=1.5e-6)
        gate.sql('NOTIFY runner_events, \'{"event": "done", "submission_id": 1}\'')
        head, _, rest = stream.rest().partition(b"\r\n\r\n")
    assert b"content-type: text/event-stream; charset=utf-8" in head.lower()
    raw = re.sub(rb"\r\n[0-9a-f]+\r\n|^[0-9a-f]+\r\n", b"", rest).replace(b"\r\n", b"")
    assert raw.isascii()
    (first, status), *_, (name, end) = parsed([raw])
    assert (first, set(status)) == ("status", {"status", "elapsed_time"})
    assert (name, end["status"], set(end)) == ("result", "success", {"status", "results", "reports"})
    public, secret = end["results"]
    assert {"success", "error", "system", "runs"} == set(public)
    assert public["runs"]["leaderboard"]["run"]["passed"] is True
    assert not public["runs"]["leaderboard"]["start"].endswith("Z")
    for run in secret["runs"].values():
        assert (run["run"]["stdout"], run["run"]["stderr"], run["run"]["result"]) == ("", "", {})
    assert end["reports"][0].startswith("**CPU on kernel-runner ✅ success**")


def test_a_profile_comes_with_its_files(gate: Gate) -> None:
    """As a zip in base64; files of other runs stay with operators."""
    with streamed(gate.port, "profile") as stream:
        job = gate.bench.claim()
        gate.sql(
            "INSERT INTO runner.artifact (job_id, name, media_type, data)"
            " VALUES (%s, 'profile.0.a/trace.json', 'x', %s), (%s, 'profile.1.x', 'x', 'y')",
            job.id,
            b"the trace",
            job.id,
        )
        gate.bench.store.complete(
            job, result(Verdict.ACCEPTED, run_record("profile.0", result={"benchmark-count": "1"}))
        )
        gate.sql("NOTIFY runner_events, '{\"submission_id\": 1}'")
        found = re.search(rb'"trace":"([A-Za-z0-9+/=]+)"', stream.rest())
    assert found is not None
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(found[1]))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"profile.a_trace.json": b"the trace"}


def test_streams_that_clients_leave_are_given_up(open_gate: Callable[..., Gate]) -> None:
    """So that the bound on open streams is one on open streams."""
    gate = open_gate(gateway_streams=20, gateway_requests_per_minute=100_000)
    gate.bench.board()
    gate.user("ada")
    none = b"kernel_runner_gateway_streams 0.0"
    for _ in range(4):
        with streamed(gate.port, "test", "keep-alive"), streamed(gate.port, "test", "keep-alive"):
            refused = gate.submit("/identity/CPU/test")
            assert (refused.status, refused.detail) == (429, "Too many open streams")
        wait_until(lambda: none in gate.ask("GET", "/metrics", admin=ADMIN).body, "no stream is open")
