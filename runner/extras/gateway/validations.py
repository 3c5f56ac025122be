"""Validations of ranked submissions by their task's own script: operators order them, and may wait for them."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway.boards import named, own_name
from runner.extras.gateway.context import AppState, Ascii, app_state, flag
from runner.extras.gateway.identity import admin
from runner.store.connection import Row

#: How often a request that waits looks at its sweep.
_LOOK_S: Final = 1.0


async def order(request: Request) -> Response:
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
    return Ascii({"status": status, **answer, "results": [_result(row) for row in results]})


async def _end_of(current: AppState, request: Request, sweep_id: int) -> str:
    """The status of a sweep that is over; `running` where the gateway or the client leaves before."""
    while True:
        row = await current.store.one("validation_progress", sweep_id=sweep_id)
        status = "failed" if row is None or row["status"] is None else str(row["status"])
        if status != "running" or current.watcher.leaving or await request.is_disconnected():
            return status
        await asyncio.sleep(_LOOK_S)


def _result(row: Row) -> Row:
    return {key: value for key, value in row.items() if key not in ("gpu_type", "contract_version", "checked_at")}
