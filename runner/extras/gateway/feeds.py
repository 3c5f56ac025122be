"""Feeds of records, in Atom (RFC 4287): of a public leaderboard, and of all of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as ET

from starlette.requests import Request
from starlette.responses import Response

from runner.base import units
from runner.extras.gateway.context import AppState, Refusal, app_state, kept, moment
from runner.extras.gateway.identity import Session
from runner.extras.gateway.share import address, is_known, public_board, versioned
from runner.store.connection import Row

_ATOM: Final = "http://www.w3.org/2005/Atom"
_ENTRIES: Final = 50
#: Characters of a name that a feed has.
_NAME: Final = 200
#: What no XML may have.
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ET.register_namespace("", _ATOM)


async def board(request: Request, _: Session | None) -> Response:
    """GET /board/{name}/feed: the newest records of a public leaderboard."""
    current = app_state(request)
    base = _base(current)
    board_row = await public_board(current, request.path_params["name"])
    rows = await _records(current, board_row["id"])
    path = f"/board/{quote(board_row['name'], safe='')}"
    return _answer(request, base, path=path, title=f"Records of {board_row['name'][:_NAME]}", rows=rows)


async def all_boards(request: Request, _: Session | None) -> Response:
    """GET /feed: the newest records of all public leaderboards that are open or ended lately."""
    current = app_state(request)
    base = _base(current)
    public = {row["id"] for row in await current.store.all("board_list") if row["visibility"] == "public"}
    rows = [row for row in await _records(current, None) if row["board_id"] in public]
    return _answer(request, base, path="", title="Records of all leaderboards", rows=rows)


def _base(current: AppState) -> str:
    base = address(current)
    if base is None:
        raise Refusal(404, "This gateway has no feeds: its operator has not set gateway_public_url")
    return base


async def _records(current: AppState, board_id: int | None) -> Sequence[Row]:
    """At most half a minute old; read by one request at a time."""
    async with current.reading_records:
        return await _newest_records(current, board_id)


@kept
async def _newest_records(current: AppState, board_id: int | None) -> Sequence[Row]:
    return await current.store.all("records", board_id=board_id, limit=_ENTRIES)


def _answer(request: Request, base: str, *, path: str, title: str, rows: Sequence[Row]) -> Response:
    body = document(base, path=path, title=title, rows=rows)
    version = hashlib.sha256(body).hexdigest()[:16]
    unchanged = is_known(request, version)
    return versioned(
        b"" if unchanged else body, "application/atom+xml; charset=utf-8", version, status=304 if unchanged else 200
    )


def document(base: str, *, path: str, title: str, rows: Sequence[Row]) -> bytes:
    """A feed; `path`: of the page that it is about."""
    feed = ET.Element(f"{{{_ATOM}}}feed")
    _text(feed, "id", f"{base}{path}/feed")
    _text(feed, "title", title)
    newest = max((row["submission_time"] for row in rows), default=datetime.fromtimestamp(0, UTC))
    _text(feed, "updated", moment(newest) or "")
    ET.SubElement(feed, f"{{{_ATOM}}}link", rel="self", href=f"{base}{path}/feed")
    ET.SubElement(feed, f"{{{_ATOM}}}link", rel="alternate", type="text/html", href=f"{base}{path or '/'}")
    host = (urlsplit(base).hostname or "").lower()
    for row in rows:
        name, gpu, time = row["leaderboard"][:_NAME], row["gpu_type"][:_NAME], units.score(row["score"])
        user = str(row["user_name"] or row["user_id"])[:_NAME]
        entry = ET.SubElement(feed, f"{{{_ATOM}}}entry")
        # A tag URI (RFC 4151) outlives names and addresses.
        day = row["submission_time"].astimezone(UTC)
        _text(entry, "id", f"tag:{host},{day:%Y-%m-%d}:record/{row['submission_id']}/{quote(gpu, safe='')}")
        _text(entry, "title", f"{name} on {gpu}: {time} by {user}")
        _text(entry, "updated", moment(row["submission_time"]) or "")
        _text(ET.SubElement(entry, f"{{{_ATOM}}}author"), "name", user)
        href = f"{base}/board/{quote(row['leaderboard'], safe='')}?gpu={quote(row['gpu_type'], safe='')}"
        ET.SubElement(entry, f"{{{_ATOM}}}link", rel="alternate", type="text/html", href=href)
        before = row["before"]
        gain = (
            "The first score." if before is None else f"{units.percent(1 - row['score'] / before)} faster than before."
        )
        _text(entry, "summary", gain)
    xml: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
    return xml


def _text(parent: ET.Element, name: str, text: str) -> None:
    ET.SubElement(parent, f"{{{_ATOM}}}{name}").text = _NO_XML.sub("\ufffd", text)
