"""KernelGYM's HTTP interface over batches: a set-up that speaks it changes an address.

`task_id` is an item's key: the same id with the same content gives the stored answer. Requests of one reference that
come together share a job. What KernelGYM has and this has not, is ignored: adapters, devices, profiling switches.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from runner.base.errors import ConfigError, DatabaseUnavailableError, SubmissionError
from runner.extras.store import RefusedError
from runner.extras.trainers.client import AsyncClient, Item, Result
from runner.extras.trainers.client.rewards import compiled, coverage, is_custom, speedup

#: No call takes more tasks, and no body is larger.
MAX_TASKS: Final = 100
MAX_BYTES: Final = 32 << 20
#: The error codes of KernelGYM by our verdicts.
ERRORS: Final[Mapping[str, str]] = {
    "wrong_answer": "CORRECTNESS_ERROR",
    "compile_error": "COMPILATION_ERROR",
    "runtime_error": "RUNTIME_ERROR",
    "time_limit": "TIMEOUT_ERROR",
    "memory_limit": "RESOURCE_ERROR",
    "rejected": "VALIDATION_ERROR",
    "invalid": "VALIDATION_ERROR",
    "internal_error": "SYSTEM_ERROR",
}
#: The SQLSTATE for a key that is no key, or another item's.
_KEY_REFUSED: Final = "KR014"


class _BadRequestError(Exception):
    """A request that cannot be understood; the message is for its sender."""


def build(client: AsyncClient) -> Starlette:
    """The application around a client, which it opens and closes."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    app = Starlette(
        routes=[
            Route("/evaluate", _evaluate, methods=["POST"]),
            Route("/evaluate/batch", _evaluate_batch, methods=["POST"]),
            Route("/status/{task_id:path}", _status, methods=["GET"]),
            Route("/results/{task_id:path}", _results, methods=["GET"]),
            Route("/health", _health, methods=["GET"]),
        ],
        lifespan=lifespan,
        exception_handlers={_BadRequestError: _bad, SubmissionError: _bad, DatabaseUnavailableError: _away},
    )
    app.state.client = client
    return app


def item_of(task: object) -> Item:
    """The item of a KernelGYM request.

    Raises:
        _BadRequestError: it is no request.
    """
    if not isinstance(task, Mapping):
        raise _BadRequestError("a task is a JSON object")
    texts = {}
    for key in ("task_id", "reference_code", "kernel_code"):
        # A model may have said nothing, which is its own fault, not that of the whole call.
        if not isinstance(task.get(key), str) or (not task[key] and key != "kernel_code"):
            raise _BadRequestError(f"{key} is missing, or no text")
        texts[key] = task[key]
    settings: dict[str, Any] = {}
    for key, ours, least, most, whole in (
        ("num_correct_trials", "inputs", 1, 20, True),
        ("num_perf_trials", "timed_calls", 0, 1000, True),
        ("timeout", "timeout_s", 1, 3600, False),
    ):
        value = task.get(key)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise _BadRequestError(f"{key} is {value!r}, expected a number from {least} to {most}")
            if whole and value != int(value):
                raise _BadRequestError(f"{key} is {value!r}, expected a whole number")
            settings[ours] = int(value) if whole else value
    if task.get("run_performance") is False or task.get("measure_performance") is False:
        settings["timed_calls"] = 0
    if task.get("reference_backend") == "torch_compile":
        settings["baseline"] = "compile"
    return Item(
        key=texts["task_id"],
        reference=texts["reference_code"],
        candidate=texts["kernel_code"],
        entry_point=str(task.get("entry_point") or "Model"),
        settings=settings,
    )


def answer_of(result: Result) -> dict[str, Any]:
    """KernelGYM's answer. An outage of ours is `failed` with SYSTEM_ERROR, so that it is told from a bad kernel."""
    facts = result.facts
    factor = speedup(facts)
    use = facts.get("kernel_use") or {}
    verdict = result.verdict or "internal_error"
    return {
        "task_id": result.key,
        "status": "failed" if result.is_fault else "timeout" if verdict == "time_limit" else "completed",
        "compiled": compiled(facts),
        "correctness": result.correct,
        "decoy_kernel": result.correct and not is_custom(facts),
        "reference_runtime": _milliseconds(facts.get("reference_ns")),
        "kernel_runtime": _milliseconds(facts.get("candidate_ns")),
        "speedup": factor or 0.0,
        "metadata": {
            "hardware": facts.get("device"),
            "num_custom_kernels": use.get("custom"),
            "num_total_kernels": use.get("total"),
            "custom_kernel_time_share": coverage(facts),
            "kernel_runner": dict(facts),
        },
        "error_message": None if result.correct else result.message or verdict,
        "error_code": None if result.correct else ERRORS.get(verdict, "UNKNOWN_ERROR"),
        "submitted_at": None if result.created_at is None else result.created_at.isoformat(),
        "completed_at": None if result.finished_at is None else result.finished_at.isoformat(),
        "processing_time": ((facts.get("build_ms") or 0) + (facts.get("eval_ms") or 0)) / 1000,
    }


def serve(client: AsyncClient, *, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: the address cannot be had.
    """
    server = uvicorn.Server(
        uvicorn.Config(
            build(client),
            host=host,
            port=port,
            # The parser that bounds the size of headers.
            http="h11",
            ws="none",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
        )
    )
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        raise ConfigError(f"cannot listen at {host}:{port}")


async def _evaluate(request: Request) -> Response:
    (result,) = await request.app.state.client.evaluate([item_of(await _body(request))])
    return JSONResponse(answer_of(result))


async def _evaluate_batch(request: Request) -> Response:
    body = await _body(request)
    tasks = body.get("tasks") if isinstance(body, Mapping) else body
    if not isinstance(tasks, list) or not 1 <= len(tasks) <= MAX_TASKS:
        raise _BadRequestError(f"tasks are a list of 1 to {MAX_TASKS}")
    results = await request.app.state.client.evaluate([item_of(task) for task in tasks])
    return JSONResponse({"results": [answer_of(result) for result in results]})


async def _status(request: Request) -> Response:
    return await _of_task(request, lambda result: {"task_id": result.key, "status": answer_of(result)["status"]})


async def _results(request: Request) -> Response:
    return await _of_task(request, answer_of)


async def _of_task(request: Request, shown: Any) -> Response:  # noqa: ANN401 - a function of a result
    key = request.path_params["task_id"]
    results = await request.app.state.client.look([key])
    if key not in results:
        return JSONResponse({"detail": f"task {key} is not known"}, status_code=404)
    result = results[key]
    if result is None:
        return JSONResponse({"task_id": key, "status": "pending"})
    return JSONResponse(shown(result))


async def _health(request: Request) -> Response:
    try:
        async with asyncio.timeout(5.0):
            await request.app.state.client.look(["health"])
    except (DatabaseUnavailableError, TimeoutError):
        return JSONResponse({"status": "unhealthy"}, status_code=503)
    return JSONResponse({"status": "healthy"})


async def _body(request: Request) -> Any:  # noqa: ANN401 - any JSON
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BYTES:
            raise _BadRequestError(f"the body has more than {MAX_BYTES} bytes")
        parts.append(part)
    try:
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise _BadRequestError("the body is not JSON") from error


def _milliseconds(time_ns: float | None) -> float:
    return -1.0 if time_ns is None else time_ns / 1e6


async def _bad(request: Request, error: Exception) -> Response:
    # All else that the database refuses is about this service: its login, GPU type, batch or quota, or no intake.
    if isinstance(error, RefusedError) and error.code != _KEY_REFUSED:
        return await _away(request, error)
    return JSONResponse({"detail": str(error)}, status_code=400)


async def _away(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": str(error)}, status_code=503, headers={"retry-after": "5"})
