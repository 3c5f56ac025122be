"""Routes of a submission: sending one, following it, reading and deleting it."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from runner.base.errors import DatabaseUnavailableError
from runner.extras.gateway import results
from runner.extras.gateway.boards import named, queue_of, shown
from runner.extras.gateway.context import (
    AppState,
    Ascii,
    Refusal,
    app_state,
    dumps,
    field_number,
    moment,
    off_loop,
    path_number,
    query_number,
)
from runner.extras.gateway.identity import User, admin, cli_user, user
from runner.extras.gateway.limits import Streams, hold
from runner.extras.gateway.queries import MOST
from runner.extras.gateway.upload import Upload, upload
from runner.extras.shown import reports
from runner.extras.store import PATIENCE_S, RefusedError
from runner.store.connection import Row
from runner.store.session import load_json

MODES: Final = ("test", "benchmark", "profile", "leaderboard")
#: SQLSTATE -> status; every other refusal is a 400.
STATUSES: Final[Mapping[str, int]] = {
    "KR001": 404,
    "KR006": 413,
    "KR010": 403,
    "KR012": 403,
    "KR013": 429,
    "KR014": 409,
    "KR015": 404,
    "KR030": 429,
    "KR031": 409,
    "KR043": 409,
}
#: Where the queue does not know when to try again.
_AGAIN_S: Final[Mapping[str, float]] = {"KR030": 15.0, "KR031": 5.0}
#: A stream says that it lives this often, and ends before clients give up.
HEARTBEAT_S: Final = 15.0
STREAM_S: Final = 3540.0
#: How long a request waits for others of its user, and looks whether it is its turn.
TURN_S: Final = PATIENCE_S
_LOOK_S: Final = 0.25


async def submit(request: Request) -> Response:
    """POST /submission/{leaderboard}/{gpu}/{mode}: stored, and answered at once."""
    who = await user(request)
    submission_id, gpu = await _accepted(request, who)
    return await _answer(request, submission_id, gpu)


async def submit_as_admin(request: Request) -> Response:
    """POST /admin/submission/…: as `submit`, by the operator for a user, after the deadline too."""
    admin(request)
    who = await user(request)
    submission_id, gpu = await _accepted(request, who, late=True)
    return await _answer(request, submission_id, gpu)


async def _answer(request: Request, submission_id: int, gpu: str) -> Response:
    current = app_state(request)
    status = await current.store.one("job_status_id", submission_id=submission_id)
    return Ascii(
        {
            "details": {"id": submission_id, "job_status_id": None if status is None else status["id"]},
            "runner_queue": await queue_of(current, gpu),
            "status": "accepted",
        },
        202,
    )


async def submit_and_stream(request: Request) -> Response:
    """POST /{leaderboard}/{gpu}/{mode}: stored, then followed by server-sent events. A lost stream ends nothing."""
    return await _streamed(request, profiled=False)


async def profile(request: Request) -> Response:
    """POST /profile/{leaderboard}/{gpu}: as `submit_and_stream` in mode profile, with fields for Nsight Compute."""
    return await _streamed(request, profiled=True)


async def _streamed(request: Request, *, profiled: bool) -> Response:
    who = await cli_user(request)
    current = app_state(request)
    open_stream(current.limits.streams, who.id)
    try:
        submission_id, _ = await _accepted(request, who, profiled=profiled)
    except BaseException:
        current.limits.streams.close(who.id)
        raise
    return stream_of(_stream(request, submission_id, who))


def open_stream(streams: Streams, key: str) -> None:
    """Count a stream, which is to be closed.

    Raises:
        Refusal: 429.
    """
    if not streams.open(key):
        raise Refusal(429, "Too many open streams", retry_after_s=30)


async def turn(request: Request, who: User) -> None:
    """Wait until few answers of this user that may be large are on their way; this one counts until it has been sent.

    Raises:
        Refusal: 429.
    """
    until = time.monotonic() + TURN_S
    # A poll that is refused ends popcorn-cli.
    while not hold(request.scope, app_state(request).limits.results, who.id):
        if time.monotonic() > until:
            raise Refusal(429, "Too many results are on their way. Ask for them one after another.", retry_after_s=5)
        await asyncio.sleep(_LOOK_S)


def stream_of(events: AsyncIterator[bytes]) -> Response:
    """An answer of server-sent events."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def followed(request: Request, streams: Streams, key: str, events: AsyncIterator[bytes]) -> Response:
    """An answer of events that is counted; they count its end. HEAD gets no events, which would have no end.

    Raises:
        Refusal: 429.
    """
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    open_stream(streams, key)
    return stream_of(events)


async def _accepted(request: Request, who: User, *, late: bool = False, profiled: bool = False) -> tuple[int, str]:
    """Store what was sent; the submission's id, and the GPU type as the leaderboard spells it."""
    parts = request.path_params
    sent = await upload(request, who.id)
    return await store(
        app_state(request),
        who,
        board_name=parts["leaderboard"],
        gpu=parts["gpu"],
        mode="profile" if profiled else parts["mode"],
        sent=sent,
        options=profile_options(sent.fields) if profiled else None,
        late=late,
    )


def profile_options(fields: Mapping[str, str]) -> dict[str, Any]:
    """A form's fields as options of `runner.submit`, which checks them as well.

    Raises:
        Refusal: 422 for a number that is none or out of bounds; 400.
    """
    kernel, benchmark = fields.get("ncu_kernel_name"), field_number(fields, "benchmark_index", low=0, high=MOST)
    if kernel is not None and "\0" in kernel:
        raise Refusal(400, "ncu_kernel_name has a NUL character, expected a kernel's name or regex:EXPRESSION")
    # Those that have a default are always given: where Nsight Compute cannot run, the queue says so at once.
    options = {
        "benchmark": benchmark,
        "kernel": kernel,
        "kernel_base": fields.get("ncu_kernel_name_base") or "function",
        "launches": field_number(fields, "ncu_launch_count", low=1, high=10_000) or 10,
    }
    return {name: value for name, value in options.items() if value is not None}


async def store(
    current: AppState,
    who: User,
    *,
    board_name: str,
    gpu: str,
    mode: str,
    sent: Upload,
    late: bool = False,
    options: Mapping[str, Any] | None = None,
) -> tuple[int, str]:
    """Store a submission of a user, `late` after the deadline too; its id, and the GPU type.

    Raises:
        Refusal: what the queue or the contract refuses.
    """
    mode = mode.lower()
    if mode not in MODES:
        what = f"Unknown mode {shown(mode)}" if mode else "No mode is named"
        raise Refusal(400, f"{what}, expected one of {', '.join(MODES)}")
    board = await named(current, board_name)
    chosen = next((name for name in board["gpus"] if name.lower() == gpu.lower()), None)
    if chosen is None:
        # An alias would be run, and newer clients would then look for results under a name that is not there.
        what = f"GPU type {shown(gpu)} is not offered by this leaderboard" if gpu else "No GPU type is named"
        raise Refusal(400, f"{what}. Choose from: {', '.join(board['gpus'])}")
    if board["visibility"] != "public" and who.by_web:
        raise Refusal(403, "Closed leaderboards only accept submissions via CLI")
    try:
        row = await current.store.row(
            "submit_late" if late else "submit",
            leaderboard=board["name"],
            user_id=who.id,
            file_name=sent.name,
            code=sent.code,
            mode=mode,
            gpu_types=[chosen],
            # An answer that was lost is asked for again, and stores nothing twice.
            key=f"gateway-{uuid.uuid4()}",
            options=None if options is None else json.dumps(options),
        )
    except RefusedError as error:
        if not sent.code:
            raise Refusal(400, str(error)) from error
        raise await refusal_of(current, error, board_id=board["id"], user_id=who.id, mode=mode) from error
    current.metrics.submitted.inc()
    # No event tells of a job that waits.
    current.live.heard([row["submission_id"]])
    return int(row["submission_id"]), chosen


async def refusal_of(
    current: AppState, error: RefusedError, *, board_id: int | None = None, user_id: str = "", mode: str = ""
) -> Refusal:
    """The answer for what the queue refused; with the time after which the hourly limit admits the user again."""
    status = STATUSES.get(error.code, 400)
    if error.code != "KR013" or board_id is None:
        return Refusal(status, str(error), retry_after_s=_AGAIN_S.get(error.code))
    category = "leaderboard" if mode == "leaderboard" else "test"
    row = await current.store.one("limit_wait", board_id=board_id, user_id=user_id, category=category)
    wait_s = 3600 if row is None or row["wait_s"] is None else max(1, row["wait_s"])
    most = 0 if row is None else row["most"]
    text = f"Rate limit exceeded: {most}/{most} {category} submissions per hour. Try again in {wait_s}s."
    return Refusal(status, text, retry_after_s=wait_s)


def event(name: str, value: object) -> bytes:
    """One event of a stream."""
    return f"event: {name}\ndata: {dumps(value)}\n\n".encode("ascii")


async def _stream(request: Request, submission_id: int, who: User) -> AsyncIterator[bytes]:
    current = app_state(request)
    began = time.monotonic()
    current.metrics.streams.inc()
    try:
        async with current.watcher.follow(submission_id) as happened:
            while True:
                happened.clear()
                elapsed = time.monotonic() - began
                yield event("status", {"status": "processing", "elapsed_time": round(elapsed, 1)})
                end = await _wait_for_end(request, submission_id, who, happened)
                if end is not None:
                    yield end
                    return
                if current.watcher.leaving:
                    return
                if elapsed > STREAM_S:
                    text = f"Submission {submission_id} is not finished yet and goes on. Look at it later."
                    yield event("error", {"status": "error", "detail": text})
                    return
    finally:
        current.metrics.streams.dec()
        current.limits.streams.close(who.id)


async def _wait_for_end(request: Request, submission_id: int, who: User, happened: asyncio.Event) -> bytes | None:
    """The last event, or None if it is not over, or not this one's turn, within the time between two signs of life."""
    current = app_state(request)
    until = time.monotonic() + HEARTBEAT_S
    while True:
        try:
            over = await current.store.all("finished", ids=[submission_id])
            if over and hold(request.scope, current.limits.results, who.id):
                return await _end(current, submission_id)
        except DatabaseUnavailableError:
            # The stream goes on: the submission is stored.
            pass
        left = until - time.monotonic()
        if left <= 0 or current.watcher.leaving:
            return None
        try:
            async with asyncio.timeout(left):
                await happened.wait()
        except TimeoutError:
            return None
        happened.clear()


async def _end(current: AppState, submission_id: int) -> bytes:
    submission = await stored(current, submission_id, with_code=False)
    if submission is None:
        return event(
            "error", {"status": "error", "detail": f"Submission {submission_id} was deleted", "status_code": 404}
        )
    status = await current.store.one("submission_status", submission_id=submission_id)
    profiles = await current.store.all("profiles", submission_id=submission_id)
    if not submission["runs"] and submission["status"] == "failed" and submission["error"] == "cancelled":
        return event("error", {"status": "error", "detail": f"Submission {submission_id} was cancelled"})
    return await off_loop(
        [submission, profiles],
        lambda: event(
            "result",
            {
                "status": "success",
                "results": results.full_results(submission, profiles),
                "reports": reports.reports(submission, status),
            },
        ),
    )


async def mine(request: Request) -> Response:
    """GET /user/submissions: a user's own, the newest first."""
    who = await user(request)
    limit = query_number(request, "limit", 50, low=1, high=100)
    offset = query_number(request, "offset", 0, low=0, high=MOST)
    rows = await app_state(request).store.all(
        "my_submissions",
        user_id=who.id,
        leaderboard=request.query_params.get("leaderboard"),
        gpu_type=None,
        verdict=None,
        limit=limit,
        offset=offset,
    )
    return Ascii(
        [
            {
                "id": line["id"],
                "leaderboard_name": line["leaderboard_name"],
                "file_name": line["file_name"],
                "submission_time": moment(line["submission_time"]),
                "done": line["done"],
                "runs": line["runs"] or [],
            }
            for line in rows
        ]
    )


async def show(request: Request) -> Response:
    """GET /user/submissions/{id}: the owner's."""
    who = await user(request)
    current = app_state(request)
    await turn(request, who)
    submission = await owned(current, path_number(request, "id"), who)
    gpus = dict.fromkeys(row["gpu_type"] for row in submission["runs"] or ())
    queue = await queue_of(current, next(iter(gpus))) if gpus else None
    return await off_loop(submission, lambda: Ascii(results.detail(submission, runner_queue=queue)))


async def delete(request: Request) -> Response:
    """DELETE /user/submissions/{id}: the owner's; what runs is stopped."""
    who = await user(request)
    current = app_state(request)
    submission_id = path_number(request, "id")
    await owned(current, submission_id, who, with_code=False, with_runs=False)
    await current.store.one("delete_submission", submission_id=submission_id, user_id=who.id)
    return Ascii({"status": "ok", "submission_id": submission_id})


async def cancel(request: Request) -> Response:
    """POST /user/submissions/{id}/cancel: the owner's; what waits or runs is stopped, what is stored stays."""
    return Ascii({"status": "ok", "submission_id": await cancel_owned(request, await user(request))})


async def cancel_owned(request: Request, who: User) -> int:
    """Cancel the submission that the path names; its id.

    Raises:
        Refusal: as `owned`.
    """
    current = app_state(request)
    submission_id = path_number(request, "id")
    submission = await owned(current, submission_id, who, with_code=False, with_runs=False)
    await current.store.one("cancel", submission_id=submission_id, user_id=submission["user_id"])
    return submission_id


async def stored(
    current: AppState, submission_id: int, *, with_code: bool = True, with_runs: bool = True
) -> Row | None:
    """A submission with its runs; None: there is none."""
    row = await current.store.one("submission", submission_id=submission_id, with_code=with_code, with_runs=with_runs)
    if row is None or row["runs"] is None:
        return row
    text = row["runs"]
    return {**row, "runs": await off_loop(text, lambda: load_json(text))}


async def owned(
    current: AppState, submission_id: int, who: User, *, with_code: bool = True, with_runs: bool = True
) -> dict[str, Any]:
    """A submission of this user.

    Raises:
        Refusal: 404, 403.
    """
    submission = None
    if 0 < submission_id <= MOST:
        submission = await stored(current, submission_id, with_code=with_code, with_runs=with_runs)
    if submission is None:
        raise Refusal(404, f"Submission {submission_id} not found")
    if submission["user_id"] != who.id and not who.operator:
        raise Refusal(403, "Not authorized to view this submission")
    return submission
