"""How a page is made: its template and headers, what becomes of refusals, and which forms count.

A form counts only with the session's token and from a page of this address.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from runner.base import units
from runner.base.errors import DatabaseUnavailableError
from runner.base.model import NEVER
from runner.base.results import number
from runner.extras.gateway import identity, sizes
from runner.extras.gateway.context import Ascii, Refusal, app_state, query_number
from runner.extras.gateway.identity import Session
from runner.extras.gateway.plain import plain
from runner.extras.shown import words

_HERE: Final = Path(__file__).parent
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_STATIC: Final = {path.name: _TYPES[path.suffix] for path in (_HERE / "static").iterdir() if path.suffix in _TYPES}
#: Lines of a list that a page shows.
ROWS: Final = 50
#: What a page shows of a case's two texts, in bytes.
SPEC_BYTES: Final = 120
MESSAGE_BYTES: Final = 240

#: Pages whose record a program may have.
_READABLE: Final = frozenset(
    {"boards.html", "board.html", "mine.html", "view.html", "hosts.html", "winners.html", "entry.html", "diff.html"}
)
#: Of a query that a page repeats: parameters, and characters of one.
_ASKED_KEYS: Final = 4
_ASKED: Final = 200

_SPANS: Final = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"))

Page = Callable[[Request], Awaitable[Response]]


def _seconds(value: object) -> str:
    """A score for people."""
    return units.score(number(value))


def _when(value: datetime | None) -> str:
    if value is None or value >= NEVER:
        return "" if value is None else units.moment(value)
    return f"{units.moment(value)} UTC"


def _left(value: datetime) -> str:
    """When something ends or ended, in words."""
    if value >= NEVER:
        return "without an end"
    seconds = (value - datetime.now(UTC)).total_seconds()
    size, unit = next((each for each in _SPANS if abs(seconds) >= each[0]), (1.0, "second"))
    number_of = int(abs(seconds) / size)
    count = f"{number_of} {unit}{'' if number_of == 1 else 's'}"
    return f"{count} left" if seconds > 0 else f"{count} ago"


def _validated(line: Mapping[str, Any]) -> str:
    """What a validation said, for people."""
    speedup = line["geomean_sync_wall_speedup"]
    return units.shapes(line["status"], line["passed_shapes"], line["total_shapes"], speedup)


_templates: Final = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(
    seconds=_seconds,
    when=_when,
    left=_left,
    iso=lambda value: value.astimezone(UTC).isoformat(timespec="seconds"),
    endless=lambda value: value >= NEVER,
    day=lambda value: value.astimezone(UTC).strftime("%Y-%m-%d"),
    age=units.age,
    size=units.size,
    ns=units.duration,
    spread=units.spread,
    between=units.between,
    percent=units.percent,
    verdict=words.verdict,
    segment=lambda text: quote(text, safe=""),
    cut=sizes.cut,
    validated=_validated,
)
_templates.globals.update(spec_bytes=SPEC_BYTES, message_bytes=MESSAGE_BYTES, timings=words.TIMINGS)


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
            if wants_json(request):
                return Ascii(refusal.body, refusal.status, headers={**HEADERS, **refusal.headers})
            if refusal.status == 401 and request.method in ("GET", "HEAD"):
                query = f"?{request.url.query}" if request.url.query else ""
                return go_to(f"/login?{urlencode({'next': request.url.path + query})}")
            return refusal_page(request, session, refusal)
        except DatabaseUnavailableError:
            if wants_json(request):
                raise
            return show(request, None, "error.html", 503, message="The database is away. Try again in a moment.")

    return answer


def refusal_page(request: Request, session: Session | None, refusal: Refusal) -> Response:
    """Why a request is refused, as a page."""
    detail = refusal.detail if isinstance(refusal.detail, str) else "Something in the form is missing"
    page = show(request, session, "error.html", refusal.status, message=detail)
    page.headers.update(refusal.headers)
    return page


def rows_asked_for(
    request: Request, lines: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[Mapping[str, Any]], dict[str, int]]:
    """The lines of a list that the request asks for, and what its page needs to turn over."""
    offset = query_number(request, "offset", 0, low=0, high=1_000_000)
    turning = {"offset": offset, "size": ROWS, "more": len(lines) > offset + ROWS}
    return lines[offset : offset + ROWS], turning


def wants_json(request: Request) -> bool:
    """Whether a program asks for a page's record."""
    return request.query_params.get("format") == "json"


def show(request: Request, session: Session | None, template: str, answer: int = 200, /, **values: object) -> Response:
    """A page, by its template, or its record as JSON. `answer`: the status code."""
    readable = template in _READABLE
    if readable and wants_json(request):
        return Ascii(plain(values), answer, headers=HEADERS)
    text = _templates.get_template(template).render(
        session=session,
        here=request.url.path,
        json_here=f"{request.url.path}?{urlencode([*_asked(request), ('format', 'json')])}" if readable else None,
        **values,
    )
    return Response(text, answer, media_type="text/html; charset=utf-8", headers=HEADERS)


def part(template: str, **values: object) -> str:
    """A part of a page, by its template."""
    return _templates.get_template(template).render(**values)


def _asked(request: Request) -> Sequence[tuple[str, str]]:
    """The query of a page, as far as another address of it repeats it."""
    return [(key, value[:_ASKED]) for key, value in request.query_params.multi_items()[:_ASKED_KEYS]]


def saved(body: str | bytes, name: str, media_type: str = "text/plain; charset=utf-8") -> Response:
    """An answer that a browser saves as a file, under a plain name."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[-150:]
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{plain}"'}
    return Response(body, media_type=media_type, headers=headers)


def go_to(path: str) -> RedirectResponse:
    """To another page of this service."""
    return RedirectResponse(path, 303, headers=HEADERS)


def user_of(session: Session | None) -> Session:
    """Who is logged in.

    Raises:
        Refusal: 401, no user.
    """
    if session is None:
        raise Refusal(401, "Log in first")
    return session


def operator_of(session: Session | None) -> Session:
    """The operator who is logged in.

    Raises:
        Refusal: 401, no user; 403, no operator.
    """
    user = user_of(session)
    if not user.user.operator:
        raise Refusal(403, "This page is for operators: log in with the admin token")
    return user


def require_token(session: Session, fields: Mapping[str, str]) -> None:
    """Take a form only with the session's token.

    Raises:
        Refusal: 403, it has another.
    """
    if not identity.same(fields.get("csrf", ""), session.csrf):
        raise Refusal(403, "This form is too old. Load the page again.")


def _from_this_site(request: Request) -> None:
    """Refuse a form that a page of another address sends; browsers say where a form comes from.

    What a browser has compared itself holds whatever a proxy makes of the name of this host.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is None and origin is None:
        raise Refusal(403, "This form does not say where it comes from")
    if site not in ("same-origin", "none") if site is not None else not _is_here(request, origin or ""):
        raise Refusal(403, "This form comes from another site, or a proxy does not pass on the name of this one (Host)")


def _is_here(request: Request, origin: str) -> bool:
    """Whether an origin is this host as it is asked for, or as it is configured."""
    try:
        asked = urlsplit(origin)
    except ValueError:
        return False
    default = {"http": ":80", "https": ":443"}.get(asked.scheme, "")
    names = request.headers.get("host", ""), urlsplit(app_state(request).config.gateway_public_url or "").netloc
    return asked.netloc != "" and asked.netloc.lower().removesuffix(default) in (
        name.lower().removesuffix(default) for name in names
    )


def local_path(path: str) -> str:
    """A path of this service to go on to; anything else becomes the first page."""
    plain = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable()
    return path if plain and "\\" not in path and len(path) < 300 else "/"


async def static(request: Request) -> Response:
    """GET /static/{name}: style sheets, scripts and the icon."""
    name = request.path_params["name"]
    if name not in _STATIC:
        raise Refusal(404, "Not Found")
    body = (_HERE / "static" / name).read_bytes()
    return Response(body, media_type=_STATIC[name], headers={"Cache-Control": "public, max-age=300"})
