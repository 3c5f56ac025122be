"""Pages for people, made on the server, and the routes of all; without scripts they work too, but for live progress."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway import (
    board_pages,
    feeds,
    finals,
    live_pages,
    login,
    open_pages,
    receipt_pages,
    share,
    submission_pages,
)
from runner.extras.gateway.context import app_state
from runner.extras.gateway.html import operator_of, page, require_token, rows_asked_for, show, static
from runner.extras.gateway.identity import Session
from runner.extras.gateway.limits import Route
from runner.extras.gateway.upload import form
from runner.extras.store import RefusedError
from runner.store.connection import Row
from runner.store.records import unused

#: Of a host: its GPU types.
_TYPES: Final = 8
_FRESH_S: Final = 60.0


def routes() -> list[Route]:
    """The routes of all pages."""
    return [
        Route("/", page(board_pages.boards), methods=["GET"]),
        Route("/board/{name}", page(board_pages.board), methods=["GET"]),
        Route("/board/{name}/final", page(finals.order), methods=["POST"]),
        Route("/board/{name}/code/{title}", page(board_pages.code), methods=["GET"]),
        Route("/live", page(live_pages.wall), methods=["GET"]),
        Route("/live/events", live_pages.wall_events, methods=["GET"]),
        Route("/board/{name}/live", page(live_pages.board), methods=["GET"]),
        Route("/board/{name}/live/events", live_pages.board_events, methods=["GET"]),
        Route("/board/{name}/winners", page(open_pages.winners), methods=["GET"]),
        Route("/board/{name}/feed", page(feeds.board), methods=["GET"]),
        Route("/board/{name}/picture", page(share.picture), methods=["GET"]),
        Route("/entry/{id}", page(open_pages.entry), methods=["GET"]),
        Route("/entry/{id}/code", page(open_pages.code), methods=["GET"]),
        Route("/diff", page(open_pages.diff), methods=["GET"]),
        Route("/feed", page(feeds.all_boards), methods=["GET"]),
        Route("/send", page(submission_pages.send), methods=["GET", "POST"]),
        Route("/mine", page(submission_pages.mine), methods=["GET"]),
        Route("/view/{id}", page(submission_pages.view), methods=["GET"]),
        Route("/view/{id}/events", submission_pages.progress, methods=["GET"]),
        Route("/view/{id}/code", page(submission_pages.code), methods=["GET"]),
        Route("/view/{id}/profile/{gpu}/{name}", page(submission_pages.profile_file), methods=["GET"]),
        Route("/view/{id}/cancel", page(submission_pages.cancel), methods=["POST"]),
        Route("/login", page(login.by_token), methods=["GET", "POST"]),
        Route("/login/cli", page(login.attach), methods=["GET", "POST"]),
        Route("/login/{provider}", page(login.begin_oauth), methods=["GET"]),
        Route("/auth/cli/{provider}", page(login.finish_oauth), methods=["GET"]),
        Route("/logout", page(login.logout), methods=["POST"]),
        *receipt_pages.routes(),
        Route("/hosts", page(hosts), methods=["GET"]),
        Route("/users", page(users), methods=["GET", "POST"]),
        Route("/static/{name}", static, methods=["GET"]),
    ]


async def hosts(request: Request, session: Session | None) -> Response:
    """GET /hosts: hosts, queue, open batches and newest verdicts, for operators."""
    operator_of(session)
    current = app_state(request)
    lines = [{**row, **_host(row)} for row in await current.store.all("operator_hosts")]
    some, turning = rows_asked_for(request, lines)
    return show(
        request,
        session,
        "hosts.html",
        hosts=some,
        **turning,
        queue=await current.store.all("operator_queue"),
        batches=await current.store.all("operator_batches"),
        latest=await current.store.all("operator_latest"),
    )


async def users(request: Request, session: Session | None) -> Response:
    """GET and POST /users: operators approve the login of a new user."""
    user = operator_of(session)
    current = app_state(request)
    given = dict.fromkeys(("code", "user", "name"), "")
    approved = refused = ""
    if request.method == "POST":
        fields = await form(request)
        require_token(user, fields)
        given = {key: fields.get(key, "").strip() for key in given}
        try:
            await current.store.one(
                "admit_login", code=given["code"], user_id=given["user"], user_name=given["name"] or None
            )
        except RefusedError as error:
            refused = str(error)
        else:
            approved, given = given["user"], dict.fromkeys(given, "")
    row = await current.store.row("count_waiting")
    return show(
        request,
        session,
        "users.html",
        400 if refused else 200,
        waiting=row["waiting"],
        given=given,
        approved=approved,
        refused=refused,
    )


def _host(row: Row) -> dict[str, Any]:
    if row["stopped_at"] is not None:
        state = "stopped"
    elif row["silent_s"] > _FRESH_S:
        state = "silent"
    else:
        state = "draining" if row["draining"] else "up"
    slots = [slot for slot in row["slots"] if isinstance(slot, dict)] if isinstance(row["slots"], list) else []
    names = [str(slot.get("gpu_type", "?")) for slot in slots if slot.get("quarantined") is None]
    types = {name: names.count(name) for name in sorted(set(names))[:_TYPES]}
    return {"state": state, "types": types, "away": unused(slots)}
