"""Identifies callers: users by header, operators by the admin token, people in a browser by a signed cookie.

A credential is compared in the database, where ours are digests; KernelBot's own are stored as they are. A cookie is
signed with a digest of the user's credentials, so a new token, or none, ends every session.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from starlette.requests import Request

from runner.extras.gateway.context import AppState, Refusal, app_state, cookie_prefix, is_public_https

CLI_HEADER: Final = "x-popcorn-cli-id"
WEB_HEADER: Final = "x-web-auth-id"
_COOKIE: Final = "kernel_runner_session"
SESSION_S: Final = 7 * 24 * 3600
#: How a cookie names the operator, whose key is the admin token; a user's name begins with `u`.
_OPERATOR: Final = "o"
_USER: Final = "u"
_DIGEST: Final = "sha256:"
_LONGEST: Final = 512
#: Of an address that may end in a slash.
_PORT: Final = re.compile(r":([0-9]{1,5})/?$")


@dataclass(frozen=True, kw_only=True)
class User:
    """A user who is logged in."""

    id: str
    name: str | None
    banned: bool
    #: Came with the header of a website.
    by_web: bool = False
    operator: bool = False


#: Not in the database: no user has an empty id.
OPERATOR: Final = User(id="", name="operator", banned=False, operator=True)


@dataclass(frozen=True, kw_only=True)
class Session:
    """A user in a browser, and what protects this user's forms."""

    user: User
    csrf: str = field(repr=False)


def digest(token: str) -> str:
    """The stored digest of a token."""
    return _DIGEST + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def address(request: Request) -> str:
    """Where a request comes from, however it is spelled; a network of 64 bits counts as one address of IPv6."""
    host = request.client.host if request.client is not None else "unix"
    try:
        parsed = ip_address(host)
    except ValueError:
        return host
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))


def from_here(request: Request) -> None:
    """Count a request without a login against its address.

    Raises:
        Refusal: 429.
    """
    current = app_state(request)
    _admit(current, current.limits.address.take(address(request)))


def attempt(request: Request) -> None:
    """Count an attempt to log in against its address.

    Raises:
        Refusal: 429.
    """
    attempt_of(app_state(request), address(request))


def attempt_of(current: AppState, key: str) -> None:
    """Count an attempt under any key.

    Raises:
        Refusal: 429.
    """
    _admit(current, current.limits.attempt.take(key))


async def user(request: Request) -> User:
    """The user whom the headers name.

    Raises:
        Refusal: 400 without a header, 401 if it is unknown, 429.
    """
    who = await optional_user(request)
    if who is None:
        raise Refusal(400, "Missing X-Web-Auth-Id or X-Popcorn-Cli-Id header")
    return who


async def cli_user(request: Request) -> User:
    """As `user`, for routes that only popcorn-cli calls."""
    if CLI_HEADER not in request.headers:
        from_here(request)
        raise Refusal(400, "Missing X-Popcorn-Cli-Id header")
    return await _named(request, "Invalid or unauthorized X-Popcorn-Cli-Id", cli_only=True)


async def optional_user(request: Request) -> User | None:
    """The user whom the headers name, or None without such headers."""
    if WEB_HEADER not in request.headers and CLI_HEADER not in request.headers:
        from_here(request)
        return None
    return await _named(request, "Invalid or unauthorized auth header")


async def _named(request: Request, sentence: str, *, cli_only: bool = False) -> User:
    current = app_state(request)
    web = None if cli_only else request.headers.get(WEB_HEADER)
    token = web if web is not None else request.headers.get(CLI_HEADER, "")
    user = await by_token(current, token, web=web is not None)
    if user is None:
        attempt(request)
        raise Refusal(401, sentence)
    _admit(current, current.limits.user.take(user.id))
    return user


async def by_token(current: AppState, token: str, *, web: bool) -> User | None:
    """The user of a token; None: no user has it."""
    if not token or len(token) > _LONGEST:
        return None
    # A stored digest reveals no token.
    forms = [digest(token), *([] if token.startswith(_DIGEST) else [token])]
    row = await current.store.one("login_of", cli=[] if web else forms, web=forms if web else [], user_id=None)
    return None if row is None else User(id=row["id"], name=row["user_name"], banned=bool(row["is_banned"]), by_web=web)


def admin(request: Request) -> None:
    """Let only the operator pass.

    Raises:
        Refusal: 401, 429.
    """
    current = app_state(request)
    given = request.headers.get("authorization")
    if given is None:
        from_here(request)
        raise Refusal(401, "Missing Authorization header")
    scheme, _, token = given.partition(" ")
    if scheme.lower() != "bearer" or not is_admin_token(current, token.strip()):
        attempt(request)
        raise Refusal(401, "Invalid admin token")
    _admit(current, current.limits.admin.take("admin"))


def is_admin_token(current: AppState, token: str) -> bool:
    """Whether this is the admin token, in a time that does not depend on how much of it is right."""
    expected = current.admin_token
    given = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
    return hmac.compare_digest(given, hashlib.sha256((expected or "").encode()).digest()) and expected is not None


async def session(request: Request) -> Session | None:
    """The user logged in in this browser; None: no user, or the session has ended.

    A program reads pages with its user's token instead, and sends no form.

    Raises:
        Refusal: 401, 429, of a token.
    """
    if request.method == "GET" and CLI_HEADER in request.headers:
        return Session(user=await cli_user(request), csrf=secrets.token_hex())
    parts = request.cookies.get(cookie_of(request), "").split(".")
    if len(parts) != 3 or not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 12:
        return None
    if int(parts[1]) < time.time():
        return None
    current = app_state(request)
    user = await _named_by(current, parts[0])
    if user is None:
        return None
    who, key = user
    expected = _signature(key, parts[0], parts[1])
    if not hmac.compare_digest(parts[2].encode("utf-8", "replace"), expected.encode("ascii")):
        return None
    _admit(current, current.limits.user.take(who.id))
    return Session(user=who, csrf=_signature(key, "csrf", parts[1]))


def cookie_of(request: Request) -> str:
    """The name of the cookie of a session, with the port: browsers keep cookies by host alone, for all ports of it."""
    current = app_state(request)
    address = current.config.gateway_public_url or request.headers.get("host", "")
    port = _PORT.search(address)
    return cookie_prefix(secure=is_public_https(current)) + _COOKIE + ("" if port is None else f"_{port[1]}")


async def new_cookie(current: AppState, who: User) -> str | None:
    """The value of a cookie that logs this user in; None: the user has no credential any more."""
    encoded = base64.urlsafe_b64encode(who.id.encode("utf-8")).decode("ascii")
    name = _OPERATOR if who.operator else _USER + encoded
    user = await _named_by(current, name)
    if user is None:
        return None
    until = str(int(time.time()) + SESSION_S)
    return f"{name}.{until}.{_signature(user[1], name, until)}"


async def _named_by(current: AppState, name: str) -> tuple[User, str] | None:
    """The user whom a cookie names, and the key that its signature needs."""
    if name == _OPERATOR:
        return None if current.admin_token is None else (OPERATOR, current.admin_token)
    try:
        user_id = base64.urlsafe_b64decode(name.removeprefix(_USER).encode("ascii")).decode("utf-8")
    except ValueError:
        return None
    row = await current.store.one("login_of", cli=[], web=[], user_id=user_id)
    if row is None or not name.startswith(_USER):
        return None
    return User(id=row["id"], name=row["user_name"], banned=bool(row["is_banned"])), row["session_key"]


def _signature(key: str, *parts: str) -> str:
    return hmac.new(key.encode(), ".".join(parts).encode(), hashlib.sha256).hexdigest()


def _admit(current: AppState, wait_s: float) -> None:
    if wait_s > 0:
        current.metrics.limited.inc()
        raise Refusal(429, f"Too many requests. Try again in {int(wait_s) + 1}s.", retry_after_s=wait_s)


def same(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not depend on how much of them is."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode("utf-8"))
