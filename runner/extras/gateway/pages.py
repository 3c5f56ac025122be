"""Pages for people, made on the server; without scripts they work too, but for live progress."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from runner.base.errors import DatabaseUnavailableError
from runner.base.results import Case, cases, number
from runner.extras.gateway import charts, identity, login_pages, results, sizes
from runner.extras.gateway.boards import admit, named, own_name
from runner.extras.gateway.context import AppState, Refusal, app_state, off_loop, path_number, query_number
from runner.extras.gateway.html import (
    HEADERS,
    MESSAGE_BYTES,
    SPEC_BYTES,
    go_to,
    operator_of,
    page,
    require_token,
    rows_asked_for,
    show,
    static,
    user_of,
)
from runner.extras.gateway.identity import Session
from runner.extras.gateway.submissions import HEARTBEAT_S, MODES, STREAM_S, event, owned, store
from runner.extras.gateway.upload import Upload, form, upload
from runner.store.gateway import RefusedError, Row

#: What a page shows of long things: lines of lists, and bytes of texts.
PLACES: Final = 100
_LINES: Final = 50
_SOURCES: Final = 20_000
_CASES: Final = 36_000
_OUTPUTS: Final = 18_000
_OUTPUT: Final = 4000
_REPORT: Final = 12_000
#: Of a submission's profiles.
_FILES: Final = 40
_CODE: Final = 24_000
#: Of a leaderboard: its templates, and the name of a template's language.
_TEMPLATES: Final = 8
_LANG: Final = 40
#: Of a case: what its line has beside its texts.
_CASE: Final = 460
#: A submission to several GPU types has some runs on each.
_RUNS: Final = 40
#: Of a host or a leaderboard: its GPU types.
_TYPES: Final = 8
_FRESH_S: Final = 60.0
#: From how many scores a leaderboard's drawings are made, and how many records are listed.
_SCORES: Final = 3000
_RECORDS: Final = 20


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
        Route("/view/{id}/profile/{gpu}/{name}", page(profile_file), methods=["GET"]),
        Route("/view/{id}/cancel", page(cancel), methods=["POST"]),
        Route("/login", page(login_pages.login), methods=["GET", "POST"]),
        Route("/login/cli", page(login_pages.attach), methods=["GET", "POST"]),
        Route("/login/{provider}", page(login_pages.begin_oauth), methods=["GET"]),
        Route("/auth/cli/{provider}", page(login_pages.finish_oauth), methods=["GET"]),
        Route("/logout", page(login_pages.logout), methods=["POST"]),
        Route("/hosts", page(hosts), methods=["GET"]),
        Route("/users", page(users), methods=["GET", "POST"]),
        Route("/static/{name}", static, methods=["GET"]),
    ]


async def boards(request: Request, session: Session | None) -> Response:
    """GET /: the leaderboards."""
    found = await app_state(request).store.all("board_list")
    lines = sorted(found, key=lambda line: (line["over"], line["deadline"], line["name"]))
    some, turning = rows_asked_for(request, lines)
    return show(request, session, "boards.html", boards=some, **turning)


async def board(request: Request, session: Session | None) -> Response:
    """GET /board/{name}: what it is, and its ranking on one GPU type."""
    current = app_state(request)
    found = await named(current, request.path_params["name"])
    await admit(current, found, None if session is None else session.user)
    gpu = own_name(found, request.query_params.get("gpu", "")) or next(iter(found["gpus"]), "")
    offset = query_number(request, "offset", 0, low=0, high=1_000_000)
    places = await current.store.all("places", leaderboard=found["name"], gpu_type=gpu, limit=PLACES + 1, offset=offset)
    shown_ids = [place["submission_id"] for place in places[:PLACES]]
    validated = await current.store.all("validations_of_board", leaderboard=found["name"], gpu_type=gpu, ids=shown_ids)
    told = await current.store.one("board_reference", board_id=found["id"]) or {
        "reference": None,
        "ranking_by": None,
        "templates": [],
    }
    budget = sizes.Budget(_SOURCES)
    sources = [("Reference", told["reference"]), *((f"Template for {lang}", code) for lang, code in told["templates"])]
    return show(
        request,
        session,
        "board.html",
        sources=[(title[:_LANG], budget.text(code, _SOURCES)) for title, code in sources[:_TEMPLATES] if code],
        scores_drawn=_SCORES,
        drawn=await drawn(current, found["id"], gpu, told["ranking_by"]),
        board=found,
        gpu=gpu,
        places=places[:PLACES],
        validated={row["submission_id"]: row for row in validated},
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


async def drawn(current: AppState, board_id: int, gpu: str, ranking_by: str | None) -> Drawn:
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
    user = user_of(session)
    offset = query_number(request, "offset", 0, low=0, high=1_000_000)
    found = await app_state(request).store.all(
        "my_submissions", user_id=user.user.id, leaderboard=None, limit=_LINES + 1, offset=offset
    )
    states = await app_state(request).store.all("verdicts", ids=[line["id"] for line in found])
    return show(
        request,
        session,
        "mine.html",
        lines=found[:_LINES],
        states={line["submission_id"]: line["verdict"] or line["phase"] or line["state"] for line in states},
        offset=offset,
        size=_LINES,
        more=len(found) > _LINES,
        attachable=bool(app_state(request).providers) and not user.user.operator,
    )


async def send(request: Request, session: Session | None) -> Response:
    """GET and POST /send: a file or pasted text."""
    user = user_of(session)
    if user.user.operator:
        raise Refusal(403, "The operator has no submissions; log in as a user")
    current = app_state(request)
    if request.method == "GET":
        found = await named(current, request.query_params.get("board", ""))
        await admit(current, found, user.user)
        gpu = own_name(found, request.query_params.get("gpu", ""))
        return show(request, session, "send.html", board=found, gpu=gpu, modes=MODES)
    sent = await upload(request)
    require_token(user, sent.fields)
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
    return go_to(f"/view/{submission_id}")


async def view(request: Request, session: Session | None) -> Response:
    """GET /view/{id}: a submission, for its author and operators."""
    user = user_of(session)
    current = app_state(request)
    submission_id = path_number(request, "id")
    found = await owned(current, submission_id, user.user)
    status = await current.store.one("submission_status", submission_id=submission_id)
    validated = await current.store.all("validations_of_submission", submission_id=submission_id)
    files: Sequence[Row] = ()
    if any(row["mode"].startswith("profile") for row in found["runs"] or ()):
        files = await current.store.all("profile_files", submission_id=submission_id)
    return await off_loop(
        found, lambda: _view_page(request, session, found, status, validated=validated, files=files[:_FILES])
    )


def _view_page(
    request: Request,
    session: Session | None,
    found: Row,
    status: Row | None,
    *,
    validated: Sequence[Row],
    files: Sequence[Row],
) -> Response:
    code = results.source(found["code"])
    rows, outputs = sizes.Budget(_CASES), sizes.Budget(_OUTPUTS)
    runs = []
    for row in found["runs"] or ():
        lines = [] if row["secret"] else cases(row["result"], most=results.MOST_CASES)
        shown_lines = rows.lines(lines, _case_bytes)
        runs.append(
            {
                **_told(row, outputs),
                "cases": shown_lines,
                "reports": [outputs.text(case.report, _REPORT) for case in shown_lines if case.report],
                "files": [file for file in files if _is_of(file, row)],
                "hidden": len(lines) - len(shown_lines),
                "roofline": charts.roofline(lines),
            }
        )
    return show(
        request,
        session,
        "view.html",
        submission=found,
        status=status,
        validated=validated,
        runs=runs[:_RUNS],
        code=sizes.cut(code, _CODE),
        progress=_progress(found, status),
    )


def _is_of(file: Row, row: Row) -> bool:
    """Whether a file was left by this run."""
    return bool(file["gpu_type"] == row["gpu_type"] and file["name"].startswith(f"{row['mode']}."))


async def profile_file(request: Request, session: Session | None) -> Response:
    """GET /view/{id}/profile/{gpu}/{name}: a file of a profile, to be saved."""
    user = user_of(session)
    current = app_state(request)
    submission_id = path_number(request, "id")
    await owned(current, submission_id, user.user, with_code=False, with_runs=False)
    gpu, name = request.path_params["gpu"], request.path_params["name"]
    found = await current.store.one("profile_file", submission_id=submission_id, gpu_type=gpu, name=name)
    if found is None:
        raise Refusal(404, f"Submission {submission_id} has no such file; profiles are kept for 30 days")
    saved = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="submission-{submission_id}.{saved}"'}
    return Response(bytes(found["data"]), media_type="application/octet-stream", headers=headers)


def _case_bytes(case: Case) -> int:
    """How large a case's line is at most."""
    return (
        _CASE
        + len(sizes.cut(case.spec, SPEC_BYTES).encode())
        + len(sizes.cut(case.error or case.message or "", MESSAGE_BYTES).encode())
    )


async def code(request: Request, session: Session | None) -> Response:
    """GET /view/{id}/code: the whole code, as a file to be saved."""
    user = user_of(session)
    found = await owned(app_state(request), path_number(request, "id"), user.user, with_runs=False)
    return Response(
        results.source(found["code"]),
        media_type="text/plain; charset=utf-8",
        headers={**HEADERS, "Content-Disposition": f'attachment; filename="submission-{found["id"]}.txt"'},
    )


async def cancel(request: Request, session: Session | None) -> Response:
    """POST /view/{id}/cancel."""
    user = user_of(session)
    require_token(user, await form(request))
    current = app_state(request)
    submission_id = path_number(request, "id")
    found = await owned(current, submission_id, user.user, with_code=False, with_runs=False)
    await current.store.one("cancel", submission_id=submission_id, user_id=found["user_id"])
    return go_to(f"/view/{submission_id}")


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
    found = await current.store.one("count_waiting")
    return show(
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
    user = user_of(session)
    current = app_state(request)
    submission_id = path_number(request, "id")
    await owned(current, submission_id, user.user, with_code=False, with_runs=False)
    if not current.limits.open_stream(user.user.id):
        raise Refusal(429, "Too many open streams", retry_after_s=30)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _progress_events(current, submission_id, user.user.id), media_type="text/event-stream", headers=headers
    )


async def _progress_events(current: AppState, submission_id: int, user_id: str) -> AsyncIterator[bytes]:
    until = time.monotonic() + STREAM_S
    last: Mapping[str, Any] | None = None
    current.metrics.streams.inc()
    try:
        async with current.watcher.follow(submission_id) as happened:
            while time.monotonic() < until and not current.watcher.leaving:
                happened.clear()
                try:
                    found = await current.store.one(
                        "submission", submission_id=submission_id, with_code=False, with_runs=False
                    )
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
        "duration": number(meta.get("duration")),
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
