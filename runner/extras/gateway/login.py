"""Logins: what popcorn-cli asks for, invitations, and pages by a token of it, by the admin token, or by OAuth."""

from __future__ import annotations

import hmac
import uuid
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from runner.extras.gateway import identity, oauth
from runner.extras.gateway.context import Ascii, Refusal, app_state, is_public_https, json_body, problem
from runner.extras.gateway.html import HEADERS, go_to, local_path, refusal_page, require_token, show, user_of
from runner.extras.gateway.identity import OPERATOR, SESSION_S, Session, User
from runner.extras.gateway.submissions import refusal_of
from runner.extras.gateway.upload import form
from runner.extras.store import RefusedError

PROVIDERS: Final = ("discord", "github")
_TRIES: Final = 5


async def init(request: Request) -> Response:
    """GET /auth/init: a new cli_id, which is of no use until an operator approves it."""
    current = app_state(request)
    identity.attempt(request)
    provider = request.query_params.get("provider")
    if provider is None:
        raise Refusal(422, [problem("missing", "query.provider", "Field required", None)])
    if provider not in PROVIDERS:
        raise Refusal(400, f"Invalid provider, expected one of {', '.join(PROVIDERS)}")
    origin = hmac.digest(current.origin_key, identity.address(request).encode(), "sha256").hex()
    for _ in range(_TRIES):
        state = str(uuid.uuid4())
        try:
            # The code names it to an operator; the rest stays a secret, of which only the digest is stored.
            row = await current.store.row(
                "begin_login", code=state[:8], digest=identity.digest(state), provider=provider, origin=origin
            )
        except RefusedError as error:
            raise await refusal_of(current, error) from error
        if row["begun"]:
            return Ascii({"state": state})
    raise Refusal(429, "Try again", retry_after_s=1)


async def join(request: Request) -> Response:
    """POST /user/join: claim an invitation."""
    who = await identity.cli_user(request)
    current = app_state(request)
    code = (await json_body(request)).get("code")
    if not isinstance(code, str) or not code:
        raise Refusal(400, "Missing required field: code")
    try:
        row = await current.store.row("join_board", code=code[:255], user_id=who.id)
    except RefusedError as error:
        identity.attempt(request)
        raise Refusal(400, error.message) from error
    return Ascii({"status": "ok", "leaderboards": row["leaderboards"]})


async def by_token(request: Request, session: Session | None) -> Response:
    """GET and POST /login: by the token of popcorn-cli, or the admin token."""
    if request.method == "GET":
        return _login_page(request, session, local_path(request.query_params.get("next", "")))
    current = app_state(request)
    fields = await form(request)
    token = fields.get("token", "").strip()
    who = OPERATOR if identity.is_admin_token(current, token) else await identity.by_token(current, token, web=False)
    cookie = None if who is None else await identity.new_cookie(current, who)
    next_page = local_path(fields.get("next", ""))
    if cookie is None:
        identity.attempt(request)
        return _login_page(request, session, next_page, failed=True)
    return _logged_in(request, go_to(next_page), cookie)


def _login_page(request: Request, session: Session | None, next_page: str, *, failed: bool = False) -> Response:
    others = [(provider.name, provider.title) for provider in app_state(request).providers.values()]
    answer = 401 if failed else 200
    return show(request, session, "login.html", answer, next=next_page, failed=failed, providers=others)


def _logged_in(request: Request, response: Response, cookie: str) -> Response:
    current = app_state(request)
    # A proxy that nobody told of leaves the scheme at http.
    secure = is_public_https(current) or request.url.scheme == "https"
    name = identity.cookie_of(request)
    response.set_cookie(name, cookie, max_age=SESSION_S, httponly=True, samesite="lax", secure=secure, path="/")
    return response


async def begin_oauth(request: Request, _: Session | None) -> Response:
    """GET /login/{provider}: to GitHub or Discord, and from there back to `finish_oauth`."""
    response = await oauth.begin(request, local_path(request.query_params.get("next", "")))
    response.headers.update(HEADERS)
    return response


async def finish_oauth(request: Request, session: Session | None) -> Response:
    """GET /auth/cli/{provider}: logged in, where this very browser began it. The path is KernelBot's."""
    try:
        who, next_page = await oauth.finish(request)
        response = await _welcome(request, who, local_path(next_page))
    except Refusal as refusal:
        response = refusal_page(request, session, refusal)
    oauth.forget(response, request)
    return response


async def attach(request: Request, session: Session | None) -> Response:
    """GET and POST /login/cli: a user who came by OAuth lets popcorn-cli in."""
    user = user_of(session)
    if request.method == "GET":
        return show(request, session, "attach.html")
    fields = await form(request)
    require_token(user, fields)
    current = app_state(request)
    await oauth.attach(current, user, fields.get("code", ""))
    # The user's credentials are others now, and a session is signed with them.
    return await _welcome(request, user.user, "/mine")


async def _welcome(request: Request, who: User, path: str) -> Response:
    """To a page, with a new session."""
    cookie = await identity.new_cookie(app_state(request), who)
    if cookie is None:
        raise Refusal(403, "This user's logins have just been ended")
    return _logged_in(request, go_to(path), cookie)


async def logout(request: Request, session: Session | None) -> Response:
    """POST /logout: this browser forgets; `kernel-runner user revoke` ends all sessions of a user."""
    if session is not None:
        require_token(session, await form(request))
    response = go_to("/")
    current = app_state(request)
    response.delete_cookie(identity.cookie_of(request), path="/", secure=is_public_https(current))
    return response
