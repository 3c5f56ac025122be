"""The routes of operators."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from runner.base.model import ValidationJob
from runner.extras.gateway.app import routes
from tests.integration.extras.gateway.conftest import ADMIN, Gate, login_of
from tests.integration.store.conftest import refused, result
from tests.support.waiting import PATIENCE_S, wait_until

Finish = Callable[..., None]
VALIDATION = '{"validation": {"version": "v1", "source": "print()"}}'


def filled(path: str) -> str:
    """A path of the routing table with something in each hole."""
    return path.format_map(
        {"name": "identity", "leaderboard": "identity", "id": "1", "user_id": "ada", "code": "x", "gpu": "CPU"}
        | {"mode": "test", "category": "test", "provider": "github"}
    )


def admin_routes() -> list[tuple[str, str]]:
    """Each method and path below /admin."""
    return sorted(
        (method, filled(route.path))
        for route in routes()
        if route.path.startswith("/admin/")
        for method in (route.methods or set()) - {"HEAD"}
    )


def test_every_admin_route_wants_the_token(gate: Gate) -> None:
    """None, a wrong one, another scheme, an empty one, a user's."""
    wrong = ("Bearer wrong", f"Basic {ADMIN}", "Bearer", f"Bearer {ADMIN}x", "Bearer \xe9", "Bearer ada-token")
    assert len(admin_routes()) >= 22
    for method, path in admin_routes():
        missing = gate.ask(method, path, cli="ada-token")
        assert (missing.status, missing.detail) == (401, "Missing Authorization header")
        for value in wrong:
            answer = gate.ask(method, path, headers={"Authorization": value})
            assert (answer.status, answer.detail) == (401, "Invalid admin token")


def test_validations_are_ordered_and_waited_for(gate: Gate) -> None:
    """By default of the ten best users and without waiting; what the queue refuses is answered with its sentence."""
    path = "/admin/application-validations/Identity/cpu"
    gate.rank()
    refused = gate.ask("POST", path, admin=ADMIN)
    assert (refused.status, "has no validation" in refused.detail) == (400, True)
    gate.sql("UPDATE leaderboard.leaderboard SET task = task || %s", VALIDATION)
    ordered = gate.ask("POST", path, admin=ADMIN)
    told = {"leaderboard": "identity", "gpu_type": "CPU", "contract_version": "v1", "only_missing": False}
    accepted = {**told, "status": "accepted", "all_users": False, "sweep_id": 1, "jobs": 1}
    assert (ordered.status, ordered.json) == (202, accepted)

    with ThreadPoolExecutor(1) as thread:
        gate.sql("DELETE FROM runner.job WHERE sweep_id IS NOT NULL")
        waiting = thread.submit(gate.ask, "POST", f"{path}?wait=true&all_users=true", admin=ADMIN)
        job = wait_until(
            lambda: next(iter(gate.bench.store.claim(host="h", slots={"CPU": 1}, lease_s=60).jobs), None),
            "it is queued",
        )
        assert isinstance(job, ValidationJob)
        said = {"contract_version": "v1", "passed_shapes": 2, "total_shapes": 3, "fully_validated": False, "result": {}}
        gate.bench.store.complete(job, result(report={"validation": {**said, "geomean_sync_wall_speedup": 1.5}}))
        answer = waiting.result(PATIENCE_S)
    line = {"submission_id": 1, "status": "completed", "passed_shapes": 2, "total_shapes": 3, "fully_validated": False}
    line |= {"geomean_sync_wall_speedup": 1.5, "error": None}
    completed = {**accepted, "status": "completed", "all_users": True, "sweep_id": 2, "results": [line]}
    assert (answer.status, answer.json) == (200, completed)
    nothing = gate.ask("POST", f"{path}?only_missing=1&wait=1", admin=ADMIN).json
    assert (nothing["jobs"], nothing["status"], nothing["results"]) == (0, "completed", [])

    for page in ("/board/identity", "/view/1"):
        assert "2 of 3 shapes, 1.50x (v1, " in gate.ask("GET", page, cli="ada-token").text


def test_visibility_limits_and_invites(gate: Gate) -> None:
    """Of a leaderboard; the errors that clients know."""
    path = "/admin/leaderboards/identity"
    closed = gate.send_json("POST", f"{path}/visibility", {"visibility": "closed"}, admin=ADMIN)
    assert closed.json == {"status": "ok", "leaderboard": "identity", "visibility": "closed"}
    assert gate.send_json("POST", f"{path}/visibility", {"visibility": "odd"}, admin=ADMIN).status == 422
    none = gate.send_json("POST", "/admin/leaderboards/none/visibility", {"visibility": "public"}, admin=ADMIN)
    assert (none.status, none.json["message"]) == (404, none.detail)
    limit = {"mode_category": "test", "max_submissions_per_hour": 3}
    put = gate.send_json("PUT", f"{path}/rate-limits", limit, admin=ADMIN).json
    assert put["rate_limit"] == {"id": 1, "leaderboard_id": 1, "leaderboard_name": "identity", **limit}
    most = "max_submissions_per_hour"
    for bad in ({**limit, "mode_category": "x"}, {"mode_category": "test"}, {**limit, most: -1}, {**limit, most: True}):
        assert gate.send_json("PUT", f"{path}/rate-limits", bad, admin=ADMIN).status == 422
    assert gate.ask("GET", f"{path}/rate-limits", admin=ADMIN).json["rate_limits"] == [put["rate_limit"]]
    gone = gate.ask("DELETE", f"{path}/rate-limits/test", admin=ADMIN)
    assert gone.json == {"status": "ok", "leaderboard": "identity", "mode_category": "test"}
    assert gate.ask("DELETE", f"{path}/rate-limits/test", admin=ADMIN).status == 404
    (code,) = gate.send_json("POST", "/admin/invites", {"leaderboards": ["identity"]}, admin=ADMIN).json["codes"]
    gate.send_json("POST", "/user/join", {"code": code}, cli="ada-token")
    (invite,) = gate.ask("GET", f"{path}/invites", admin=ADMIN).json["invites"]
    assert (invite["code"], invite["user_id"], invite["user_name"]) == (code, "ada", "Ada")
    assert invite["claimed_at"].endswith("Z")
    gone = gate.ask("DELETE", f"/admin/invites/{code}", admin=ADMIN)
    assert gone.json == {"status": "ok", "code": code, "was_claimed": True}
    assert gate.ask("DELETE", f"/admin/invites/{code}", admin=ADMIN).status == 404
    bodies: list[tuple[dict[str, object], int]] = [({}, 422)]
    bodies += [({"leaderboards": boards}, 422) for boards in ([], [1], "identity")]
    bodies += [({"leaderboard": "identity", "count": count}, 400) for count in (0, 10_001, "2", True)]
    for body, status in bodies:
        assert gate.send_json("POST", "/admin/invites", body, admin=ADMIN).status == status


def test_submissions_of_a_board_and_of_a_user(gate: Gate) -> None:
    """Listed, shown and deleted; nothing of a secret run but its verdict."""
    first = gate.rank()
    second = gate.submit(cli="bob-token").json["details"]["id"]
    path = "/admin/leaderboards/identity/submissions"
    assert gate.ask("GET", path, admin=ADMIN).json["submission_ids"] == [second, first]
    assert gate.ask("GET", f"{path}?limit=1&offset=1", admin=ADMIN).json["submission_ids"] == [first]
    shown = gate.ask("GET", f"/admin/submissions/{first}", admin=ADMIN).json["submission"]
    assert shown["submission_id"] == first
    assert {"job_status", "job_error", "job_last_heartbeat", "code", "runs"} <= set(shown)
    for run in shown["runs"]:
        assert (run["meta"] is None) == (run["result"] is None) == run["secret"]
    gate.sql("UPDATE leaderboard.user_info SET user_name = 'Ada' WHERE id = 'bob'")
    refused = gate.ask("DELETE", "/admin/submissions?leaderboard_id=1&user_name=Ada", admin=ADMIN)
    assert (refused.status, refused.detail.startswith("Several users have the name 'Ada'")) == (409, True)
    gate.sql("UPDATE leaderboard.user_info SET user_name = 'Bob' WHERE id = 'bob'")
    gone = gate.ask("DELETE", "/admin/submissions?leaderboard_id=1&user_name=Ada", admin=ADMIN).json
    assert (gone["deleted_submissions"], gone["deleted_job_status"], gone["deleted_runs"] > 3) == (1, 1, True)
    assert gate.ask("DELETE", "/admin/submissions?leaderboard_id=1", admin=ADMIN).status == 422
    for _ in range(2):
        assert gate.ask("DELETE", f"/admin/submissions/{second}", admin=ADMIN).status == 200
    assert gate.ask("GET", f"/admin/submissions/{second}", admin=ADMIN).status == 404
    assert gate.sql("SELECT count(*) FROM leaderboard.submission") == [(0,)]


def test_a_board_goes_with_force(gate: Gate) -> None:
    """Without it only an empty one; one that is absent is gone already."""
    gate.submit()
    refused = gate.ask("DELETE", "/admin/leaderboards/identity", admin=ADMIN)
    assert (refused.status, refused.json["message"]) == (400, refused.detail)
    for _ in range(2):
        gone = gate.ask("DELETE", "/admin/leaderboards/identity?force=true", admin=ADMIN)
        assert gone.json == {"status": "ok", "leaderboard": "identity", "force": True}
    assert gate.sql("SELECT count(*) FROM leaderboard.leaderboard") == [(0,)]


def test_stats(gate: Gate) -> None:
    """Counts and durations; with a name, users too, those who share theirs with their ids."""
    gate.rank()
    gate.submit(cli="bob-token")
    told = gate.ask("GET", "/admin/stats", admin=ADMIN).json["stats"]
    assert (told["num_submissions"], told["sub_waiting"], told["num_users"]) == (2, 1, 2)
    assert told["num_run.CPU"] == told["runs_passed"]
    assert told["total_runtime"].startswith("P")
    named = gate.ask("GET", "/admin/stats?leaderboard_name=identity&last_day_only=true", admin=ADMIN).json["stats"]
    assert (named["num_unique_codes"], named["total.Ada"], named["total.Bob"]) == (1, 1, 1)
    gate.user("bob2", name="Bob")
    gate.submit(cli="bob2-token")
    shared = gate.ask("GET", "/admin/stats?leaderboard_name=identity", admin=ADMIN).json["stats"]
    totals = {name: count for name, count in shared.items() if name.startswith("total.")}
    assert totals == {"total.Ada": 1, "total.Bob (bob)": 1, "total.Bob (bob2)": 1}
    assert gate.ask("GET", "/admin/stats?leaderboard_name=none", admin=ADMIN).status == 404


def test_the_operator_submits_for_a_user(gate: Gate) -> None:
    """With both headers; after the deadline too, when the user may not."""
    path = "/admin/submission/identity/CPU/test"
    assert gate.submit(path, admin=ADMIN).status == 202
    assert gate.submit(path, cli=None, admin=ADMIN).status == 400
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now() - interval '1 minute'")
    assert gate.submit().status == 400
    assert gate.submit(path, admin=ADMIN).status == 202
    assert gate.sql("SELECT user_id, done FROM leaderboard.submission") == [("ada", False)] * 2
    # Not from then on: the connection that served the operator serves users too.
    assert [gate.submit().status for _ in range(8)] == [400] * 8
    gate.ask("POST", "/admin/ban/ada", admin=ADMIN)
    assert gate.submit(path, admin=ADMIN).status == 403
    # No other login submits late, although any may make the setting that the function makes.
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now() - interval '1 minute'")
    submit = "SELECT runner.{}('identity', 'bob', 'x.py', 'x'::bytea, 'test', ARRAY['CPU'])"
    url = login_of(gate.owner_url, "runner_test_front", "runner_frontend")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET runner.late = 'on'")
        with refused("KR002", "closed at"):
            connection.execute(submit.format("submit").encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(submit.format("submit_late").encode())


def test_a_late_place_is_marked(gate: Gate, finish: Finish) -> None:
    """In the API, on the page and for commands; one in time is not."""
    gate.submit("/submission/identity/CPU/leaderboard", cli="bob-token")
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now()")
    gate.submit("/admin/submission/identity/CPU/leaderboard", admin=ADMIN)
    finish()
    places = gate.ask("GET", "/submissions/identity/CPU").json
    assert {place["user_id"]: place["late"] for place in places} == {"ada": True, "bob": False}
    assert gate.ask("GET", "/board/identity").text.count(", late</td>") == 1
    assert {line.user_id: line.late for line in gate.bench.store.ranking("identity")} == {"ada": True, "bob": False}
