"""How a leaderboard looks elsewhere: what the head of its page tells chats and feed readers, and its ranking's picture.

Public leaderboards alone, and only where `gateway_public_url` says under which address they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from runner.base import units
from runner.base.results import number
from runner.extras.gateway import pictures
from runner.extras.gateway.boards import named, own_name
from runner.extras.gateway.context import AppState, Refusal, app_state
from runner.extras.gateway.identity import Session
from runner.store.connection import Row

#: One answer for a leaderboard that is not there and one that is not public.
NOT_PUBLIC: Final = "There is no public leaderboard of this name"
#: Characters of a title and of a text.
_TITLE: Final = 100
_TEXT: Final = 200


@dataclass(frozen=True, kw_only=True)
class Share:
    """What the head of a page says; addresses are whole, but for the feed's."""

    feed: str
    url: str
    title: str
    text: str
    picture: str | None = None
    #: What the picture shows, in words.
    alt: str = ""


def address(current: AppState) -> str | None:
    """Under which address people reach this service, without a slash at its end."""
    url = current.config.gateway_public_url
    return None if url is None else url.rstrip("/")


def of_all(current: AppState) -> Share | None:
    """Of the list of leaderboards."""
    base = address(current)
    if base is None:
        return None
    return Share(feed="/feed", url=f"{base}/", title="Leaderboards", text="Leaderboards of GPU kernels")


def of_board(
    current: AppState, board: Row, gpu: str, *, rows: Sequence[Row], entries: int, page: str | None = None
) -> Share | None:
    """Of a leaderboard's page on a GPU type, or of another `page` about it; `rows`: its ranking's first places."""
    base = address(current)
    if base is None or board["visibility"] != "public":
        return None
    card = card_of(board, gpu, rows=rows, entries=entries)
    path, query = f"/board/{quote(board['name'], safe='')}", f"?gpu={quote(gpu, safe='')}"
    first = "; ".join(f"{place.rank}. {place.user} {place.time}" for place in card.places[:3])
    return Share(
        feed=f"{path}/feed",
        url=f"{base}{page or path + query}",
        title=f"{board['name']} on {gpu}"[:_TITLE],
        text=(first or "No score ranks here yet")[:_TEXT],
        picture=f"{base}{path}/picture{query}&v={card.version}",
        alt=f"Ranking on {gpu}: {first}"[:_TEXT],
    )


def of_entry(current: AppState, entry: Row, gpu: str, *, score_s: float, place: Row | None) -> Share | None:
    """Of the page of a submission whose code is public."""
    base = address(current)
    if base is None:
        return None
    path, query = f"/board/{quote(entry['leaderboard'], safe='')}", f"?gpu={quote(gpu, safe='')}"
    rank = "" if place is None else f", {place['rank']} of {place['entries']}"
    return Share(
        feed=f"{path}/feed",
        url=f"{base}/entry/{entry['submission_id']}{query}",
        title=f"{entry['user_name']}: {units.score(score_s)} on {gpu}"[:_TITLE],
        text=f"{entry['leaderboard']}{rank}"[:_TEXT],
        picture=f"{base}{path}/picture{query}",
        alt=f"Ranking on {gpu}"[:_TEXT],
    )


def card_of(board: Row, gpu: str, *, rows: Sequence[Row], entries: int) -> pictures.Card:
    """What the picture of a ranking shows."""
    count = f"{entries} {'entry' if entries == 1 else 'entries'}"
    return pictures.Card(
        title=board["name"][:_TITLE],
        subtitle=f"Ranking on {gpu[:_TITLE]} · {count} · {'ended' if board['over'] else 'open'}",
        places=tuple(
            pictures.Place(
                rank=str(row["rank"]),
                user=str(row["user_name"] or row["user_id"])[:_TITLE],
                time=units.score(number(row["score"])),
            )
            for row in rows[: pictures.PLACES]
        ),
    )


def gaps(row: Mapping[str, Any]) -> dict[str, float | None]:
    """How far a score is from the one ahead and from the best."""
    score_s, best_s, ahead_s = number(row["score"]), number(row["best"]), number(row["ahead"])
    return {
        "behind": score_s / ahead_s - 1 if score_s and ahead_s else None,
        "times_best": score_s / best_s if score_s and best_s else None,
    }


async def public_board(current: AppState, name: str) -> Row:
    """A public leaderboard.

    Raises:
        Refusal: 404, there is none, or it is not public.
    """
    try:
        board = await named(current, name)
    except Refusal:
        raise Refusal(404, NOT_PUBLIC) from None
    if board["visibility"] != "public":
        raise Refusal(404, NOT_PUBLIC)
    return board


async def picture(request: Request, _: Session | None) -> Response:
    """GET /board/{name}/picture: the first places of a ranking."""
    current = app_state(request)
    board = await public_board(current, request.path_params["name"])
    gpu = own_name(board, request.query_params.get("gpu", "")) or next(iter(board["gpus"]), "")
    if gpu not in board["gpus"]:
        raise Refusal(404, "This leaderboard does not have this GPU type")
    key = ("card", board["name"], gpu)
    card = current.drawings.get(key)
    if not isinstance(card, pictures.Card):
        rows = await current.store.all(
            "places", leaderboard=board["name"], gpu_type=gpu, limit=pictures.PLACES, offset=0
        )
        row = await current.store.row("count_places", leaderboard=board["name"], gpu_type=gpu)
        card = card_of(board, gpu, rows=rows, entries=row["count"])
        current.drawings.put(key, card)
    if is_known(request, card.version):
        return versioned(b"", "image/png", card.version, status=304)
    # One at a time: a picture takes a tenth of a second, and equal ones are drawn once.
    async with current.drawing:
        body = await asyncio.to_thread(pictures.draw, card)
    return versioned(body, "image/png", card.version)


def is_known(request: Request, version: str) -> bool:
    """Whether the client has this version."""
    return f'"{version}"' in request.headers.get("if-none-match", "")


def versioned(body: bytes, media_type: str, version: str, *, status: int = 200) -> Response:
    """An answer that a client may keep, and asks for again with its version."""
    return Response(body, status, media_type=media_type, headers={"Cache-Control": "no-cache", "ETag": f'"{version}"'})
