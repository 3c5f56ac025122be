"""The application: every route, what errors become, and the headers of all answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from runner.base.errors import DatabaseUnavailableError
from runner.base.logs import get_logger
from runner.extras.config import SiteConfig
from runner.extras.gateway import admin, boards, login, oauth, pages, publishing, submissions
from runner.extras.gateway.context import AppState, Ascii, Refusal, app_state
from runner.extras.gateway.html import refusal_page
from runner.extras.gateway.identity import admin as only_admin
from runner.extras.gateway.limits import BodyTooLarge, Edge, Limits, Route
from runner.extras.gateway.live import Live
from runner.extras.gateway.metrics import Metrics
from runner.extras.gateway.submissions import refusal_of
from runner.extras.gateway.watcher import Watcher
from runner.extras.store import AsyncStore, RefusedError

_log = get_logger("gateway")


def build(config: SiteConfig, store: AsyncStore, *, admin_token: str | None) -> Starlette:
    """The application of one process; it opens and closes the store."""
    metrics = Metrics()
    live = Live(store)
    current = AppState(
        config=config,
        store=store,
        limits=Limits(per_minute=config.gateway_requests_per_minute, streams=config.gateway_streams),
        metrics=metrics,
        watcher=Watcher(store, metrics, live.heard),
        live=live,
        admin_token=admin_token,
        providers=oauth.providers(config),
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await store.open()
        current.watcher.start()
        live.start()
        try:
            yield
        finally:
            await live.stop()
            await current.watcher.stop()
            await store.close()

    handlers: dict[Any, Any] = {
        Refusal: _refused,
        RefusedError: _refused_by_the_queue,
        HTTPException: _http,
        BodyTooLarge: _too_large,
        ClientDisconnect: _gone,
        DatabaseUnavailableError: _outage,
        Exception: _defect,
    }
    application = Starlette(
        routes=routes(),
        middleware=[Middleware(Edge, metrics=metrics)],
        exception_handlers=handlers,
        lifespan=lifespan,
    )
    application.router.redirect_slashes = False
    application.state.gateway = current
    return application


def routes() -> list[Route]:
    """All routes; the catch-all of popcorn-cli's streams is the last."""
    lb = "{leaderboard}/{gpu}"
    return [
        Route("/health", health, methods=["GET"]),
        Route("/healthz", health, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/metrics", metrics_page, methods=["GET"]),
        Route("/auth/init", login.init, methods=["GET"]),
        Route("/leaderboards", boards.leaderboards, methods=["GET"]),
        Route("/gpus/{leaderboard}", boards.gpus, methods=["GET"]),
        Route("/runner_queue/{gpu}", boards.runner_queue, methods=["GET"]),
        Route(f"/submissions/{lb}", boards.submissions, methods=["GET"]),
        Route(f"/submission_count/{lb}", boards.submission_count, methods=["GET"]),
        Route("/user/submissions", submissions.mine, methods=["GET"]),
        Route("/user/submissions/{id}", submissions.show, methods=["GET"]),
        Route("/user/submissions/{id}", submissions.delete, methods=["DELETE"]),
        Route("/user/submissions/{id}/cancel", submissions.cancel, methods=["POST"]),
        Route("/user/join", login.join, methods=["POST"]),
        Route(f"/submission/{lb}/{{mode}}", submissions.submit, methods=["POST"]),
        Route(f"/admin/submission/{lb}/{{mode}}", submissions.submit_as_admin, methods=["POST"]),
        Route("/admin/start", admin.start, methods=["POST"]),
        Route("/admin/stop", admin.stop, methods=["POST"]),
        Route("/admin/stats", admin.stats, methods=["GET"]),
        Route("/admin/ban/{user_id}", admin.ban, methods=["POST", "DELETE"]),
        Route(f"/admin/application-validations/{lb}", admin.validate, methods=["POST"]),
        Route("/admin/leaderboards", publishing.create, methods=["POST"]),
        Route("/admin/export-hf", publishing.export, methods=["POST"]),
        Route("/admin/update-problems", publishing.update_problems, methods=["POST"]),
        Route("/admin/leaderboards/{name}", admin.delete_board, methods=["DELETE"]),
        Route("/admin/leaderboards/{name}/submissions", admin.board_submissions, methods=["GET"]),
        Route("/admin/leaderboards/{name}/invites", admin.invites, methods=["GET"]),
        Route("/admin/leaderboards/{name}/visibility", admin.visibility, methods=["POST"]),
        Route("/admin/leaderboards/{name}/rate-limits", admin.limits, methods=["GET", "PUT"]),
        Route("/admin/leaderboards/{name}/rate-limits/{category}", admin.drop_limit, methods=["DELETE"]),
        Route("/admin/submissions/{id}", admin.submission, methods=["GET", "DELETE"]),
        Route("/admin/submissions", admin.delete_submissions, methods=["DELETE"]),
        Route("/admin/invites", admin.make_invites, methods=["POST"]),
        Route("/admin/invites/{code}", admin.revoke_invite, methods=["DELETE"]),
        *pages.routes(),
        Route(f"/profile/{lb}", submissions.profile, methods=["POST"]),
        Route(f"/{lb}/{{mode}}", submissions.submit_and_stream, methods=["POST"]),
    ]


async def health(_: Request) -> Response:
    """GET /health: the process answers."""
    return Ascii({"status": "ok"})


async def ready(request: Request) -> Response:
    """GET /readyz: the database answers and has this release's version."""
    fine = await app_state(request).store.ready()
    return Ascii(
        {"status": "ready"} if fine else {"detail": "The database is away or not migrated"}, 200 if fine else 503
    )


async def metrics_page(request: Request) -> Response:
    """GET /metrics, for operators."""
    only_admin(request)
    return Response(app_state(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _refused(_: Request, error: Refusal) -> Response:
    return Ascii(error.body, error.status, headers=error.headers)


async def _refused_by_the_queue(request: Request, error: RefusedError) -> Response:
    return await _refused(request, await refusal_of(app_state(request), error))


async def _http(request: Request, error: HTTPException) -> Response:
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return refusal_page(request, None, Refusal(404, "There is no such page"))
    return Ascii({"detail": error.detail}, error.status_code, headers=error.headers)


async def _too_large(_: Request, __: Exception) -> Response:
    return Ascii({"detail": "The body is too large: at most 1000000 bytes of source"}, 413)


async def _gone(_: Request, __: Exception) -> Response:
    return Ascii({"detail": "The body did not come in time"}, 408)


async def _outage(_: Request, error: Exception) -> Response:
    _log.warning("request_refused_database_away", reason=str(error))
    return Ascii({"detail": "The database is away. Try again in a moment."}, 503, headers={"Retry-After": "5"})


async def _defect(_: Request, error: Exception) -> Response:
    _log.error("request_failed", error=type(error).__name__)
    return Ascii({"detail": "This request met a defect of the server, which is in its log"}, 500)
