"""Names of every kind on every route, one ranking told alike everywhere, and finals on a leaderboard's page."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from runner.base import units
from runner.base.errors import BoardError
from runner.base.model import Mode, Verdict
from runner.base.safe import visible
from runner.extras.gateway.app import routes
from tests.integration.extras.gateway.conftest import ADMIN, Gate, watching
from tests.integration.extras.gateway.test_feeds import ATOM, BASE, shared
from tests.integration.extras.gateway.test_pages import FORM, Browser, checked
from tests.integration.store.conftest import Bench, result
from tests.integration.store.test_finals import play, scored

#: Routes, ends of elements, lines and events, other directions and scripts, and what addresses treat as their own.
NAMES = (
    "live", "final", "feed", "board", "events", "code", "%2F", "a?b#c&d=e", "a b+c", ".a..", "\\..\\", "\"'><b>&amp;",
    "<!--", "{{ 7*7 }}", "x\nevent: y\n\ndata: z", "tab\there", "\u202eevil", "محمد علي", "漢字 ünï", "👩\u200d💻",
    "e\u0301" * 40, "-",
)  # fmt: skip


@pytest.fixture
def public(open_gate: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gateway that knows its own address, and keeps no drawings and orders for half a minute."""
    monkeypatch.setattr("runner.extras.gateway.context.DRAWING_S", 0.0)
    return open_gate(gateway_requests_per_minute=100_000, gateway_public_url=BASE)


def test_a_name_of_any_kind_is_shown_as_it_is(public: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a leaderboard and of its user, on each route; in pages, their heads, JSON, feeds, pictures and events.

    What is not seen is an escape where people read it.
    """
    gate, browser, ids = public, Browser(public), {}
    for number, name in enumerate(NAMES):
        with monkeypatch.context() as patched:
            # Other programs give leaderboards any names.
            patched.setattr("runner.extras.boards.store.check_new_name", lambda _: None)
            gate.bench.board(name)
        gate.user(f"u{number}", name=name)
        first, second = (gate.rank(f"u{number}", score_s, leaderboard=name) for score_s in (1e-5, 9e-6))
        ids[name] = first, second
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now()")
    assert {board["name"] for board in browser.get("/?format=json").json["boards"]} == set(NAMES)
    for name, (first, second) in ids.items():
        path = f"/board/{quote(name, safe='')}"
        for page in (path, f"{path}/winners", f"{path}/live", f"/entry/{second}", f"/diff?from={first}&to={second}"):
            # Parsers of HTML take a line feed as it is, and end no element early.
            text = checked(browser.get(page))
            assert f'href="/board/{quote(name, safe="")}' in text, (name, page)
        assert shared(browser.get(path).text)["og:title"] == f"{name} on CPU"[:100], name
        ranking = browser.get(f"{path}?format=json").json
        assert [(place["user_name"], place["rank"]) for place in ranking["places"]] == [(name, 1)]
        feed = ET.fromstring(browser.get(f"{path}/feed").text)  # noqa: S314 - our own
        authors = [str(author.findtext(f"{ATOM}name")) for author in feed.iter(f"{ATOM}author")]
        assert authors == [name] * 2
        assert Image.open(io.BytesIO(browser.get(f"{path}/picture").body)).size == (1200, 630)
        with watching(gate, f"{path}/live/events") as watcher:
            assert html.unescape(watcher.shows("9.00 µs")).count(f"<bdi>{visible(name)[:10]}") == 2, name
    for name in ("a/b", "/", ".", ".."):
        with pytest.raises(BoardError, match="expected a part of an address"):
            gate.bench.board(name)
    for method in ("GET", "HEAD"):
        for path in ("/board/a/b", "/board/live/nothing", "/nothing/at/all"):
            answer = gate.ask(method, path, headers={"Accept": "text/html"})
            assert answer.status in (404, 405)
            if method == "GET":
                assert "There is no such page" in checked(answer)


def test_one_ranking_everywhere(public: Gate) -> None:
    """Ranks and times, equal ones too: on pages, as JSON, live, at the end, by HTTP and SQL, in a picture's words."""
    gate, browser = public, Browser(public)
    gate.bench.board()
    for number, score_s in enumerate((3e-6, 2e-6, 3e-6, 5e-6, 4.04999e-6)):
        gate.user(f"u{number}")
        gate.rank(f"u{number}", score_s * 2)
        gate.rank(f"u{number}", score_s)
    with watching(gate, "/board/identity/live/events") as watcher:
        live = watcher.shows("2.00 µs")
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now()")
    page, path = checked(browser.get("/board/identity")), "/board/identity?format=json"
    told = {
        "SQL": [(row.rank, row.submission_id, row.score_s) for row in gate.bench.store.ranking("identity")],
        "JSON": [(row["rank"], row["submission_id"], row["score"]) for row in browser.get(path).json["places"]],
        "HTTP": [
            (row["rank"], row["submission_id"], row["submission_score"])
            for row in gate.ask("GET", "/submissions/identity/CPU").json
        ],
        "export": gate.sql(
            "SELECT rank, submission_id, score::float8 FROM runner.dataset_ranking ORDER BY rank, submission_time"
        ),
        "entry": [
            (entered["place"]["rank"], number, entered["score"]["score"])
            for number in (4, 2, 6, 10, 8)
            for entered in [browser.get(f"/entry/{number}?format=json").json]
        ],
    }
    expected = [(1, 4, 2e-6), (2, 2, 3e-6), (2, 6, 3e-6), (4, 10, 4.04999e-6), (5, 8, 5e-6)]
    assert told == dict.fromkeys(told, expected)
    texts = [(str(rank), units.score(score_s)) for rank, _, score_s in expected]
    row = r'<td class="number">(\d+)</td>\s*<th scope="row">[^<]*</th>\s*<td[^>]*><strong>([^<]*)</strong>'
    assert re.findall(row, page) == re.findall(row, live) == texts
    winner = r"(\d+) of 5</td>\s*<th[^>]*><a[^>]*>[^<]*</a></th>\s*<td[^>]*><strong>([^<]*)<"
    assert re.findall(winner, browser.get("/board/identity/winners").text) == texts[:3]
    assert shared(page)["og:description"] == "; ".join(
        f"{rank}. U{(number - 1) // 2} {units.score(score_s)}" for rank, number, score_s in expected[:3]
    )
    feed = browser.get("/board/identity/feed").text
    assert "identity on CPU: 2.00 µs by U1" in feed


def test_a_banned_user_ranks_nowhere(public: Gate, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each route that strangers read, in SQL and in exports the others move up; all is as before after the ban."""
    # Live pages read all scores once a minute.
    for name in ("_FRESH_S", "_ALL_S"):
        monkeypatch.setattr(f"runner.extras.gateway.live.{name}", 0.0)
    gate, stranger = public, Browser(public)
    bench.board()
    bench.register("host-a")
    numbers: dict[str, int] = {}
    for user in ("eve", "ada", "bob"):
        gate.user(user)
        numbers[user] = gate.rank(user, 1e-6 * (1 + len(numbers)))
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now()")
    gate.sql("SELECT runner.final('identity', rounds => 10)")
    play(bench, lambda job, _: scored(1e-6 * job.validates))
    values = {"name": "identity", "leaderboard": "identity", "gpu": "CPU", "id": str(numbers["eve"]), "code": "x"}
    paths = [
        re.sub(r"{(\w+)}", lambda found: values[found[1]], route.path)
        for route in routes()
        if "GET" in (route.methods or ()) and set(re.findall(r"{(\w+)}", route.path)) <= values.keys()
        # These wait for events, or are of the author and of operators alone.
        and not route.path.endswith(("/events", "/picture")) and not route.path.startswith(("/view", "/admin", "/user"))
    ]  # fmt: skip

    def told() -> set[str]:
        return {path for path in paths if re.search(r"\bEve\b", stranger.get(path).text)}

    def ranked_users() -> list[list[tuple[object, ...]]]:
        return [
            gate.sql(f"SELECT user_id FROM runner.{view} ORDER BY rank NULLS LAST")  # noqa: S608 - names of ours
            for view in ("ranking", "final_ranking", "dataset_ranking")
        ]

    before = told()
    assert before >= {
        "/board/identity", "/board/identity/winners", "/board/identity/feed", "/feed", "/submissions/identity/CPU",
        f"/entry/{numbers['eve']}",
    }  # fmt: skip
    assert ranked_users() == [[("eve",), ("ada",), ("bob",)]] * 3
    status = "SELECT score IS NOT NULL, unranked FROM runner.status WHERE user_id = 'eve'"
    assert gate.sql(status) == [(True, None)]
    gate.ask("POST", "/admin/ban/eve", admin=ADMIN)
    assert told() == set()
    assert ranked_users() == [[("ada",), ("bob",)]] * 3
    assert gate.sql(status) == [(False, "its user is banned")]
    gate.ask("DELETE", "/admin/ban/eve", admin=ADMIN)
    assert told() == before
    assert ranked_users() == [[("eve",), ("ada",), ("bob",)]] * 3


def _order(browser: Browser, action: str, *, csrf: str | None = None, **fields: str) -> int:
    csrf = browser.csrf() if csrf is None else csrf
    given = {"csrf": csrf, "gpu": "CPU", "top": "10", "rounds": "6", "action": action, **fields}
    body = "&".join(f"{key}={value}" for key, value in given.items()).encode()
    return browser.post("/board/identity/final", body, FORM).status


def test_a_final_on_its_page(public: Gate, bench: Bench) -> None:
    """Ordered once at a time by operators alone; the page tells it as SQL does, whatever became of the finalists."""
    gate, stranger, operator = public, Browser(public), Browser(public, ADMIN)
    bench.board()
    for host in ("host-a", "host-b"):
        bench.register(host)
    ids: list[int] = []
    for user in ("ada", "bob", "eve"):
        gate.user(user)
        if user == "bob":
            assert _order(operator, "order", open="on") == 400, "one entry is no final"
        ids.append(gate.rank(user, 1e-6 * (1 + len(ids))))
    ada = Browser(gate, "ada-token")
    assert [_order(each, "order", csrf=ada.csrf()) for each in (stranger, ada, operator)] == [401, 403, 403]
    assert ["Hold a final" in each.get("/board/identity").text for each in (ada, operator)] == [False, True]
    assert _order(operator, "order") == 400, "the leaderboard is open"
    assert _order(operator, "cancel") == 400, "none runs"
    assert _order(operator, "order", open="on") == 303
    assert _order(operator, "order", open="on") == 400, "one runs"
    assert "A final runs: round 1 of at most 6" in checked(stranger.get("/board/identity"))
    bench.store.complete(job := bench.claim(), scored(1e-6))
    assert _order(operator, "cancel") == 303
    assert job.mode is Mode.FINAL
    assert "Final on" not in checked(stranger.get("/board/identity"))
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now()")

    def shown() -> list[tuple[int | None, str]]:
        checked(operator.get("/board/identity"))
        checked(stranger.get("/board/identity"))
        places = stranger.get("/board/identity?format=json").json["final"]["places"]
        rows = [(place["rank"], place["user_id"], place["score"]) for place in places]
        lines, _ = bench.store.final_ranking("identity")
        assert rows == [(line.rank, line.user_id, line.score_s) for line in lines]
        return [(rank, user) for rank, user, _ in rows]

    # The last was the best before, and one is banned while the final runs.
    assert _order(operator, "order") == 303
    gate.sql("UPDATE leaderboard.user_info SET is_banned = true WHERE id = 'bob'")
    play(bench, lambda job, _: scored(1e-6 * (9 - job.validates)))
    assert shown() == [(1, "eve"), (2, "ada")]
    gate.sql("UPDATE leaderboard.user_info SET is_banned = false")
    page = stranger.get("/board/identity").text
    assert page.index('href="#final"') < page.index('id="final"') < page.index('id="ranking"')
    assert "told apart from itself" in page
    for page in ("winners", "live"):
        assert "/board/identity?gpu=CPU#final" in checked(stranger.get(f"/board/identity/{page}"))
    assert f'"/entry/{ids[0]}"' in checked(ada.get(f"/view/{ids[0]}"))
    # All fail: nobody has a place, and the ranking stands.
    assert _order(operator, "order") == 303
    play(bench, lambda *_: result(Verdict.WRONG_ANSWER))
    assert shown() == [(None, user) for user in ("ada", "bob", "eve")]
    assert len(bench.store.ranking("identity")) == 3
    # Reopened, and deleted.
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now() + interval '1 day'")
    assert len(shown()) == 3
    assert gate.ask("DELETE", f"/user/submissions/{ids[2]}", cli="eve-token").status == 200
    assert [user for _, user in shown()] == ["ada", "bob"]
