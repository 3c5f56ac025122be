"""Login of people by GitHub and Discord: OAuth's authorisation code flow with state and PKCE.

A login begins and ends in the same browser. State and PKCE's verifier lie in a cookie of that browser, one for each
login that has begun there, and the provider's answer counts only with them. So no link logs a browser in, and none
takes an account over. The gateway keeps nothing. popcorn-cli opens a fixed address of its own, so it cannot take part:
`attach` gives its login to a person who is logged in.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from runner.base.errors import ConfigError
from runner.base.logs import get_logger
from runner.extras.config import SiteConfig
from runner.extras.environment import environment_explained
from runner.extras.gateway import identity
from runner.extras.gateway.context import AppState, Provider, Refusal, app_state, cookie_prefix, is_public_https
from runner.extras.gateway.identity import Session, User
from runner.extras.store import RefusedError

_log = get_logger("gateway.oauth")
#: What a provider may take for one answer, in seconds, and how long an answer may be.
_ANSWER_S: Final = 10.0
_ANSWER_BYTES: Final = 64 * 1024
#: How long a login may take in the browser.
_LOGIN_S: Final = 600
_COOKIE: Final = "kernel_runner_oauth"
#: Logins that may have begun in a browser. A page of another site can begin more, and a long header is refused.
_BEGUN: Final = 4
_LONGEST: Final = 2048
_AWAY: Final = "does not answer. Try again later."
#: Characters of a reason in the log.
_REASON: Final = 200


def providers(config: SiteConfig) -> Mapping[str, Provider]:
    """Those that the configuration names.

    Raises:
        ConfigError: one lacks its secret, the gateway's public address is not known, or the environment's proxy or
            certificates cannot be used.
    """
    by_name: dict[str, Provider] = {}
    github, discord = config.gateway_github_url.rstrip("/"), config.gateway_discord_url.rstrip("/")
    if config.gateway_github_client_id is not None:
        by_name["github"] = Provider(
            name="github",
            title="GitHub",
            client_id=config.gateway_github_client_id,
            client_secret=_secret(config, "gateway_github_secret"),
            authorize_url=f"{github}/login/oauth/authorize",
            token_url=f"{github}/login/oauth/access_token",
            person_url="https://api.github.com/user" if github == "https://github.com" else f"{github}/api/v3/user",
            scope="",
            name_key="login",
        )
    if config.gateway_discord_client_id is not None:
        by_name["discord"] = Provider(
            name="discord",
            title="Discord",
            client_id=config.gateway_discord_client_id,
            client_secret=_secret(config, "gateway_discord_secret"),
            authorize_url=f"{discord}/oauth2/authorize",
            token_url=f"{discord}/api/oauth2/token",
            person_url=f"{discord}/api/users/@me",
            scope="identify",
            name_key="username",
        )
    if by_name and config.gateway_public_url is None:
        raise ConfigError("gateway_public_url is not set: OAuth sends people back to it, e.g. https://kernels.example")
    if by_name:
        with environment_explained():
            _client()
    return by_name


def _secret(config: SiteConfig, name: str) -> str:
    secret = config.secret(name)
    if secret is None:
        raise ConfigError(f"{name}_file is not set: {name.replace('_secret', '_client_id')} needs it")
    return secret


async def begin(request: Request, next_page: str) -> Response:
    """GET /login/{provider}: sends the browser to the provider."""
    provider = _chosen(request)
    state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).rstrip(b"=").decode("ascii")
    query = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": _back(app_state(request), provider),
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        **({"scope": provider.scope} if provider.scope else {}),
    }
    response = RedirectResponse(f"{provider.authorize_url}?{urlencode(query)}", 303)
    value = base64.urlsafe_b64encode(json.dumps([provider.name, state, verifier, next_page]).encode()).decode("ascii")
    secure = is_public_https(app_state(request))
    response.set_cookie(
        _cookie(state, secure=secure), value, max_age=_LOGIN_S, httponly=True, samesite="lax", secure=secure, path="/"
    )
    # Browsers send the oldest first.
    for old in [name for name in request.cookies if name.startswith(_prefix(secure=secure))][: 1 - _BEGUN]:
        _remove(response, old, secure=secure)
    return response


async def finish(request: Request) -> tuple[User, str]:
    """What the provider sends a browser back with: the person, and the page to go on to.

    Raises:
        Refusal: 400, this browser has begun no such login; 403, the provider or the queue refuses; 502, no answer.
    """
    provider = _chosen(request)
    current = app_state(request)
    verifier, next_page = _begun(request, provider)
    code = request.query_params.get("code", "")
    if "error" in request.query_params or not 0 < len(code) <= _LONGEST:
        raise _failed(provider, 403, "did not log you in", request.query_params.get("error", "no code"))
    identity.attempt(request)
    person = await _person(provider, code, verifier, _back(current, provider))
    subject, name = person.get("id"), person.get(provider.name_key)
    if isinstance(subject, bool) or not isinstance(subject, int | str) or not isinstance(name, str):
        raise _failed(provider, 502, "told of no person", f"{provider.person_url} has no such keys")
    try:
        row = await current.store.row(
            "web_login", provider=provider.name, subject=str(subject), user_name=name[:255] or None
        )
    except RefusedError as error:
        raise Refusal(403, str(error)) from error
    return User(id=row["user_id"], name=name, banned=False), next_page


def forget(response: Response, request: Request) -> None:
    """Remove what a browser keeps of a login that is over."""
    secure = is_public_https(app_state(request))
    name = _cookie(request.query_params.get("state", ""), secure=secure)
    _remove(response, name, secure=secure)


async def attach(current: AppState, session: Session, code: str) -> None:
    """Give the login of popcorn-cli that waits under a code to a user who has logged in by OAuth.

    Raises:
        Refusal: 400, no login waits under the code; 409, the user has not logged in so; 429.
    """
    identity.attempt_of(current, f"attach {session.user.id}")
    try:
        await current.store.one("attach_login", code=code.strip()[:8], user_id=session.user.id)
    except RefusedError as error:
        raise Refusal(409 if error.code == "KR043" else 400, str(error)) from error


def _chosen(request: Request) -> Provider:
    name = request.path_params["provider"]
    provider = app_state(request).providers.get(name)
    if provider is None:
        raise Refusal(404, "This site has no such login. Ask an operator to approve the first 8 characters of cli_id")
    return provider


def _begun(request: Request, provider: Provider) -> tuple[str, str]:
    """PKCE's verifier and the next page, as this browser has kept them."""
    asked_state = request.query_params.get("state", "")
    try:
        kept = json.loads(
            base64.urlsafe_b64decode(request.cookies[_cookie(asked_state, secure=is_public_https(app_state(request)))])
        )
        name, state, verifier, next_page = (str(item) for item in kept)
    except (KeyError, ValueError, TypeError, RecursionError):
        name = state = verifier = next_page = ""
    if not state or name != provider.name or not identity.same(asked_state, state):
        raise Refusal(400, "This browser has not begun this login, or too long ago. Begin at the page Log in.")
    return verifier, next_page


async def _person(provider: Provider, code: str, verifier: str, back: str) -> Mapping[str, Any]:
    """Whom a code stands for, as the provider tells it."""
    form = {
        "grant_type": "authorization_code",
        "client_id": provider.client_id,
        "client_secret": provider.client_secret,
        "code": code,
        "redirect_uri": back,
        "code_verifier": verifier,
    }
    try:
        async with _client() as client:
            status, granted = await _asked(client, "POST", provider.token_url, data=form)
            token = granted.get("access_token")
            if status >= 500:
                raise _failed(provider, 502, _AWAY, f"answer {status} of {provider.token_url}")
            # GitHub says 200 for a code that is wrong.
            if status != 200 or not isinstance(token, str):
                reason = f"answer {status} of {provider.token_url}: {granted.get('error', 'no access_token')}"
                raise _failed(provider, 403, "did not log you in", reason)
            status, person = await _asked(
                client, "GET", provider.person_url, headers={"Authorization": f"Bearer {token}"}
            )
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise _failed(provider, 502, _AWAY, f"{type(error).__name__}: {error}") from error
    if status != 200:
        raise _failed(provider, 502, "told of no person", f"answer {status} of {provider.person_url}")
    return person


def _failed(provider: Provider, status: int, sentence: str, reason: str) -> Refusal:
    """The end of a login; only the log says why, since it may be the operator's to mend."""
    _log.warning("login_failed", provider=provider.name, reason=reason[:_REASON])
    return Refusal(status, f"{provider.title} {sentence}")


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=_ANSWER_S, headers={"Accept": "application/json", "User-Agent": "kernel-runner"})


async def _asked(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    data: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Mapping[str, Any]]:
    """Status and JSON object of an answer; an answer that is too long or no object is an empty one."""
    body = bytearray()
    async with client.stream(method, url, data=data, headers=headers) as answer:
        async for chunk in answer.aiter_bytes():
            body.extend(chunk)
            if len(body) > _ANSWER_BYTES:
                return answer.status_code, {}
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError):
        return answer.status_code, {}
    return answer.status_code, value if isinstance(value, dict) else {}


def _back(current: AppState, provider: Provider) -> str:
    """Where the provider sends the browser: the path of KernelBot, which sites have registered."""
    return f"{(current.config.gateway_public_url or '').rstrip('/')}/auth/cli/{provider.name}"


def _cookie(state: str, *, secure: bool) -> str:
    """Of the login of this state."""
    return _prefix(secure=secure) + hashlib.sha256(state.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _prefix(*, secure: bool) -> str:
    return f"{cookie_prefix(secure=secure)}{_COOKIE}_"


def _remove(response: Response, name: str, *, secure: bool) -> None:
    response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="lax")
