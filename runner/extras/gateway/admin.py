"""Routes of operators: `Authorization: Bearer` with the admin token."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway import results
from runner.extras.gateway.boards import named, own_name, queue_of, shown
from runner.extras.gateway.context import (
    AppState,
    Ascii,
    Refusal,
    app_state,
    flag,
    json_body,
    moment,
    off_loop,
    path_number,
    problem,
    query_number,
)
from runner.extras.gateway.identity import admin
from runner.extras.gateway.queries import MOST
from runner.extras.gateway.submissions import stored
from runner.extras.shown import reports
from runner.extras.store import RefusedError
from runner.store.connection import Row

CATEGORIES: Final = ("test", "leaderboard")
#: 22 characters.
_CODE_BYTES: Final = 16
_INVITES: Final = 10_000
#: How often a request that waits looks at its sweep of validations.
_LOOK_S: Final = 1.0


async def start(request: Request) -> Response:
    """POST /admin/start: submissions are accepted, by every frontend."""
    admin(request)
    await app_state(request).store.all("start_intake")
    return Ascii({"status": "ok", "accepts_jobs": True})


async def stop(request: Request) -> Response:
    """POST /admin/stop: no submission is accepted, by any frontend; what waits is evaluated."""
    admin(request)
    await app_state(request).store.all("stop_intake", reason="an operator stopped them")
    return Ascii({"status": "ok", "accepts_jobs": False})


async def ban(request: Request) -> Response:
    """POST and DELETE /admin/ban/{user_id}."""
    admin(request)
    user_id = request.path_params["user_id"]
    banned = request.method == "POST"
    if await app_state(request).store.one("ban", user_id=user_id, banned=banned) is None:
        raise Refusal(404, f"User {shown(user_id)} not found")
    return Ascii({"status": "ok", "user_id": user_id, "banned": banned})


async def stats(request: Request) -> Response:
    """GET /admin/stats."""
    admin(request)
    current = app_state(request)
    name = request.query_params.get("leaderboard_name")
    board_id = None if name is None else (await named(current, name))["id"]
    last_day = flag(request, "last_day_only")
    total = await current.store.row("stats", board_id=board_id, last_day=last_day)
    runs = await current.store.all("stats_runs", board_id=board_id, last_day=last_day)
    counts: dict[str, Any] = {key: value for key, value in total.items() if key != "num_unique_codes"}
    for row in runs:
        counts[f"num_run.{row['runner']}"] = row["runs"]
    counts["runs_passed"] = sum(row["passed"] for row in runs)
    counts["runs_scored"] = sum(row["scored"] for row in runs)
    counts["runs_secret"] = sum(row["secret"] for row in runs)
    timed = sum(row["timed"] for row in runs if row["avg_delay"] is not None)
    delays = sum((row["avg_delay"] * row["timed"] for row in runs if row["avg_delay"] is not None), timedelta())
    counts["max_delay"] = duration(
        max((row["max_delay"] for row in runs if row["max_delay"] is not None), default=timedelta())
    )
    counts["avg_delay"] = duration(delays / timed if timed else timedelta())
    counts["total_runtime"] = duration(
        sum((row["total_runtime"] for row in runs if row["total_runtime"] is not None), timedelta())
    )
    if board_id is not None:
        counts["num_unique_codes"] = total["num_unique_codes"]
        for row in await current.store.all("stats_users", board_id=board_id, last_day=last_day):
            counts[f"total.{row['name']}"] = row["submissions"]
    return Ascii({"status": "ok", "stats": counts})


def duration(span: timedelta) -> str:
    """A span as ISO 8601 writes it."""
    sign = "-" if span < timedelta() else ""
    span = abs(span)
    rest = span.seconds + span.microseconds / 1e6
    days = f"{span.days}D" if span.days else ""
    return f"{sign}P{days}T{rest:.6f}".rstrip("0").rstrip(".") + "S"


async def delete_board(request: Request) -> Response:
    """DELETE /admin/leaderboards/{name}; with `force` its submissions too. One that is absent is deleted already."""
    admin(request)
    current = app_state(request)
    name = request.path_params["name"]
    force = flag(request, "force")
    try:
        while (await current.store.row("delete_board", name=name, force=force))["deleted"]:
            pass
    except RefusedError as error:
        raise Refusal(400, str(error), twice=True) from error
    return Ascii({"status": "ok", "leaderboard": name, "force": force})


async def board_submissions(request: Request) -> Response:
    """GET /admin/leaderboards/{name}/submissions."""
    admin(request)
    current = app_state(request)
    board = await _board(request)
    limit = query_number(request, "limit", 100, low=1, high=10_000)
    offset = query_number(request, "offset", 0, low=0, high=MOST)
    rows = await current.store.all("board_submission_ids", board_id=board["id"], limit=limit, offset=offset)
    return Ascii(
        {
            "status": "ok",
            "leaderboard": board["name"],
            "limit": limit,
            "offset": offset,
            "submission_ids": [row["id"] for row in rows],
        }
    )


async def submission(request: Request) -> Response:
    """GET and DELETE /admin/submissions/{id}. Of secret runs it shows mode and verdict, no more than to the owner."""
    admin(request)
    current = app_state(request)
    submission_id = path_number(request, "id")
    is_possible = 0 < submission_id <= MOST
    if request.method == "DELETE":
        if is_possible:
            await current.store.one("delete_submission", submission_id=submission_id, user_id=None)
        return Ascii({"status": "ok", "submission_id": submission_id})
    record = await stored(current, submission_id) if is_possible else None
    if record is None:
        raise Refusal(404, f"Submission {submission_id} not found")
    gpus = [row["gpu_type"] for row in record["runs"] or ()]
    queue = await queue_of(current, gpus[0]) if gpus else None
    return await off_loop(record, lambda: Ascii({"status": "ok", "submission": _shape(record, queue)}))


def _shape(record: Row, queue: Mapping[str, Any] | None) -> dict[str, Any]:
    """A submission as operators get it."""
    shape = results.detail(record, runner_queue=queue)
    job = shape.pop("job")
    rows = zip(shape.pop("runs"), record["runs"] or (), strict=True)
    return {
        "submission_id": shape.pop("id"),
        **shape,
        "runs": [{**part, **_rest(row)} for part, row in rows],
        "job_status": job["status"],
        "job_error": job["error"],
        "job_last_heartbeat": job["last_heartbeat"],
    }


def _rest(row: Row) -> dict[str, Any]:
    if row["secret"]:
        return {"compilation": None, "meta": None, "result": None, "system": None}
    return {
        "compilation": reports.picked(row["compilation"], reports.COMPILATION),
        "meta": reports.picked(row["meta"], reports.META),
        "result": row["result"],
        "system": row["system_info"],
    }


async def delete_submissions(request: Request) -> Response:
    """DELETE /admin/submissions?leaderboard_id&user_name: all of a user on a leaderboard."""
    admin(request)
    current = app_state(request)
    for name in ("leaderboard_id", "user_name"):
        if name not in request.query_params:
            raise Refusal(422, [problem("missing", f"query.{name}", "Field required", None)])
    board_id = query_number(request, "leaderboard_id", 0, low=-MOST, high=MOST)
    user_name = request.query_params["user_name"]
    gone = {"deleted_job_status": 0, "deleted_runs": 0, "deleted_submissions": 0}
    while rows := await current.store.all("user_submission_ids", board_id=board_id, user_name=user_name):
        if rows[0]["several"]:
            what = f"Several users have the name {shown(user_name)}: delete their submissions by number"
            raise Refusal(409, f"{what}, DELETE /admin/submissions/{{id}}")
        for row in rows:
            await current.store.one("delete_submission", submission_id=row["id"], user_id=None)
            gone["deleted_job_status"] += row["statuses"]
            gone["deleted_runs"] += row["runs"]
            gone["deleted_submissions"] += 1
    return Ascii({"status": "ok", "leaderboard_id": board_id, "user_name": user_name, **gone})


async def make_invites(request: Request) -> Response:
    """POST /admin/invites."""
    admin(request)
    current = app_state(request)
    body = await json_body(request)
    names = body.get("leaderboards", [body["leaderboard"]] if "leaderboard" in body else None)
    count = body.get("count", 1)
    if not isinstance(names, list) or not names or len(names) > 100 or not all(isinstance(name, str) for name in names):
        raise Refusal(422, [problem("list_type", "body.leaderboards", "Input should be a list of names", None)])
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _INVITES:
        raise Refusal(400, f"count must be between 1 and {_INVITES}")
    boards = [await named(current, name) for name in names]
    codes = [secrets.token_urlsafe(_CODE_BYTES) for _ in range(count)]
    await current.store.all("add_invites", codes=codes, boards=sorted({board["id"] for board in boards}))
    return Ascii({"status": "ok", "leaderboards": [board["name"] for board in boards], "codes": codes})


async def invites(request: Request) -> Response:
    """GET /admin/leaderboards/{name}/invites."""
    admin(request)
    board = await _board(request)
    rows = await app_state(request).store.all("invites", board_id=board["id"])
    return Ascii(
        {
            "status": "ok",
            "leaderboard": board["name"],
            "invites": [
                {**row, "claimed_at": moment(row["claimed_at"]), "created_at": moment(row["created_at"])}
                for row in rows
            ],
        }
    )


async def revoke_invite(request: Request) -> Response:
    """DELETE /admin/invites/{code}."""
    admin(request)
    code = request.path_params["code"]
    row = await app_state(request).store.one("revoke_invite", code=code)
    if row is None:
        raise Refusal(404, f"Invite code {shown(code)} not found", twice=True)
    return Ascii({"status": "ok", "code": code, "was_claimed": row["claimed"]})


async def visibility(request: Request) -> Response:
    """POST /admin/leaderboards/{name}/visibility: who sees a leaderboard, and whether its code opens at the end."""
    admin(request)
    body = await json_body(request)
    chosen = {key: body[key] for key in ("visibility", "open_code") if key in body}
    if not chosen or chosen.get("visibility", "public") not in ("public", "closed"):
        raise Refusal(422, [problem("literal_error", "body.visibility", "Input should be 'public' or 'closed'", None)])
    if not isinstance(chosen.get("open_code", True), bool):
        raise Refusal(422, [problem("bool_type", "body.open_code", "Input should be true or false", None)])
    board = await _board(request)
    current = app_state(request)
    if "visibility" in chosen:
        await current.store.all("set_visibility", board_id=board["id"], visibility=chosen["visibility"])
    if "open_code" in chosen:
        await current.store.all("set_open_code", leaderboard=board["name"], open_code=chosen["open_code"])
    return Ascii({"status": "ok", "leaderboard": board["name"], **chosen})


async def limits(request: Request) -> Response:
    """GET and PUT /admin/leaderboards/{name}/rate-limits."""
    admin(request)
    current = app_state(request)
    if request.method == "GET":
        board = await named(current, request.path_params["name"])
        rows = await current.store.all("limits", board_id=board["id"])
        return Ascii(
            {"status": "ok", "leaderboard": board["name"], "rate_limits": [_limit(board, row) for row in rows]}
        )
    body = await json_body(request)
    category, most = body.get("mode_category"), body.get("max_submissions_per_hour")
    if category not in CATEGORIES:
        raise Refusal(
            422, [problem("literal_error", "body.mode_category", "Input should be 'test' or 'leaderboard'", None)]
        )
    if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= MOST:
        message = "Input should be an integer of at least 0"
        raise Refusal(422, [problem("greater_than_equal", "body.max_submissions_per_hour", message, None)])
    board = await named(current, request.path_params["name"])
    row = await current.store.row("set_limit", board_id=board["id"], category=category, most=most)
    return Ascii({"status": "ok", "rate_limit": _limit(board, row)})


async def drop_limit(request: Request) -> Response:
    """DELETE /admin/leaderboards/{name}/rate-limits/{mode_category}."""
    admin(request)
    current = app_state(request)
    board = await named(current, request.path_params["name"])
    category = request.path_params["category"]
    if await current.store.one("drop_limit", board_id=board["id"], category=category) is None:
        raise Refusal(404, f"Leaderboard {board['name']} has no limit for {shown(category)}")
    return Ascii({"status": "ok", "leaderboard": board["name"], "mode_category": category})


async def _board(request: Request) -> Row:
    """The leaderboard that the path names.

    Raises:
        Refusal: 404.
    """
    name = request.path_params["name"]
    try:
        return await named(app_state(request), name)
    except Refusal:
        raise Refusal(404, f"Leaderboard {shown(name)} not found", twice=True) from None


def _limit(board: Row, row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "leaderboard_id": board["id"],
        "leaderboard_name": board["name"],
        "mode_category": row["mode_category"],
        "max_submissions_per_hour": row["max_submissions_per_hour"],
    }


async def validate(request: Request) -> Response:
    """POST /admin/application-validations/{leaderboard}/{gpu}?wait&all_users&only_missing."""
    admin(request)
    current = app_state(request)
    board = await named(current, request.path_params["leaderboard"])
    gpu = request.path_params["gpu"]
    chosen = {name: flag(request, name) for name in ("all_users", "only_missing")}
    sweep = await current.store.row("validate", leaderboard=board["name"], gpu_type=gpu, **chosen)
    answer = {"leaderboard": board["name"], "gpu_type": own_name(board, gpu), **chosen, **sweep}
    if not flag(request, "wait"):
        return Ascii({"status": "accepted", **answer}, 202)
    status = await _end_of(current, request, sweep["sweep_id"])
    results = await current.store.all("validations", leaderboard=None, submission_id=None, sweep_id=sweep["sweep_id"])
    return Ascii({"status": status, **answer, "results": [_validation(row) for row in results]})


async def _end_of(current: AppState, request: Request, sweep_id: int) -> str:
    """The status of a sweep that is over; `running` where the gateway or the client leaves before."""
    while True:
        row = await current.store.one("validation_progress", sweep_id=sweep_id)
        status = "failed" if row is None or row["status"] is None else str(row["status"])
        if status != "running" or current.watcher.leaving or await request.is_disconnected():
            return status
        await asyncio.sleep(_LOOK_S)


def _validation(row: Row) -> Row:
    return {key: value for key, value in row.items() if key not in ("gpu_type", "contract_version", "checked_at")}
