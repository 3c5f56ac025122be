"""Logins by OAuth, against a stand-in of GitHub and Discord: whom they let in; no link takes an account over."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from structlog.testing import capture_logs

from runner.base.errors import ConfigError
from runner.extras.config import SiteConfig
from runner.extras.gateway import oauth
from runner.extras.gateway.oauth import providers
from tests.integration.extras.gateway.conftest import Answer, Gate, revoke
from tests.integration.extras.gateway.test_pages import Browser, checked
from tests.support.serving import serving
from tests.support.waiting import PATIENCE_S

#: Of a user: id, cli_id, cli_valid, web_auth_id, provider.
Row = tuple[str, str | None, bool, str | None, str | None]
PUBLIC = "http://kernels.example"
SECRET = "the-secret-of-the-application"


@dataclass(kw_only=True)
class StandIn:
    """A provider: codes that it has given away, and what it says of people."""

    person: object
    url: str = ""
    #: What the next token is refused with.
    refuses: int = 0
    #: Code -> PKCE's challenge and the address to go back to.
    codes: dict[str, tuple[str, str]] = field(default_factory=dict)
    exchanged: int = 0

    def authorize(self, location: str) -> dict[str, str]:
        """What a person's consent does: the query with which the browser is sent back."""
        asked = {key: values[0] for key, values in parse_qs(urlsplit(location).query).items()}
        assert location.startswith(self.url)
        fixed = {"response_type": "code", "client_id": "our-application", "code_challenge_method": "S256"}
        assert fixed.items() <= asked.items()
        code = f"code-{len(self.codes)}"
        self.codes[code] = (asked["code_challenge"], asked["redirect_uri"])
        return {"code": code, "state": asked["state"]}

    def exchange(self, form: dict[str, str]) -> tuple[int, object]:
        """A token for a code, once, for who has begun the login."""
        self.exchanged += 1
        if self.refuses:
            return self.refuses, {"error": "refused"}
        challenge, back = self.codes.pop(form.get("code", ""), ("", ""))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        right = (
            base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == challenge
            and form["redirect_uri"] == back
            and form["client_secret"] == SECRET
            and form["grant_type"] == "authorization_code"
        )
        # As GitHub does it: 200 for an error too.
        return 200, {"access_token": "a-token", "token_type": "bearer"} if right else {"error": "bad_verification_code"}


def handler_of(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    """The stand-in over HTTP, at the paths of both providers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {key: values[0] for key, values in parse_qs(body).items()}
            known = self.path in {"/login/oauth/access_token", "/api/oauth2/token"}
            self._say(*(stand_in.exchange(form) if known else (404, {})))

        def do_GET(self) -> None:
            known = (
                self.path in {"/api/v3/user", "/api/users/@me"} and self.headers["Authorization"] == "Bearer a-token"
            )
            self._say(*((200, stand_in.person) if known else (401, {})))

        def _say(self, status: int, value: object) -> None:
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """GitHub, which knows one person, and answers as quickly as a busy machine lets it."""
    monkeypatch.setattr("runner.extras.gateway.oauth._ANSWER_S", PATIENCE_S)
    made = StandIn(person={"id": 4711, "login": "octocat"})
    with serving(handler_of(made)) as made.url:
        yield made


@pytest.fixture
def open_site(open_gate: Callable[..., Gate], github: StandIn, tmp_path: Path) -> Callable[[int], Gate]:
    """Starts gateways that let people in by both providers, which are one here; by their requests a minute."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n", encoding="utf-8")
    settings: dict[str, object] = {"gateway_public_url": PUBLIC}
    for name in ("github", "discord"):
        settings |= {f"gateway_{name}_client_id": "our-application", f"gateway_{name}_secret_file": secret}
        settings |= {f"gateway_{name}_url": github.url}
    return lambda per_minute: open_gate(gateway_requests_per_minute=per_minute, **settings)


@pytest.fixture
def site(open_site: Callable[[int], Gate]) -> Gate:
    """One of them, before a board."""
    made = open_site(100_000)
    made.bench.board()
    return made


def come_back(browser: Browser, query: dict[str, str], provider: str = "github") -> Answer:
    """The provider sends the browser back."""
    answer = browser.get(f"/auth/cli/{provider}?{urlencode(query)}")
    for cookie in answer.headers.get("set-cookie", "").split(", "):
        if cookie.startswith("kernel_runner_session="):
            browser.cookie = cookie.partition(";")[0]
    return answer


def begin(browser: Browser, provider: str = "github", next_page: str = "/mine") -> str:
    """Begin a login; keeps the cookie. Where the browser is sent."""
    answer = browser.get(f"/login/{provider}?{urlencode({'next': next_page})}")
    assert answer.status == 303
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(attributes)
    browser.cookie = cookie
    return answer.headers["location"]


def attempt(browser: Browser, stand_in: StandIn, provider: str = "github", next_page: str = "/mine") -> Answer:
    """A whole login; its end."""
    return come_back(browser, stand_in.authorize(begin(browser, provider, next_page)), provider)


def log_in(site: Gate, stand_in: StandIn, provider: str = "github") -> Browser:
    """A browser with a person who has logged in."""
    browser = Browser(site)
    answer = attempt(browser, stand_in, provider)
    assert (answer.status, answer.headers["location"]) == (303, "/mine"), answer.text
    return browser


def add(site: Gate, row: Row) -> None:
    """A user who was there before."""
    site.sql(
        "INSERT INTO leaderboard.user_info (id, cli_id, cli_valid, web_auth_id, cli_auth_provider, user_name)"
        " VALUES (%s, %s, %s, %s, %s, 'Ada')",
        *row,
    )


def test_a_person_is_let_in(site: Gate, github: StandIn) -> None:
    """Made at the first login, found at the next; the name stays; submits, and logs out."""
    assert "Log in with GitHub" in checked(Browser(site).get("/login"))
    browser = log_in(site, github)
    assert "octocat" in checked(browser.get("/mine"))
    github.person = {"id": 4711, "login": "renamed"}
    assert "octocat" in log_in(site, github).get("/mine").text
    assert site.sql("SELECT id, user_name, cli_id, cli_auth_provider FROM leaderboard.user_info") == [
        ("4711", "octocat", None, "github")
    ]
    body = f"csrf={browser.csrf()}".encode()
    assert 'kernel_runner_session=""' in browser.post("/logout", body).headers["set-cookie"]
    revoke(site.bench.store, "4711")
    assert browser.get("/mine").status == 303


def test_a_foreign_link_takes_nothing_over(site: Gate, github: StandIn) -> None:
    """An answer counts in the browser that asked, with its state, at its provider; it leads to no other site."""
    mallory, victim = Browser(site), Browser(site)
    query = github.authorize(begin(mallory))
    assert come_back(victim, query).status == 400
    begin(victim)
    kept = victim.cookie
    kernelbots = base64.urlsafe_b64encode(json.dumps({"cli_id": "mallory", "is_reset": True}).encode()).decode()
    for bad in (query, {**query, "state": ""}, {"code": query["code"]}, {**query, "state": kernelbots}):
        victim.cookie = kept
        refused = come_back(victim, bad)
        assert refused.status == 400, bad
        checked(refused)
    assert come_back(mallory, query, "discord").status == 400
    # A cookie that was not ours begins nothing, whatever the state.
    others = [base64.urlsafe_b64encode(b'["github","%s","v","/"]' % state).decode() for state in (b"", b"another")]
    for cookie in ("x", "", "W10=", "bnVsbA==", *others, "e30=", "%ff", "[" * 3000):
        for state in ("", "x"):
            victim.cookie = f"{oauth._cookie(state, secure=False)}={cookie}"
            assert come_back(victim, {"code": "c", "state": state}).status == 400, cookie
    assert github.exchanged == 0
    assert come_back(mallory, query).status == 303
    assert site.sql("SELECT count(*) FROM leaderboard.user_info") == [(1,)]
    for page in ("https://evil.example", "//evil.example", "/\\evil.example"):
        assert attempt(Browser(site), github, next_page=page).headers["location"] == "/"


#: A person at each provider.
OCTOCAT, CLYDE = "4711", "112233445566778899"
PERSONS = {"github": {"id": int(OCTOCAT), "login": "octocat"}, "discord": {"id": CLYDE, "username": "clyde"}}


#: Users who were there before, the provider that vouches for a person of their number, and whether it lets that one in.
BEFORE: Final[tuple[tuple[Row, str, bool], ...]] = (
    # An operator's, another provider's, and one that a frontend made of a number of its own.
    ((OCTOCAT, "x", True, None, "operator"), "github", False),
    ((OCTOCAT, None, False, "w", "discord"), "github", False),
    ((OCTOCAT, None, False, None, None), "github", False),
    ((CLYDE, "x", True, None, "operator"), "discord", False),
    # Those of KernelBot's website, command line and bot.
    ((OCTOCAT, None, False, "w", None), "github", True),
    ((OCTOCAT, "x", True, None, "github"), "github", True),
    ((CLYDE, None, False, None, None), "discord", True),
)


def test_who_may_log_in_as_a_user_who_was_there_before(site: Gate, github: StandIn) -> None:
    """KernelBot's own; a user whom another made is refused, and nothing changes."""
    for row, provider, is_let_in in BEFORE:
        site.sql("DELETE FROM leaderboard.user_info")
        add(site, row)
        before = site.sql("SELECT * FROM leaderboard.user_info")
        github.person = PERSONS[provider]
        if is_let_in:
            assert "Ada" in log_in(site, github, provider).get("/mine").text, row
            continue
        refused = attempt(Browser(site), github, provider)
        assert (refused.status, "exists already" in checked(refused)) == (403, True), row
        assert site.sql("SELECT * FROM leaderboard.user_info") == before
        assert site.sql("SELECT count(*) FROM runner.web_login") == [(0,)]


#: Who a provider says came, and how that is answered.
PEOPLE = [
    # A number of the other provider's length: one number never names two people.
    ({"id": int(CLYDE), "login": "clyde"}, 403),
    ({}, 502),
    ([], 502),
    ({"id": None, "login": "x"}, 502),
    ({"id": True, "login": "x"}, 502),
    ({"id": 4711}, 502),
    ({"id": "ada", "login": "x"}, 403),
    ({"id": "0", "login": "x"}, 403),
    ({"id": -5, "login": "x"}, 403),
    ({"id": 4711, "login": "a\nb"}, 403),
    (b"<html>", 502),
    (b"[" * 100_000, 502),
]


def test_what_a_provider_says_is_not_trusted(site: Gate, github: StandIn) -> None:
    """Neither its form nor its length; Discord names people by long numbers, as text."""
    github.person = {"id": OCTOCAT, "username": "octocat"}
    assert attempt(Browser(site), github, "discord").status == 403
    for person, status in PEOPLE:
        github.person = person
        answer = attempt(Browser(site), github)
        assert (answer.status, SECRET in checked(answer)) == (status, False)
        assert site.sql("SELECT count(*) FROM leaderboard.user_info") == [(0,)]
    github.person = PERSONS["discord"]
    assert "clyde" in log_in(site, github, "discord").get("/mine").text


def test_logins_that_begin_in_several_tabs(site: Gate, github: StandIn) -> None:
    """Two end in either order, each on its own page, and its answer counts once; a browser keeps few that have begun.

    A page of another site may begin as many as it likes, and a header that is too long is refused.
    """
    for last_first in (False, True):
        browser, queries, cookies = Browser(site), {}, []
        for page in ("/mine", "/users"):
            queries[page] = github.authorize(begin(browser, next_page=page))
            cookies.append(browser.cookie)
        browser.cookie = "; ".join(cookies)
        for page in sorted(queries, reverse=last_first):
            answer = browser.get(f"/auth/cli/github?{urlencode(queries[page])}")
            assert (answer.status, answer.headers["location"]) == (303, page)
            name = oauth._cookie(queries[page]["state"], secure=False)
            assert f'{name}=""' in answer.headers["set-cookie"]
    cookies = []
    for _ in range(6):
        begin(browser)
        cookies.append(browser.cookie)
    browser.cookie = "; ".join(cookies)
    answer = browser.get("/login/github")
    names = [each.partition("=")[0] for each in cookies]
    assert [name for name in names if f'{name}=""' in answer.headers["set-cookie"]] == names[:3]


def test_a_provider_that_refuses_or_is_away(site: Gate, github: StandIn) -> None:
    """A page that says so, and the reason in the log, without the secret; a person who says no, too."""
    with capture_logs() as logs:
        for refuses, status in ((400, 403), (500, 502)):
            github.refuses = refuses
            assert attempt(Browser(site), github).status == status
        github.refuses = 0
        for told in ({"error": "access_denied"}, {"code": "another"}):
            browser = Browser(site)
            state = github.authorize(begin(browser))["state"]
            assert come_back(browser, {**told, "state": state}).status == 403
    reasons = [line["reason"] for line in logs if line["event"] == "login_failed"]
    words = ("answer 400", "answer 500", "access_denied", "bad_verification_code")
    assert all(word in reason for word, reason in zip(words, reasons, strict=True)), reasons
    assert SECRET not in str(logs)


def test_a_site_without_oauth(gate: Gate) -> None:
    """Says what to do instead."""
    assert "Log in with" not in gate.ask("GET", "/login").text
    for path in ("/login/github", "/auth/cli/github?code=c&state=s", "/login/myspace"):
        answer = gate.ask("GET", path)
        assert answer.status == 404
        assert "operator" in answer.text


def test_popcorn_cli_is_let_in_by_its_user(site: Gate, github: StandIn) -> None:
    """By the code in the user's own file; the session goes on. Who came by a token needs an operator."""
    state = site.ask("GET", "/auth/init?provider=github").json["state"]
    browser = log_in(site, github)
    checked(browser.get("/login/cli"))
    assert browser.post("/login/cli", f"csrf=x&code={state[:8]}".encode()).status == 403
    assert browser.post("/login/cli", f"csrf={browser.csrf()}&code=00000000".encode()).status == 400
    answer = browser.post("/login/cli", f"csrf={browser.csrf()}&code={state[:8]}".encode())
    assert answer.status == 303
    assert site.ask("GET", "/user/submissions", cli=state).status == 200
    assert browser.get("/mine").status == 303, "the session before ends with the credentials before"
    browser.cookie = answer.headers["set-cookie"].partition(";")[0]
    assert browser.get("/mine").status == 200
    assert site.submit(cli=state).status == 202
    assert site.sql("SELECT user_id FROM leaderboard.submission") == [("4711",)]
    site.user("bob")
    other, waits = Browser(site, "bob-token"), site.ask("GET", "/auth/init?provider=github").json["state"]
    assert other.post("/login/cli", f"csrf={other.csrf()}&code={waits[:8]}".encode()).status == 409


@pytest.mark.usefixtures("limits_stand_still")
def test_attempts_are_limited(open_site: Callable[[int], Gate], github: StandIn) -> None:
    """Each costs a request to the provider."""
    site = open_site(100)
    github.refuses = 400
    assert [attempt(Browser(site), github).status for _ in range(3)] == [403, 403, 429]


def test_with_encryption_the_cookie_is_this_hosts_alone(tmp_path: Path) -> None:
    """And a configuration that lacks a part is refused at the start."""
    assert oauth._cookie("s", secure=True).startswith("__Host-")
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    with pytest.raises(ConfigError, match="gateway_public_url"):
        providers(SiteConfig(gateway_github_client_id="x", gateway_github_secret_file=secret))
    with pytest.raises(ConfigError, match="gateway_discord_secret_file"):
        providers(SiteConfig(gateway_discord_client_id="x"))
    real = SiteConfig(
        gateway_public_url="https://kernels.example", gateway_github_client_id="x", gateway_github_secret_file=secret
    )
    assert providers(real)["github"].person_url == "https://api.github.com/user"
