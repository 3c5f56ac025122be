"""The pages of leaderboards: the list of all, and one with its ranking, drawings, task and code."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from runner.base.results import cases, number
from runner.extras.gateway import charts, finals, markup, open_pages, share, sizes
from runner.extras.gateway.boards import admit, named, own_name
from runner.extras.gateway.context import AppState, Refusal, app_state, kept, query_number
from runner.extras.gateway.html import ROWS, rows_asked_for, saved, show, wants_json
from runner.extras.gateway.identity import Session
from runner.extras.shown import figures
from runner.store.connection import Row

#: Bytes of HTML that a description has, and all sources of a page together, and one.
_DESCRIPTION: Final = 12_000
_SOURCES: Final = 30_000
_SOURCE: Final = 12_000
_TEMPLATES: Final = 8
#: The longest name of a template's language that a page shows.
_LANG: Final = 40
#: Of a task's benchmarks: parameters, and bytes of one.
_PARAMETERS: Final = 8
_PARAMETER: Final = 24
#: How a reference says in which order its parameters are, and in how many of its first letters that is looked for.
_SIGNATURE: Final = re.compile(r"\bdef generate_input\([^)]{0,2000}\)")
_SIGNED: Final = 100_000
#: From how many scores a leaderboard's drawings are made, and how many records are listed.
_SCORES: Final = 3000
_RECORDS: Final = 20
#: Name and length of the times that a reader can look at.
RANGES: Final[Mapping[str, tuple[str, timedelta | None]]] = {
    "day": ("Last day", timedelta(days=1)),
    "week": ("Last week", timedelta(days=7)),
    "all": ("All", None),
}
#: Users whom a reader can choose from, and the longest id of one.
_AUTHORS: Final = 24
_USER: Final = 64
#: From how many scores a small drawing in the list of leaderboards is made, and how many GPU types are listed.
_SPARKS: Final = 200
_TYPES: Final = 4


@dataclass(frozen=True, kw_only=True)
class Trend:
    """How a reader wants the scores drawn."""

    linear: bool
    #: Of `RANGES`.
    range: str
    #: Ids of users; none: the fastest.
    users: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the list of leaderboards shows of one."""

    #: Rows with gpu_type, entries and best, the GPU type with the most users first.
    standings: Sequence[Row] = ()
    spark: charts.Drawing | None = None


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a leaderboard's page shows of its scores on one GPU type."""

    progression: charts.Drawing | None
    distribution: charts.Drawing | None
    #: Id and name of users who can be chosen: the chosen, then the fastest.
    authors: Sequence[tuple[str, str]]
    #: There is something to draw, though perhaps not in the time that is asked for.
    several: bool
    #: The newest scores that were the best when they came.
    records: Sequence[charts.Score]
    #: The times of the best score's cases.
    best_ns: Sequence[float | None]
    #: There are more scores than these.
    cut: bool


async def boards(request: Request, session: Session | None) -> Response:
    """GET /: the leaderboards."""
    rows = [_without_text(board) for board in await app_state(request).store.all("board_list")]
    if wants_json(request):
        rows = [board for board in rows if board["visibility"] == "public"]
    lines = sorted(rows, key=lambda line: (line["over"], line["deadline"], line["name"]))
    some, turning = rows_asked_for(request, lines)
    public = [(board["name"], board["id"]) for board in some if board["visibility"] == "public"]
    return show(
        request,
        session,
        "boards.html",
        boards=some,
        cards=await _cards(app_state(request), *public),
        no_card=Card(),
        share=share.of_all(app_state(request)),
        **turning,
    )


def _without_text(board: Row) -> Row:
    """A leaderboard without its description, which has no bound."""
    return {key: value for key, value in board.items() if key != "description"}


@kept
async def standings_of(current: AppState, *names: str) -> Sequence[Row]:
    """How many users rank on these leaderboards, and the best score, on each GPU type; at most half a minute old."""
    return await current.store.all("board_standings", names=list(names))


@kept
async def _cards(current: AppState, *boards: tuple[str, int]) -> Mapping[int, Card]:
    """What the list shows of these leaderboards, by id; at most half a minute old."""
    ids = dict(boards)
    ranked: dict[int, list[Row]] = {}
    for row in await standings_of(current, *ids):
        ranked.setdefault(ids[row["leaderboard"]], []).append(row)
    trends = await current.store.all(
        "board_trends", ids=list(ranked), gpu_types=[rows[0]["gpu_type"] for rows in ranked.values()], limit=_SPARKS
    )
    scores: dict[int, list[charts.Score]] = {}
    for row in trends:
        scores.setdefault(row["board_id"], []).append(charts.Score.of(row))
    return {
        board_id: Card(standings=rows[:_TYPES], spark=charts.sparkline(scores.get(board_id, ())))
        for board_id, rows in ranked.items()
    }


async def board(request: Request, session: Session | None) -> Response:
    """GET /board/{name}: its ranking on one GPU type, its task, and how the scores fell."""
    current = app_state(request)
    board_row = await admitted(request, session)
    standings = await standings_of(current, board_row["name"])
    entries = {row["gpu_type"]: row["entries"] for row in standings}
    most = max(board_row["gpus"], key=lambda name: entries.get(name, 0), default="")
    gpu = own_name(board_row, request.query_params.get("gpu", ""))
    gpu = gpu if gpu in board_row["gpus"] or gpu in entries else most
    offset = query_number(request, "offset", 0, low=0, high=1_000_000)
    trend = _trend(request)
    rows = await current.store.all("places", leaderboard=board_row["name"], gpu_type=gpu, limit=ROWS + 1, offset=offset)
    ids = [row["submission_id"] for row in rows[:ROWS]]
    validated = await current.store.all("validations_of_board", leaderboard=board_row["name"], gpu_type=gpu, ids=ids)
    task = await task_of(current, board_row["id"])
    ranking_by = task["ranking_by"]
    times = await _figures(current, gpu, ranking_by, *ids)
    drawn = await _drawn(current, board_row["id"], gpu, ranking_by, trend)
    sources = sources_of(task)
    final = await finals.shown(current, board_row["name"], gpu)
    lines = await open_pages.lines_of(current, board_row, ids)
    text = str(board_row["description"] or "")
    # Beside the event loop: colouring takes milliseconds the first time.
    return await asyncio.to_thread(
        lambda: show(
            request,
            session,
            "board.html",
            board=_without_text(board_row),
            gpu=gpu,
            entries={name: entries.get(name, 0) for name in board_row["gpus"]},
            places=[_place(row, *times.get(row["submission_id"], (None, None)), session) for row in rows[:ROWS]],
            validated={row["submission_id"]: row for row in validated},
            final=final,
            offset=offset,
            size=ROWS,
            more=len(rows) > ROWS,
            description=text[:_DESCRIPTION] if wants_json(request) else markup.markdown(text, _DESCRIPTION),
            shapes=_shapes(task, drawn.best_ns),
            ranking_by=ranking_by,
            sources=_shown(sources, task["lang"]),
            drawn=drawn,
            scores_drawn=_SCORES,
            trend=trend,
            ranges={name: title for name, (title, _) in RANGES.items()},
            lines=lines,
            share=share.of_board(current, board_row, gpu, rows=rows, entries=entries.get(gpu, 0))
            if not offset
            else None,
        ),
    )


async def code(request: Request, session: Session | None) -> Response:
    """GET /board/{name}/code/{title}: the reference or a template, as a file to be saved."""
    board = await admitted(request, session)
    task = await task_of(app_state(request), board["id"])
    title = request.path_params["title"]
    source = dict(sources_of(task)).get(title)
    if source is None:
        raise Refusal(404, "This leaderboard has no such template")
    return saved(source, f"{board['name']}.{title}.{ending_of(task['lang'])}")


async def task_of(current: AppState, board_id: int) -> Row:
    """What pages show of a leaderboard's task.

    Raises:
        Refusal: 404, the leaderboard has just been deleted.
    """
    task = await current.store.one("board_reference", board_id=board_id)
    if task is None:
        raise Refusal(404, "This leaderboard has been deleted")
    return task


async def admitted(request: Request, session: Session | None) -> Row:
    """The leaderboard that the path names.

    Raises:
        Refusal: there is none, or the user may not see it.
    """
    current = app_state(request)
    try:
        board = await named(current, request.path_params["name"])
        await admit(current, board, None if session is None else session.user)
    except Refusal:
        if wants_json(request):
            raise Refusal(404, share.NOT_PUBLIC) from None
        raise
    return board


@kept
async def _figures(
    current: AppState, gpu: str, ranking_by: str | None, *ids: int
) -> Mapping[int, tuple[float | None, float | None]]:
    """Interval and speed of light of ranked submissions, by id; at most half a minute old."""
    return {
        row["submission_id"]: (
            figures.interval_of(row["result"], ranking_by),
            figures.light_of(row["result"], ranking_by),
        )
        for row in await current.store.all("ranked_times", ids=list(ids), gpu_type=gpu)
    }


def _trend(request: Request) -> Trend:
    """What the query chooses; what it cannot be is left out."""
    query = request.query_params
    users = dict.fromkeys(user for user in query.getlist("user") if 0 < len(user) <= _USER)
    return Trend(
        linear=query.get("scale") == "linear",
        range=asked if (asked := query.get("range", "")) in RANGES else "all",
        users=tuple(users)[: charts.CHOSEN],
    )


@kept
async def _scores(current: AppState, board_id: int, gpu: str) -> tuple[Sequence[charts.Score], object]:
    """The newest scores of a leaderboard, and the result of the best one; at most half a minute old."""
    rows = await current.store.all("board_scores", board_id=board_id, gpu_type=gpu, limit=_SCORES)
    scores = [charts.Score.of(row) for row in rows]
    if not scores:
        return scores, None
    best = min(scores, key=lambda score: score.seconds)
    times = await current.store.all("ranked_times", ids=[best.submission_id], gpu_type=gpu)
    return scores, times[0]["result"] if times else None


async def _drawn(current: AppState, board_id: int, gpu: str, ranking_by: str | None, trend: Trend) -> Drawn:
    """The drawings of a leaderboard; those that nobody has chosen are at most half a minute old."""
    scores, result = await _scores(current, board_id, gpu)

    async def draw() -> Drawn:
        return await asyncio.to_thread(_draw, scores, result, ranking_by, trend)

    # Choices of users are too many to be kept.
    return await draw() if trend.users else await current.drawings.fresh((board_id, gpu, trend), draw)


def _draw(scores: Sequence[charts.Score], result: object, ranking_by: str | None, trend: Trend) -> Drawn:
    light_s = figures.light_of(result, ranking_by)
    span = RANGES[trend.range][1]
    since = None if span is None else datetime.now(UTC) - span
    bests = {score.user_id: score for score in sorted(scores, key=lambda score: score.seconds, reverse=True)}
    authors = sorted(bests.values(), key=lambda score: (score.user_id not in trend.users, score.seconds))
    names = [(score.user_id, score.user_name) for score in authors if len(score.user_id) <= _USER]
    return Drawn(
        progression=charts.progression(scores, light_s, logarithmic=not trend.linear, users=trend.users, since=since),
        distribution=charts.distribution(scores, light_s, logarithmic=not trend.linear),
        authors=names[:_AUTHORS],
        several=len(scores) > 1,
        records=charts.records(scores)[::-1][:_RECORDS],
        best_ns=[case.mean_ns for case in cases(result)],
        cut=len(scores) >= _SCORES,
    )


def _place(row: Row, interval: float | None, light_s: float | None, session: Session | None) -> dict[str, Any]:
    """A row of the ranking."""
    score_s = number(row["score"])
    return {
        **row,
        **share.gaps(row),
        "interval": interval,
        "light": light_s / score_s if score_s and light_s else None,
        "own": session is not None and (session.user.operator or session.user.id == row["user_id"]),
    }


def sources_of(task: Row) -> list[tuple[str, str]]:
    """Title and text of a task's reference and templates."""
    named_texts = [("Reference", task["reference"]), *task["templates"]]
    return [(title, text) for title, text in named_texts if text and len(title) <= _LANG][:_TEMPLATES]


def _shown(sources: Sequence[tuple[str, str]], lang: str | None) -> list[tuple[str, markup.Source]]:
    """The sources as a page shows them."""
    left, shown = _SOURCES, []
    for title, text in sources:
        if left > sizes.NAME:
            source = markup.coloured(text, markup.language_of(f".{ending_of(lang)}"), min(_SOURCE, left))
            left -= source.size_bytes
            shown.append((title, source))
    return shown


def ending_of(lang: str | None) -> str:
    """How names of files of a task's language end."""
    return "cu" if lang == "cu" else "py"


def _shapes(task: Row, best_ns: Sequence[float | None]) -> dict[str, Any] | None:
    """The benchmarks of a task as a table, with the best entry's times where their number is the same.

    Columns are in the order of the parameters of the reference's `generate_input`: JSON in the database keeps no order.
    """
    benchmarks = task["benchmarks"]
    rows = [case for case in benchmarks if isinstance(case, dict)] if isinstance(benchmarks, list) else []
    signature = _SIGNATURE.search((task["reference"] or "")[:_SIGNED])
    order = re.findall(r"\w+(?=\s*[:,=)])", "" if signature is None else signature[0])
    names = list(dict.fromkeys(name for case in rows for name in case if name != "seed"))
    names = sorted(names, key=lambda name: order.index(name) if name in order else len(order))[:_PARAMETERS]
    if not names:
        return None
    return {
        "names": [sizes.cut(name, _PARAMETER) for name in names],
        "rows": [[sizes.cut(case.get(name, ""), _PARAMETER) for name in names] for case in rows],
        "best_ns": best_ns if len(best_ns) == len(rows) else (),
    }
