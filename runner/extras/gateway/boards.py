"""Routes that tell of leaderboards, GPU types and rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway.context import (
    AppState,
    Ascii,
    Refusal,
    app_state,
    dumps,
    moment,
    off_loop,
    query_number,
)
from runner.extras.gateway.identity import User, from_here, optional_user
from runner.extras.gateway.queries import MOST
from runner.store.connection import Row
from runner.store.session import load_json

_RUNNER: Final = "kernel-runner"


async def leaderboards(request: Request) -> Response:
    """GET /leaderboards: all, or the one named by `?name=`; of a closed one no task. Never a secret seed.

    Tasks are some seconds old.
    """
    from_here(request)
    current = app_state(request)
    rows = await current.store.all("board_list")
    public = [board["id"] for board in rows if board["visibility"] == "public"]
    tasks = await _tasks(current, public)
    lines = []
    name = request.query_params.get("name")
    for board in rows:
        if name is not None and board["name"] != name:
            continue
        before = dumps({"id": board["id"], "name": board["name"], "deadline": board["deadline"].isoformat()})
        after = dumps(
            {
                "gpu_types": board["gpus"],
                "creator_id": board["creator_id"],
                "forum_id": board["forum_id"],
                "description": board["description"],
                "visibility": board["visibility"],
            }
        )
        task = tasks.get(board["id"], "{}") if board["visibility"] == "public" else "{}"
        lines.append(f'{before[:-1]},"task":{task},{after[1:]}')
    return Response(f"[{','.join(lines)}]".encode("ascii"), media_type=Ascii.media_type)


async def _tasks(current: AppState, board_ids: Sequence[int]) -> Mapping[int, str]:
    """The tasks of leaderboards as JSON in ASCII; read again where one is not known yet, or after some seconds."""
    async with current.reading_tasks:
        texts = current.tasks.get(None)
        if isinstance(texts, dict) and texts.keys() >= set(board_ids):
            return texts
        rows = await current.store.all("public_tasks", ids=list(board_ids))
        new_texts = await off_loop(rows, lambda: {row["id"]: dumps(load_json(row["task"])) for row in rows})
        current.tasks.put(None, new_texts)
        return new_texts


async def gpus(request: Request) -> Response:
    """GET /gpus/{leaderboard}."""
    return Ascii((await _board(request))["gpus"])


async def _board(request: Request) -> Row:
    """The leaderboard in the path. Raises Refusal where the caller may not see it."""
    who = await optional_user(request)
    board = await named(app_state(request), request.path_params["leaderboard"])
    await admit(app_state(request), board, who)
    return board


async def runner_queue(request: Request) -> Response:
    """GET /runner_queue/{gpu}."""
    from_here(request)
    return Ascii(await queue_of(app_state(request), request.path_params["gpu"]))


async def submissions(request: Request) -> Response:
    """GET /submissions/{leaderboard}/{gpu}: the ranking."""
    current, board = app_state(request), await _board(request)
    limit = query_number(request, "limit", 100, low=1, high=1000)
    offset = query_number(request, "offset", 0, low=0, high=MOST)
    rows = await current.store.all(
        "places",
        leaderboard=board["name"],
        gpu_type=own_name(board, request.path_params["gpu"]),
        limit=limit,
        offset=offset,
    )
    return Ascii(
        [
            {
                "submission_id": place["submission_id"],
                "rank": place["rank"],
                "submission_name": place["file_name"],
                "submission_time": moment(place["submission_time"]),
                "submission_score": float(place["score"]),
                "leaderboard_name": place["leaderboard"],
                "user_id": _number_or_text(place["user_id"]),
                "user_name": place["user_name"],
                "gpu_type": place["gpu_type"],
                "late": place["late"],
            }
            for place in rows
        ]
    )


async def submission_count(request: Request) -> Response:
    """GET /submission_count/{leaderboard}/{gpu}: ranked users, or the scored runs of one."""
    current, board = app_state(request), await _board(request)
    gpu = own_name(board, request.path_params["gpu"])
    user_id = request.query_params.get("user_id")
    if user_id is None:
        row = await current.store.row("count_places", leaderboard=board["name"], gpu_type=gpu)
    else:
        row = await current.store.row("count_runs", board_id=board["id"], user_id=user_id, gpu_type=gpu)
    return Ascii({"count": row["count"]})


async def named(current: AppState, name: str) -> Row:
    """A leaderboard by its name; case does not matter where that is clear.

    Raises:
        Refusal: 400, none is named; 404.
    """
    if not name.strip():
        raise Refusal(400, "No leaderboard is named: choose one on the page of a leaderboard, or give its name")
    rows = await current.store.all("board_by_name", name=name)
    if not rows or (len(rows) > 1 and rows[0]["name"] != name):
        raise Refusal(404, f"Leaderboard {shown(name)} does not exist")
    return rows[0]


async def admit(current: AppState, board: Row, who: User | None) -> None:
    """Let only the invited see a closed leaderboard.

    Raises:
        Refusal: 401, 403.
    """
    if board["visibility"] == "public" or (who is not None and who.operator):
        return
    if who is None:
        raise Refusal(401, "Authentication required for closed leaderboard")
    row = await current.store.row("may_see", user_id=who.id, board_id=board["id"])
    if not row["invited"]:
        raise Refusal(403, "You do not have access to this leaderboard")


def own_name(board: Row, gpu: str) -> str:
    """The leaderboard's own spelling of a GPU type; what it does not have stays."""
    return next((name for name in board["gpus"] if name.lower() == gpu.lower()), gpu)


async def queue_of(current: AppState, gpu: str) -> dict[str, Any]:
    """How busy the hosts of a GPU type are; at most a second old."""
    queue = current.queues.get(gpu)
    if isinstance(queue, dict):
        return queue
    row = await current.store.row("gpu_queue", gpu_type=gpu)
    if not row["known"]:
        return {
            "runner": "unknown",
            "gpu": gpu,
            "queued_jobs": None,
            "running_jobs": None,
            "available_runners": None,
            "status": "unavailable",
            "error": "unknown gpu",
        }
    answer = {
        "runner": _RUNNER,
        "gpu": gpu,
        "queued_jobs": row["queued"],
        "running_jobs": row["running"],
        "available_runners": row["slots"],
        "status": "available" if row["slots"] else "unavailable",
        "error": None if row["slots"] else "no host serves this GPU type now",
    }
    current.queues.put(gpu, answer)
    return answer


def shown(text: str) -> str:
    """What a client gave, for a message: short and printable."""
    return repr("".join(letter if letter.isprintable() else "?" for letter in text[:100]))


def _number_or_text(user_id: str) -> int | str:
    plain = (
        user_id.isascii() and user_id.isdigit() and len(user_id) < 19 and not (len(user_id) > 1 and user_id[0] == "0")
    )
    return int(user_id) if plain else user_id
