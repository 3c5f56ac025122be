"""Routes of login for popcorn-cli, and of invitations."""

from __future__ import annotations

import hmac
import uuid
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway.context import Ascii, Refusal, app_state, json_body, problem
from runner.extras.gateway.identity import address, attempt, cli_user, digest
from runner.extras.gateway.submissions import refusal_of
from runner.extras.store import RefusedError

PROVIDERS: Final = ("discord", "github")
_TRIES: Final = 5


async def init(request: Request) -> Response:
    """GET /auth/init: a new cli_id, which is of no use until an operator approves it."""
    current = app_state(request)
    attempt(request)
    provider = request.query_params.get("provider")
    if provider is None:
        raise Refusal(422, [problem("missing", "query.provider", "Field required", None)])
    if provider not in PROVIDERS:
        raise Refusal(400, f"Invalid provider, expected one of {', '.join(PROVIDERS)}")
    origin = hmac.digest(current.origin_key, address(request).encode(), "sha256").hex()
    for _ in range(_TRIES):
        state = str(uuid.uuid4())
        try:
            # The code names it to an operator; the rest stays a secret, of which only the digest is stored.
            row = await current.store.row(
                "begin_login", code=state[:8], digest=digest(state), provider=provider, origin=origin
            )
        except RefusedError as error:
            raise await refusal_of(current, error) from error
        if row["begun"]:
            return Ascii({"state": state})
    raise Refusal(429, "Try again", retry_after_s=1)


async def join(request: Request) -> Response:
    """POST /user/join: claim an invitation."""
    who = await cli_user(request)
    current = app_state(request)
    code = (await json_body(request)).get("code")
    if not isinstance(code, str) or not code:
        raise Refusal(400, "Missing required field: code")
    try:
        row = await current.store.row("join_board", code=code[:255], user_id=who.id)
    except RefusedError as error:
        attempt(request)
        raise Refusal(400, error.message) from error
    return Ascii({"status": "ok", "leaderboards": row["leaderboards"]})
