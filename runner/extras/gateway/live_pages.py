"""Live pages: one leaderboard, or a wall of several, that follow the queue by server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway import identity
from runner.extras.gateway.board_pages import admitted, standings_of
from runner.extras.gateway.boards import admit, named, own_name
from runner.extras.gateway.context import AppState, app_state
from runner.extras.gateway.html import part, show
from runner.extras.gateway.identity import Session
from runner.extras.gateway.live import State, Topic
from runner.extras.gateway.submissions import HEARTBEAT_S, STREAM_S, event, followed
from runner.store.connection import Row

#: Leaderboards of a wall.
WALL: Final = 12
#: A stream of a closed leaderboard ends after this time: who comes back is asked again for the right to see it.
_CLOSED_S: Final = 60.0
#: After how many milliseconds a browser comes back.
_RETRY: Final = b"retry: 2000\n\n"
_BOARD: Final = "live_board.html"
_CARD: Final = "live_card.html"


async def board(request: Request, session: Session | None) -> Response:
    """GET /board/{name}/live: one leaderboard on one GPU type."""
    board_row = await admitted(request, session)
    current = app_state(request)
    topic = await _topic(current, board_row, request.query_params.get("gpu", ""))
    state = await current.live.now(topic)
    finals = await current.store.all("finals_held", leaderboard=board_row["name"]) if board_row["over"] else ()
    return show(
        request,
        session,
        "live.html",
        board=board_row,
        gpu=topic.gpu,
        final=topic.gpu in [row["gpu_type"] for row in finals],
        template=_BOARD,
        states=[] if state is None else [state],
        events=f"/board/{quote(board_row['name'], safe='')}/live/events?{urlencode({'gpu': topic.gpu})}",
    )


async def board_events(request: Request) -> Response:
    """GET /board/{name}/live/events: its state now, and after each change."""
    session = await _session(request)
    board = await admitted(request, session)
    topic = await _topic(app_state(request), board, request.query_params.get("gpu", ""))
    return _stream(request, [topic], _BOARD, closed=board["visibility"] != "public")


async def wall(request: Request, session: Session | None) -> Response:
    """GET /live: open public leaderboards, or those that the query names, each on the GPU type with most entries."""
    current = app_state(request)
    topics = await _topics(request, await _boards(request, session))
    states = [state for topic in topics if (state := await current.live.now(topic)) is not None]
    names = request.query_params.getlist("board")
    return show(
        request,
        session,
        "live.html",
        board=None,
        gpu="",
        template=_CARD,
        states=states,
        events="/live/events" + (f"?{urlencode([('board', name) for name in names])}" if names else ""),
    )


async def wall_events(request: Request) -> Response:
    """GET /live/events: the states of a wall now, and each one that changes."""
    boards = await _boards(request, await _session(request))
    closed = any(board["visibility"] != "public" for board in boards)
    return _stream(request, await _topics(request, boards), _CARD, closed=closed)


async def _session(request: Request) -> Session | None:
    session = await identity.session(request)
    if session is None:
        identity.from_here(request)
    return session


async def _boards(request: Request, session: Session | None) -> Sequence[Row]:
    """The leaderboards of a wall."""
    current = app_state(request)
    names = request.query_params.getlist("board")
    if names:
        chosen = [await named(current, name) for name in dict.fromkeys(names[:WALL])]
        for board in chosen:
            await admit(current, board, None if session is None else session.user)
        return chosen
    every = await current.store.all("board_list")
    running = [board for board in every if board["visibility"] == "public" and not board["over"] and board["gpus"]]
    return sorted(running, key=lambda board: (board["deadline"], board["name"]))[:WALL]


async def _topics(request: Request, boards: Sequence[Row]) -> Sequence[Topic]:
    current = app_state(request)
    standings = await standings_of(current, *(board["name"] for board in boards))
    entries = {(row["leaderboard"], row["gpu_type"]): row["entries"] for row in standings}

    def most(board: Row) -> str:
        return str(max(board["gpus"], key=lambda gpu: entries.get((board["name"], gpu), 0), default=""))

    return [Topic(board_id=board["id"], gpu=most(board)) for board in boards]


async def _topic(current: AppState, board: Row, gpu: str) -> Topic:
    """The GPU type that is asked for, if the leaderboard has it; else that with most entries."""
    chosen = own_name(board, gpu)
    if chosen not in board["gpus"]:
        entries = {row["gpu_type"]: row["entries"] for row in await standings_of(current, board["name"])}
        chosen = max(board["gpus"], key=lambda name: entries.get(name, 0), default="")
    return Topic(board_id=board["id"], gpu=chosen)


def _stream(request: Request, topics: Sequence[Topic], template: str, *, closed: bool) -> Response:
    current = app_state(request)
    key = identity.address(request)
    until = time.monotonic() + (_CLOSED_S if closed else STREAM_S)
    events = _events(current, topics, template, key, until, closed=closed)
    return followed(request, current.limits.watchers, key, events)


async def _events(
    current: AppState, topics: Sequence[Topic], template: str, key: str, until: float, *, closed: bool
) -> AsyncIterator[bytes]:
    def frame(state: State) -> bytes:
        return event("board", {"id": state.topic.key, "html": part(template, state=state)})

    sent: dict[Topic, int] = {}
    current.metrics.streams.inc()
    try:
        async with current.live.watch(topics) as (views, changed):
            yield _RETRY
            while (left := until - time.monotonic()) > 0 and not current.watcher.leaving:
                changed.clear()
                for view in views:
                    if view.state is None or (not view.state.public and not closed):
                        # Deleted, or closed meanwhile: who comes back is asked again.
                        if view.version:
                            return
                    elif sent.get(view.topic) != view.version:
                        sent[view.topic] = view.version
                        yield view.frame(template, frame)
                try:
                    async with asyncio.timeout(min(HEARTBEAT_S, left)):
                        await changed.wait()
                except TimeoutError:
                    yield b": alive\n\n"
    finally:
        current.metrics.streams.dec()
        current.limits.watchers.close(key)
