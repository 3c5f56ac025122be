"""The pages of submissions: a user's list, the editor, and one with its verdict, cases, times, output and code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

from runner.base.errors import DatabaseUnavailableError
from runner.base.model import Verdict
from runner.base.results import Case, cases, is_repeated
from runner.extras.gateway import charts, identity, markup, results, sizes
from runner.extras.gateway.board_pages import ending_of, sources_of, task_of
from runner.extras.gateway.boards import admit, named, own_name
from runner.extras.gateway.context import AppState, Refusal, app_state, path_number, query_number
from runner.extras.gateway.html import (
    MESSAGE_BYTES,
    ROWS,
    SPEC_BYTES,
    go_to,
    require_token,
    saved,
    show,
    user_of,
)
from runner.extras.gateway.identity import Session
from runner.extras.gateway.submissions import (
    HEARTBEAT_S,
    STREAM_S,
    cancel_owned,
    event,
    followed,
    owned,
    store,
    turn,
)
from runner.extras.gateway.upload import Upload, form, upload
from runner.extras.shown import figures, reports, words
from runner.store.connection import Row

#: Bytes of HTML of all cases of a page, of all that was printed, of one output, of one report, and of the code.
_CASES: Final = 36_000
_OUTPUTS: Final = 18_000
_OUTPUT: Final = 4000
_REPORT: Final = 12_000
_CODE: Final = 30_000
#: Bytes of HTML of a template in the editor: one that is longer is to be downloaded.
_TEMPLATE: Final = 60_000
#: Of a case: what its line has beside its texts.
_CASE: Final = 700
#: Cases of a run whose failure is shown with all of its message, and bytes of that.
_FAILURES: Final = 3
_MESSAGE: Final = 2000
#: Of a submission: its runs (some on each GPU type), and the files of its profiles.
_RUNS: Final = 40
_FILES: Final = 40


async def mine(request: Request, session: Session | None) -> Response:
    """GET /mine: the user's submissions, all or those of a leaderboard, a GPU type or a verdict."""
    user = user_of(session)
    current = app_state(request)
    offset = query_number(request, "offset", 0, low=0, high=1_000_000)
    chosen = {name: request.query_params.get(name) or None for name in ("leaderboard", "gpu_type", "verdict")}
    rows = await current.store.all("my_submissions", user_id=user.user.id, **chosen, limit=ROWS + 1, offset=offset)
    states = await current.store.all("verdicts", ids=[line["id"] for line in rows])
    places = await current.store.all("my_places", user_id=user.user.id)
    return show(
        request,
        session,
        "mine.html",
        lines=rows[:ROWS],
        states={line["submission_id"]: line for line in states},
        leaderboards=sorted({place["leaderboard"] for place in places}),
        gpu_types=sorted({place["gpu_type"] for place in places}),
        verdicts=tuple(Verdict),
        chosen=chosen,
        offset=offset,
        size=ROWS,
        more=len(rows) > ROWS,
        attachable=bool(current.providers) and not user.user.operator,
    )


async def send(request: Request, session: Session | None) -> Response:
    """GET and POST /send: an editor with the template in it; a file or the text are submitted."""
    user = user_of(session)
    if user.user.operator:
        raise Refusal(403, "The operator has no submissions; log in as a user")
    current = app_state(request)
    if request.method == "GET":
        board = await named(current, request.query_params.get("board", ""))
        await admit(current, board, user.user)
        gpu = own_name(board, request.query_params.get("gpu", ""))
        task = await task_of(current, board["id"])
        templates = {title: text for title, text in sources_of(task) if title != "Reference"}
        asked = request.query_params.get("template", "")
        title = asked if asked in templates else next(iter(templates), "")
        source = templates.get(title, "")
        last = await current.store.all(
            "my_submissions",
            user_id=user.user.id,
            leaderboard=board["name"],
            gpu_type=None,
            verdict=None,
            limit=1,
            offset=0,
        )
        return show(
            request,
            session,
            "send.html",
            board=board,
            gpu=gpu,
            titles=list(templates),
            title=title,
            source=source if len(escape(source).encode("utf-8", "replace")) <= _TEMPLATE else None,
            name=f"submission.{ending_of(task['lang'])}",
            last=last[0]["id"] if last else None,
        )
    sent = await upload(request, user.user.id)
    require_token(user, sent.fields)
    pasted = sent.fields.get("code", "")
    if not sent.code and pasted:
        # Forms send line feeds as two characters.
        name = sent.fields.get("name") or "submission.py"
        sent = Upload(name=name, code=pasted.replace("\r\n", "\n").encode("utf-8", "replace"), fields=sent.fields)
    submission_id, _ = await store(
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
    await turn(request, user.user)
    submission = await owned(current, submission_id, user.user)
    status = await current.store.one("submission_status", submission_id=submission_id)
    validated = await current.store.all("validations", leaderboard=None, submission_id=submission_id, sweep_id=None)
    signed = await current.store.all("receipts_of", submission_id=submission_id)
    opened = await current.store.all("open_lines", ids=[submission_id])
    files: Sequence[Row] = ()
    if any(row["mode"].startswith("profile") for row in submission["runs"] or ()):
        files = await current.store.all("profile_files", submission_id=submission_id)
    ranking_by = None
    if status is not None and status["score"] is not None:
        ranking_by = (await task_of(current, submission["leaderboard_id"]))["ranking_by"]

    def make() -> Response:
        rows, outputs = sizes.Budget(_CASES), sizes.Budget(_OUTPUTS)
        public = [row for row in submission["runs"] or () if not row["secret"]]
        ranked = [row["result"] for row in public if row["mode"] == "leaderboard"]
        public = [row for row in public if not is_repeated(row["mode"], row["result"], ranked)][:_RUNS]
        # What failed first, and tests last.
        public.sort(key=lambda row: (row["passed"], row["mode"] == "test"))
        secret: dict[str, bool] = {}
        for row in submission["runs"] or ():
            if row["secret"]:
                secret[row["gpu_type"]] = row["passed"] and secret.get(row["gpu_type"], True)
        return show(
            request,
            session,
            "view.html",
            submission={key: value for key, value in submission.items() if key not in ("code", "runs")},
            status=status,
            headline=reports.headline(submission, status, ranking_by),
            validated=validated,
            runs=[_run(row, files[:_FILES], rows, outputs) for row in public],
            secret=secret,
            signed=signed,
            public=bool(opened),
            phases=charts.phases(_phases(status)),
            code=markup.coloured(
                results.source(submission["code"]), markup.language_of(submission["file_name"]), _CODE
            ),
            progress=_progress(submission, status),
        )

    # Beside the event loop: results and code may be large, and colouring takes milliseconds.
    return await asyncio.to_thread(make)


def _phases(status: Row | None) -> Sequence[tuple[str, float | None]]:
    if status is None or status["state"] != "done":
        return ()
    return [("queued", status["queue_ms"]), ("prepared", status["build_ms"]), ("ran", status["eval_ms"])]


def _run(row: Row, files: Sequence[Row], budget: sizes.Budget, outputs: sizes.Budget) -> dict[str, Any]:
    """What the page shows of a public run, as far as the budgets allow."""
    ran = cases(row["result"], most=reports.MOST_CASES)
    failed = [case for case in ran if case.passed is False][:_FAILURES]
    shown = budget.lines(ran, _case_bytes)
    meta = reports.picked(row["meta"], reports.META) or {}
    compiled = reports.picked(row["compilation"], reports.COMPILATION) or {}
    printed = (("compiler", compiled.get("stderr")), ("stdout", meta.get("stdout")), ("stderr", meta.get("stderr")))
    return {
        "mode": row["mode"],
        "gpu": row["gpu_type"],
        "passed": row["passed"],
        "cases": list(zip(shown, charts.spans(ran), strict=False)),
        "has": {name for case in shown for name in _COLUMNS if getattr(case, name) not in (None, ())},
        "failures": [_failure(case, outputs) for case in failed],
        "hidden": len(ran) - len(shown),
        "roofline": figures.roofline(ran),
        "reports": [outputs.text(case.report, _REPORT) for case in shown if case.report],
        "files": [
            file for file in files if file["gpu_type"] == row["gpu_type"] and file["name"].startswith(f"{row['mode']}.")
        ],
        "outputs": [(name, outputs.end(text, _OUTPUT), len(str(text)) > _OUTPUT) for name, text in printed if text],
    }


#: What a column of the table of cases is made of; one that no case of a run has is left out.
_COLUMNS: Final = ("mean_ns", "median_ns", "best_ns", "worst_ns", "runs", "sol", "timing", "remarks")


def _failure(case: Case, budget: sizes.Budget) -> dict[str, Any]:
    """Why a case failed: its message, and the elements that the message lists."""
    # The judge writes a line's end as two characters.
    message = (case.error or case.message or "").replace("\\n", "\n")
    return {
        "case": case,
        "differences": words.differences(message),
        "tolerance": words.tolerance(message),
        "message": budget.text(words.without_differences(message), _MESSAGE),
    }


async def profile_file(request: Request, session: Session | None) -> Response:
    """GET /view/{id}/profile/{gpu}/{name}: a file of a profile, to be saved."""
    user = user_of(session)
    current = app_state(request)
    submission_id = path_number(request, "id")
    await turn(request, user.user)
    await owned(current, submission_id, user.user, with_code=False, with_runs=False)
    gpu, name = request.path_params["gpu"], request.path_params["name"]
    row = await current.store.one("profile_file", submission_id=submission_id, gpu_type=gpu, name=name)
    if row is None:
        raise Refusal(404, f"Submission {submission_id} has no such file; profiles are kept for 30 days")
    return saved(bytes(row["data"]), f"submission-{submission_id}.{name}", "application/octet-stream")


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
    await turn(request, user.user)
    submission = await owned(app_state(request), path_number(request, "id"), user.user, with_runs=False)
    return saved(results.source(submission["code"]), f"submission-{submission['id']}.txt")


async def cancel(request: Request, session: Session | None) -> Response:
    """POST /view/{id}/cancel."""
    user = user_of(session)
    require_token(user, await form(request))
    return go_to(f"/view/{await cancel_owned(request, user.user)}")


async def progress(request: Request) -> Response:
    """GET /view/{id}/events: how far a submission is, until it is over."""
    session = await identity.session(request)
    user = user_of(session)
    current = app_state(request)
    submission_id = path_number(request, "id")
    await owned(current, submission_id, user.user, with_code=False, with_runs=False)
    events = _progress_events(current, submission_id, user.user.id)
    return followed(request, current.limits.streams, user.user.id, events)


async def _progress_events(current: AppState, submission_id: int, user_id: str) -> AsyncIterator[bytes]:
    until = time.monotonic() + STREAM_S
    last: Mapping[str, Any] | None = None
    current.metrics.streams.inc()
    try:
        async with current.watcher.follow(submission_id) as happened:
            while time.monotonic() < until and not current.watcher.leaving:
                happened.clear()
                try:
                    submission = await current.store.one(
                        "submission", submission_id=submission_id, with_code=False, with_runs=False
                    )
                    status = await current.store.one("submission_status", submission_id=submission_id)
                except DatabaseUnavailableError:
                    yield b": the database is away\n\n"
                    continue
                progress = {"text": "deleted", "done": True} if submission is None else _progress(submission, status)
                yield b": alive\n\n" if progress == last else event("progress", progress)
                last = progress
                if progress["done"]:
                    return
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await happened.wait()
                except TimeoutError:
                    continue
    finally:
        current.metrics.streams.dec()
        current.limits.streams.close(user_id)


def _progress(submission: Row, status: Row | None) -> dict[str, Any]:
    """One line about a submission."""
    if status is None:
        word = submission["status"] or ("done" if submission["done"] else "waiting")
        return {"text": word, "done": submission["done"]}
    if status["state"] in ("done", "cancelled"):
        return {"text": words.verdict(status["verdict"]) or status["state"], "done": bool(submission["done"])}
    return {"text": reports.progress(status), "done": False}
