"""The pages of a leaderboard's code once it is public: winners, an entry with its code, and the difference between two.

Whose code is public says `runner.open_code` in every request, to everyone alike. What is not is 404, as what is not
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway import charts, comparison, markup, results, share, sizes
from runner.extras.gateway.boards import own_name
from runner.extras.gateway.context import AppState, Refusal, app_state, kept, path_number, query_number
from runner.extras.gateway.html import saved, show
from runner.extras.gateway.identity import Session
from runner.extras.gateway.queries import MOST
from runner.extras.shown import figures
from runner.store.connection import Row

#: Bytes of HTML of a code, and of a difference.
_CODE: Final = 40_000
_DIFFERENCE: Final = 60_000
#: Of a line of a difference: what it has beside its text, and bytes of that.
_LINE: Final = 48
_LINE_TEXT: Final = 400
#: An author's newest submissions that are looked at, and records that are listed.
_SUBMISSIONS: Final = 500
_ROWS: Final = 20


async def lines_of(current: AppState, board: Row, ids: Sequence[int]) -> Mapping[int, int]:
    """How many lines those of these submissions have whose code is public; at most half a minute old."""
    return await _lines(current, *ids) if board["over"] and ids else {}


@kept
async def _lines(current: AppState, *ids: int) -> Mapping[int, int]:
    rows = await current.store.all("open_lines", ids=list(ids))
    return {row["submission_id"]: row["lines"] for row in rows}


async def winners(request: Request, session: Session | None) -> Response:
    """GET /board/{name}/winners: the first three of each GPU type."""
    current = app_state(request)
    board = await share.public_board(current, request.path_params["name"])
    opening = await current.store.row("open_board", board_id=board["id"])
    if not opening["open"]:
        raise Refusal(404, "Winners and code are public after the deadline, where the leaderboard's owner agrees")
    rows = await current.store.all("winners", leaderboard=board["name"])
    lines = await lines_of(current, board, [row["submission_id"] for row in rows])
    finals = await current.store.all("finals_held", leaderboard=board["name"])
    by_type: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_type.setdefault(row["gpu_type"], []).append(
            {**row, **share.gaps(row), "lines": lines.get(row["submission_id"])}
        )
    first = next(iter(by_type), next(iter(board["gpus"]), ""))
    places = by_type.get(first, [])
    return show(
        request,
        session,
        "winners.html",
        board=board,
        winners=by_type,
        finals=[final["gpu_type"] for final in finals],
        share=share.of_board(
            current,
            board,
            first,
            rows=places,
            entries=places[0]["entries"] if places else 0,
            page=request.url.path,
        ),
    )


async def entry(request: Request, session: Session | None) -> Response:
    """GET /entry/{id}: a ranked submission: its place, how its author came to it, and its code."""
    current = app_state(request)
    source = await _source(current, path_number(request, "id"))
    submission_id = source["submission_id"]
    scores = await current.store.all(
        "open_by_author",
        board_id=source["leaderboard_id"],
        user_id=source["user_id"],
        submission_id=submission_id,
        limit=_SUBMISSIONS,
    )
    own = {row["gpu_type"]: row for row in scores if row["submission_id"] == submission_id}
    if not own:
        raise Refusal(404, _not_open(submission_id))
    asked = own_name({"gpus": list(own)}, request.query_params.get("gpu", ""))
    gpu = asked if asked in own else next(iter(own))
    place = await current.store.one(
        "place_of", leaderboard=source["leaderboard"], gpu_type=gpu, submission_id=submission_id
    )
    times = await current.store.all("ranked_times", ids=[submission_id], gpu_type=gpu)
    its = sorted((row for row in scores if row["gpu_type"] == gpu), key=lambda row: row["submission_time"])
    drawn = [charts.Score.of(row) for row in its if charts.is_time(row["score"])]
    return await asyncio.to_thread(
        lambda: show(
            request,
            session,
            "entry.html",
            entry={key: value for key, value in source.items() if key != "code"},
            gpu=gpu,
            gpus=list(own),
            score=own[gpu],
            place=None if place is None else {**place, **share.gaps({**place, "score": own[gpu]["score"]})},
            interval=figures.interval_of(times[0]["result"], source["ranking_by"]) if times else None,
            progression=charts.progression(drawn, None),
            records=charts.records(drawn)[::-1][:_ROWS],
            share=share.of_entry(current, source, gpu, score_s=own[gpu]["score"], place=place),
            code=markup.coloured(results.source(source["code"]), markup.language_of(source["file_name"]), _CODE),
        )
    )


async def code(request: Request, _: Session | None) -> Response:
    """GET /entry/{id}/code: the whole code, as a file to be saved."""
    source = await _source(app_state(request), path_number(request, "id"))
    return saved(results.source(source["code"]), f"submission-{source['submission_id']}.txt")


async def diff(request: Request, session: Session | None) -> Response:
    """GET /diff?from=&to=: the difference between two ranked submissions of a leaderboard."""
    current = app_state(request)
    ids = [query_number(request, name, 0, low=0, high=MOST) for name in ("from", "to")]
    rows = await current.store.all("open_sources", ids=ids, most_bytes=comparison.MOST_BYTES)
    by_id = {row["submission_id"]: row for row in rows}
    for submission_id in ids:
        if submission_id not in by_id:
            raise Refusal(404, _not_open(submission_id))
    old, new = (by_id[submission_id] for submission_id in ids)
    if old["leaderboard_id"] != new["leaderboard_id"]:
        raise Refusal(400, f"Submissions {ids[0]} and {ids[1]} are of two leaderboards; compare two of one")

    def make() -> Response:
        compared = None
        if old["code"] is not None and new["code"] is not None:
            compared = comparison.compare(results.source(old["code"]), results.source(new["code"]))
        lines = [] if compared is None else compared.lines
        shown = sizes.Budget(_DIFFERENCE).lines(
            lines, lambda line: _LINE + len(sizes.cut(line.text, _LINE_TEXT).encode())
        )
        return show(
            request,
            session,
            "diff.html",
            old={key: value for key, value in old.items() if key != "code"},
            new={key: value for key, value in new.items() if key != "code"},
            compared=compared is not None,
            most_bytes=comparison.MOST_BYTES,
            most_lines=comparison.MOST_LINES,
            added=None if compared is None else compared.added,
            removed=None if compared is None else compared.removed,
            lines=shown,
            line_bytes=_LINE_TEXT,
            hidden=len(lines) - len(shown),
        )

    # One at a time, in a thread: users choose the texts.
    async with current.comparing:
        return await asyncio.to_thread(make)


async def _source(current: AppState, submission_id: int) -> Row:
    """A submission whose code is public.

    Raises:
        Refusal: 404.
    """
    source = None
    if 0 < submission_id <= MOST:
        source = await current.store.one("open_sources", ids=[submission_id], most_bytes=MOST)
    if source is None:
        raise Refusal(404, _not_open(submission_id))
    return source


def _not_open(submission_id: int) -> str:
    return f"There is no public code of a submission {submission_id}"
