"""Pages for people, made on the server; without scripts they work too, but for live progress.

A form counts only with the session's token and from a page of this address.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from runner.errors import DatabaseUnavailableError
from runner.gateway import charts, identity, oauth, results, sizes
from runner.gateway.boards import admit, named, own_name
from runner.gateway.context import Door, Refusal, door, path_number, query_number
from runner.gateway.identity import COOKIE, OPERATOR, SESSION_S, Session, User
from runner.gateway.submissions import HEARTBEAT_S, MODES, STREAM_S, event, owned, store
from runner.gateway.upload import Upload, form, upload
from runner.store.gateway import RefusedError, Row

_HERE: Final = Path(__file__).parent
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_STATIC: Final = {"style.css": "text/css; charset=utf-8", "progress.js": "text/javascript; charset=utf-8"}
#: What a page shows of long things: lines of lists, and bytes of texts.
PLACES: Final = 100
_LINES: Final = 50
_ROWS: Final = 50
_DESCRIPTION: Final = 8000
_SOURCES: Final = 20_000
_CASES: Final = 36_000
_OUTPUTS: Final = 18_000
_OUTPUT: Final = 4000
_CODE: Final = 24_000
#: Of a case: its texts, and what its line has beside them.
_SPEC: Final = 120
_MESSAGE: Final = 240
_CASE: Final = 420
#: Of a leaderboard: its templates, and the name of a template's language.
_TEMPLATES: Final = 8
_LANG: Final = 40
#: A submission to several GPU types has some runs on each.
_RUNS: Final = 40
#: Of a host or a leaderboard: its GPU types.
_TYPES: Final = 8
_FRESH_S: Final = 60.0
#: From how many scores a leaderboard's drawings are made, and how many records are listed.
_SCORES: Final = 3000
_RECORDS: Final = 20

Page = Callable[[Request], Awaitable[Response]]


def _seconds(value: object) -> str:
    """A score for people."""
    number = results.number(value)
    return results.nanoseconds(None if number is None else number * 1e9)


def _when(value: datetime | None) -> str:
    return "" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


_templates: Final = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(
    seconds=_seconds, when=_when, ns=results.nanoseconds, segment=lambda text: quote(text, safe=""), cut=sizes.cut
)
_templates.globals.update(description_bytes=_DESCRIPTION, spec_bytes=_SPEC, message_bytes=_MESSAGE)


def routes() -> list[Route]:
    """The routes of all pages."""
    return [
        Route("/", page(boards), methods=["GET"]),
        Route("/board/{name}", page(board), methods=["GET"]),
        Route("/send", page(send), methods=["GET", "POST"]),
        Route("/mine", page(mine), methods=["GET"]),
        Route("/view/{id}", page(view), methods=["GET"]),
        Route("/view/{id}/events", progress, methods=["GET"]),
        Route("/view/{id}/code", page(code), methods=["GET"]),
        Route("/view/{id}/cancel", page(cancel), methods=["POST"]),
        Route("/login", page(login), methods=["GET", "POST"]),
        Route("/login/cli", page(attach), methods=["GET", "POST"]),
        Route("/login/{provider}", page(begin_oauth), methods=["GET"]),
        Route("/auth/cli/{provider}", page(finish_oauth), methods=["GET"]),
        Route("/logout", page(logout), methods=["POST"]),
        Route("/hosts", page(hosts), methods=["GET"]),
        Route("/users", page(users), methods=["GET", "POST"]),
        Route("/static/{name}", static, methods=["GET"]),
    ]


def page(handler: Callable[[Request, Session | None], Awaitable[Response]]) -> Page:
    """A route that makes a page: it knows who is logged in, and what is refused becomes a page too."""

    @functools.wraps(handler)
    async def answer(request: Request) -> Response:
        session: Session | None = None
        try:
            session = await identity.session(request)
            if session is None:
                identity.from_here(request)
            if request.method == "POST":
                _from_this_site(request)
            return await handler(request, session)
        except Refusal as refusal:
            if refusal.status == 401 and request.method == "GET":
                return _to(f"/login?{urlencode({'next': request.url.path})}")
            return _refused(request, session, refusal)
        except DatabaseUnavailableError:
            return _show(request, None, "error.html", 503, message="The database is away. Try again in a moment.")

    return answer


def _refused(request: Request, session: Session | None, refusal: Refusal) -> Response:
    detail = refusal.detail if isinstance(refusal.detail, str) else "Something in the form is missing"
    made = _show(request, session, "error.html", refusal.status, message=detail)
    made.headers.update(refusal.headers)
    return made


async def boards(request: Request, session: Session | None) -> Response:
    """GET /: the leaderboards."""
    found = await door(request).store.all("board_list", tasks=False)
    lines = sorted(found, key=lambda line: (line["over"], line["deadline"], line["name"]))
    some, turning = _rows(request, lines)
    return _show(request, session, "boards.html", boards=some, **turning)


async def board(request: Request, session: Session | None) -> Response:
    """GET /board/{name}: what it is, and its ranking on one GPU type."""
    current = door(request)
    found = await named(current, request.path_params["name"])
    await admit(current, found, None if session is None else session.user)
    gpu = own_name(found, request.query_params.get("gpu", "")) or next(iter(found["gpus"]), "")
    offset = query_number(request, "offset", 0, low=0, high=1_000_000)
    places = await current.store.all("places", leaderboard=found["name"], gpu_type=gpu, limit=PLACES + 1, offset=offset)
    told = await current.store.one("board_reference", board_id=found["id"]) or {
        "reference": None,
        "ranking_by": None,
        "templates": [],
    }
    budget = sizes.Budget(_SOURCES)
    sources = [("Reference", told["reference"]), *((f"Template for {lang}", code) for lang, code in told["templates"])]
    return _show(
        request,
        session,
        "board.html",
        sources=[(title[:_LANG], budget.text(code, _SOURCES)) for title, code in sources[:_TEMPLATES] if code],
        scores_drawn=_SCORES,
        drawn=await drawn(current, found["id"], gpu, told["ranking_by"]),
        board=found,
        gpu=gpu,
        places=places[:PLACES],
        offset=offset,
        size=PLACES,
        more=len(places) > PLACES,
    )


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a leaderboard's page shows of its scores on one GPU type."""

    progression: charts.Drawing | None
    distribution: charts.Drawing | None
    #: The newest scores that were the best when they came.
    records: Sequence[charts.Score]
    #: There are more scores than these.
    cut: bool


async def drawn(current: Door, board_id: int, gpu: str, ranking_by: str | None) -> Drawn:
    """The drawings of a leaderboard; at most half a minute old."""
    known = current.drawings.get((board_id, gpu))
    if isinstance(known, Drawn):
        return known
    found = await current.store.all("board_scores", board_id=board_id, gpu_type=gpu, limit=_SCORES)
    scores = [
        charts.Score(
            at=row["submission_time"],
            seconds=row["score"],
            user_id=row["user_id"],
            user_name=row["user_name"],
            submission_id=row["submission_id"],
        )
        for row in found
    ]
    light_s = None
    if scores:
        best = min(scores, key=lambda score: score.seconds)
        told = await current.store.one("best_result", submission_id=best.submission_id, gpu_type=gpu)
        light_s = None if told is None else charts.light_of(told["result"], ranking_by)
    made = Drawn(
        progression=charts.progression(scores, light_s),
        distribution=charts.distribution(scores, light_s),
        records=charts.records(scores)[::-1][:_RECORDS],
        cut=len(found) >= _SCORES,
    )
    current.drawings.put((board_id, gpu), made)
    return made


async def mine(request: Request, session: Session | None) -> Response:
    """GET /mine: the user's submissions."""
    user = _user(session)
    offset = query_number(request, "offset", 0, low=0, high=1_000_000)
    found = await door(request).store.all(
        "my_submissions", user_id=user.user.id, leaderboard=None, limit=_LINES + 1, offset=offset
    )
    return _show(
        request,
        session,
        "mine.html",
        lines=found[:_LINES],
        offset=offset,
        size=_LINES,
        more=len(found) > _LINES,
        attachable=bool(door(request).providers) and not user.user.operator,
    )


async def send(request: Request, session: Session | None) -> Response:
    """GET and POST /send: a file or pasted text."""
    user = _user(session)
    if user.user.operator:
        raise Refusal(403, "The operator has no submissions; log in as a user")
    current = door(request)
    if request.method == "GET":
        found = await named(current, request.query_params.get("board", ""))
        await admit(current, found, user.user)
        gpu = own_name(found, request.query_params.get("gpu", ""))
        return _show(request, session, "send.html", board=found, gpu=gpu, modes=MODES)
    sent = await upload(request)
    _with_token(user, sent.fields)
    pasted = sent.fields.get("code", "")
    if not sent.code and pasted:
        # Forms send line feeds as two characters.
        name = sent.fields.get("name") or "submission.py"
        sent = Upload(name=name, code=pasted.replace("\r\n", "\n").encode("utf-8", "replace"), fields=sent.fields)
    submission_id, _, _ = await store(
        current,
        user.user,
        board_name=sent.fields.get("board", ""),
        gpu=sent.fields.get("gpu", ""),
        mode=sent.fields.get("mode", "test"),
        sent=sent,
    )
    return _to(f"/view/{submission_id}")


async def view(request: Request, session: Session | None) -> Response:
    """GET /view/{id}: a submission, for its author and operators."""
    user = _user(session)
    current = door(request)
    submission_id = path_number(request, "id")
    found = await owned(current, submission_id, user.user)
    status = await current.store.one("submission_status", submission_id=submission_id)
    code = results.source(found["code"])
    cases, outputs = sizes.Budget(_CASES), sizes.Budget(_OUTPUTS)
    runs = []
    for row in found["runs"] or ():
        lines = [] if row["secret"] else results.cases(row["result"])
        shown_lines = cases.lines(lines, _case_bytes)
        runs.append(
            {
                **_told(row, outputs),
                "cases": shown_lines,
                "hidden": len(lines) - len(shown_lines),
                "roofline": charts.roofline(lines),
            }
        )
    return _show(
        request,
        session,
        "view.html",
        submission=found,
        status=status,
        runs=runs[:_RUNS],
        code=sizes.cut(code, _CODE),
        progress=_progress(found, status),
    )


def _case_bytes(case: Mapping[str, Any]) -> int:
    """How large a case's line is at most."""
    return _CASE + len(sizes.cut(case["spec"], _SPEC).encode()) + len(sizes.cut(case["message"], _MESSAGE).encode())


async def code(request: Request, session: Session | None) -> Response:
    """GET /view/{id}/code: the whole code, as a file to be saved."""
    user = _user(session)
    found = await owned(door(request), path_number(request, "id"), user.user)
    return Response(
        results.source(found["code"]),
        media_type="text/plain; charset=utf-8",
        headers={**_HEADERS, "Content-Disposition": f'attachment; filename="submission-{found["id"]}.txt"'},
    )


async def cancel(request: Request, session: Session | None) -> Response:
    """POST /view/{id}/cancel."""
    user = _user(session)
    _with_token(user, await form(request))
    current = door(request)
    submission_id = path_number(request, "id")
    found = await owned(current, submission_id, user.user, with_code=False)
    await current.store.one("cancel", submission_id=submission_id, user_id=found["user_id"])
    return _to(f"/view/{submission_id}")


async def login(request: Request, session: Session | None) -> Response:
    """GET and POST /login: by the token of popcorn-cli, or the admin token."""
    if request.method == "GET":
        return _login_page(request, session, _local(request.query_params.get("next", "")))
    current = door(request)
    fields = await form(request)
    token = fields.get("token", "").strip()
    who = OPERATOR if identity.is_admin_token(current, token) else await identity.by_token(current, token, web=False)
    cookie = None if who is None else await identity.new_cookie(current, who)
    next_page = _local(fields.get("next", ""))
    if cookie is None:
        wait_s = current.limits.attempt.take(identity.address(request))
        if wait_s:
            raise Refusal(429, f"Too many attempts. Try again in {int(wait_s) + 1}s.", retry_after_s=wait_s)
        return _login_page(request, session, next_page, failed=True)
    return _logged_in(request, _to(next_page), cookie)


def _login_page(request: Request, session: Session | None, next_page: str, *, failed: bool = False) -> Response:
    others = [(provider.name, provider.title) for provider in door(request).providers.values()]
    answer = 401 if failed else 200
    return _show(request, session, "login.html", answer, next=next_page, failed=failed, providers=others)


def _logged_in(request: Request, made: Response, cookie: str) -> Response:
    made.set_cookie(
        COOKIE, cookie, max_age=SESSION_S, httponly=True, samesite="lax", secure=request.url.scheme == "https", path="/"
    )
    return made


async def begin_oauth(request: Request, session: Session | None) -> Response:
    """GET /login/{provider}: to GitHub or Discord, and from there back to `finish_oauth`."""
    made = await oauth.begin(request, session, _local(request.query_params.get("next", "")))
    made.headers.update(_HEADERS)
    return made


async def finish_oauth(request: Request, session: Session | None) -> Response:
    """GET /auth/cli/{provider}: logged in, where this very browser began it. The path is KernelBot's."""
    try:
        who, next_page = await oauth.finish(request)
        made = await _welcome(request, who, _local(next_page))
    except Refusal as refusal:
        made = _refused(request, session, refusal)
    oauth.forget(made, door(request))
    return made


async def attach(request: Request, session: Session | None) -> Response:
    """GET and POST /login/cli: a user who came by OAuth lets popcorn-cli in."""
    user = _user(session)
    if request.method == "GET":
        return _show(request, session, "attach.html")
    fields = await form(request)
    _with_token(user, fields)
    current = door(request)
    await oauth.attach(current, user, fields.get("code", ""))
    # The user's credentials are others now, and a session is signed with them.
    return await _welcome(request, user.user, "/mine")


async def _welcome(request: Request, who: User, path: str) -> Response:
    """To a page, with a new session."""
    cookie = await identity.new_cookie(door(request), who)
    if cookie is None:
        raise Refusal(403, "This user's logins have just been ended")
    return _logged_in(request, _to(path), cookie)


async def logout(request: Request, session: Session | None) -> Response:
    """POST /logout: this browser forgets; `kernel-runner user revoke` ends all sessions of a user."""
    if session is not None:
        _with_token(session, await form(request))
    made = _to("/")
    made.delete_cookie(COOKIE, path="/")
    return made


async def hosts(request: Request, session: Session | None) -> Response:
    """GET /hosts: hosts, queue, open batches and newest verdicts, for operators."""
    _operator(session)
    current = door(request)
    lines = [{**row, **_host(row)} for row in await current.store.all("operator_hosts")]
    some, turning = _rows(request, lines)
    return _show(
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
    user = _operator(session)
    current = door(request)
    given = dict.fromkeys(("code", "user", "name"), "")
    approved = refused = ""
    if request.method == "POST":
        fields = await form(request)
        _with_token(user, fields)
        given = {key: fields.get(key, "").strip() for key in given}
        try:
            await current.store.one(
                "admit_login", code=given["code"], user_id=given["user"], user_name=given["name"] or None
            )
        except RefusedError as error:
            refused = str(error)
        else:
            approved, given = given["user"], dict.fromkeys(given, "")
    found = await current.store.one("count_waiting")
    return _show(
        request,
        session,
        "users.html",
        400 if refused else 200,
        waiting=0 if found is None else found["waiting"],
        given=given,
        approved=approved,
        refused=refused,
    )


async def progress(request: Request) -> Response:
    """GET /view/{id}/events: how far a submission is, until it is over."""
    session = await identity.session(request)
    user = _user(session)
    current = door(request)
    submission_id = path_number(request, "id")
    await owned(current, submission_id, user.user, with_code=False)
    if not current.limits.open_stream(user.user.id):
        raise Refusal(429, "Too many open streams", retry_after_s=30)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _progress_events(current, submission_id, user.user.id), media_type="text/event-stream", headers=headers
    )


async def _progress_events(current: Door, submission_id: int, user_id: str) -> AsyncIterator[bytes]:
    until = time.monotonic() + STREAM_S
    last: Mapping[str, Any] | None = None
    current.metrics.streams.inc()
    try:
        async with current.watcher.follow(submission_id) as happened:
            while time.monotonic() < until and not current.watcher.leaving:
                happened.clear()
                try:
                    found = await current.store.one("submission", submission_id=submission_id, with_code=False)
                    status = await current.store.one("submission_status", submission_id=submission_id)
                except DatabaseUnavailableError:
                    yield b": the database is away\n\n"
                    continue
                told = {"text": "deleted", "done": True} if found is None else _progress(found, status)
                yield b": alive\n\n" if told == last else event("progress", told)
                last = told
                if told["done"]:
                    return
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await happened.wait()
                except TimeoutError:
                    continue
    finally:
        current.metrics.streams.dec()
        current.limits.close_stream(user_id)


async def static(request: Request) -> Response:
    """GET /static/{name}: the style sheet and the script."""
    name = request.path_params["name"]
    if name not in _STATIC:
        raise Refusal(404, "Not Found")
    body = (_HERE / "static" / name).read_bytes()
    return Response(body, media_type=_STATIC[name], headers={"Cache-Control": "public, max-age=300"})


def _progress(found: Row, status: Row | None) -> dict[str, Any]:
    """One line about a submission."""
    if status is None:
        word = found["status"] or ("done" if found["done"] else "waiting")
        return {"text": word, "done": found["done"]}
    if status["state"] in ("done", "cancelled"):
        return {"text": status["verdict"] or status["state"], "done": bool(found["done"])}
    text = status["phase"] or status["state"]
    if status["state"] == "queued" and status["position"]:
        text += f", place {status['position']}"
    if status["no_host_since"]:
        text += ", no host of this GPU type is up"
    if status["paused"]:
        text += f", paused: {status['paused']}"
    return {"text": text, "done": False}


def _told(row: Row, budget: sizes.Budget) -> dict[str, Any]:
    """What the page shows of a run, as far as the budget allows."""
    meta = results.picked(row["meta"], results.META) or {}
    compiled = results.picked(row["compilation"], results.COMPILATION) or {}
    return {
        "mode": row["mode"],
        "secret": row["secret"],
        "gpu": row["gpu_type"],
        "passed": row["passed"],
        "score": row["score"],
        "duration": results.number(meta.get("duration")),
        "exit_code": meta.get("exit_code"),
        "outputs": [
            (name, budget.end(text, _OUTPUT), len(str(text)) > _OUTPUT)
            for name, text in (
                ("compiler", compiled.get("stderr")),
                ("stdout", meta.get("stdout")),
                ("stderr", meta.get("stderr")),
            )
            if text
        ],
    }


def _host(row: Row) -> dict[str, Any]:
    if row["stopped_at"] is not None:
        state = "stopped"
    elif row["silent_s"] > _FRESH_S:
        state = "silent"
    else:
        state = "draining" if row["draining"] else "up"
    slots = [slot for slot in row["slots"] if isinstance(slot, dict)] if isinstance(row["slots"], list) else []
    names = [str(slot.get("gpu_type", "?")) for slot in slots]
    return {"state": state, "types": {name: names.count(name) for name in sorted(set(names))[:_TYPES]}}


def _rows(request: Request, lines: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], dict[str, int]]:
    """The lines of a list that the request asks for, and what its page needs to turn over."""
    offset = query_number(request, "offset", 0, low=0, high=1_000_000)
    turning = {"offset": offset, "size": _ROWS, "more": len(lines) > offset + _ROWS}
    return lines[offset : offset + _ROWS], turning


def _show(request: Request, session: Session | None, template: str, answer: int = 200, /, **values: object) -> Response:
    text = _templates.get_template(template).render(session=session, here=request.url.path, **values)
    return Response(text, answer, media_type="text/html; charset=utf-8", headers=_HEADERS)


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, headers=_HEADERS)


def _user(session: Session | None) -> Session:
    if session is None:
        raise Refusal(401, "Log in first")
    return session


def _operator(session: Session | None) -> Session:
    user = _user(session)
    if not user.user.operator:
        raise Refusal(403, "This page is for operators: log in with the admin token")
    return user


def _with_token(session: Session, fields: Mapping[str, str]) -> None:
    if not identity.same(fields.get("csrf", ""), session.csrf):
        raise Refusal(403, "This form is too old. Load the page again.")


def _from_this_site(request: Request) -> None:
    """Refuse a form that a page of another address sends; browsers say where a form comes from."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site not in (None, "same-origin", "none") or (
        origin is not None and urlsplit_host(origin) != request.headers.get("host", "")
    ):
        raise Refusal(403, "This form comes from another site")
    if site is None and origin is None:
        raise Refusal(403, "This form does not say where it comes from")


def urlsplit_host(origin: str) -> str:
    """Host and port of an origin; empty for one that is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _local(path: str) -> str:
    """A path of this service to go on to; anything else becomes the first page."""
    plain = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable()
    return path if plain and "\\" not in path and len(path) < 300 else "/"
