"""Finals on a leaderboard's page: the order of the last one, how far one is that runs, and the operators' form."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway.boards import named, own_name
from runner.extras.gateway.context import AppState, Refusal, app_state, field_number, kept
from runner.extras.gateway.html import go_to, operator_of, require_token
from runner.extras.gateway.identity import Session
from runner.extras.gateway.upload import form
from runner.extras.store import RefusedError


async def shown(current: AppState, leaderboard: str, gpu_type: str) -> dict[str, Any]:
    """What the template `final.html` shows of a leaderboard on a GPU type; the order is at most half a minute old."""
    newest = await current.store.one("final_progress", leaderboard=leaderboard, gpu_type=gpu_type)
    if newest is None:
        return {"newest": None, "places": [], "control": None}
    return {"newest": newest, **await _order(current, leaderboard, gpu_type, newest["final_id"], newest["status"])}


@kept
async def _order(current: AppState, leaderboard: str, gpu_type: str, *_: object) -> dict[str, Any]:
    """The order of the last final; there may be an earlier one while another final runs."""
    places = await current.store.all("final_ranking", leaderboard=leaderboard, gpu_type=gpu_type)
    control = await current.store.one("final_control", final_id=places[0]["final_id"]) if places else None
    return {"places": places, "control": control}


async def order(request: Request, session: Session | None) -> Response:
    """POST /board/{name}/final: operators order a final, or cancel the one that runs."""
    user = operator_of(session)
    fields = await form(request)
    require_token(user, fields)
    current = app_state(request)
    board = await named(current, request.path_params["name"])
    gpu_type = own_name(board, fields.get("gpu", ""))
    try:
        if fields.get("action") == "cancel":
            await current.store.one("cancel_final", leaderboard=board["name"], gpu_type=gpu_type)
        else:
            await current.store.one(
                "final",
                leaderboard=board["name"],
                gpu_type=gpu_type,
                top=field_number(fields, "top", low=2, high=50),
                rounds=field_number(fields, "rounds", low=1, high=1000),
                open="open" in fields,
            )
    except RefusedError as error:
        raise Refusal(400, str(error)) from error
    return go_to(f"/board/{quote(board['name'], safe='')}?gpu={quote(gpu_type, safe='')}")
