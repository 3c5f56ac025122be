"""All requests and streams share an event loop: what is made of megabytes is made beside it, and nothing twice."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.formparsers import FormParser, MultiPartParser

from runner.base.model import Verdict
from runner.extras.gateway import context, html
from runner.extras.gateway.app import routes
from tests.integration.extras.gateway.conftest import ADMIN, Gate
from tests.integration.extras.gateway.test_pages import Browser
from tests.integration.store.conftest import result, run_record

_MIB = 2**20
#: Bodies that cost a parser most, by what they are said to be.
_FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n%s\r\n--b--'
_COSTLY = {
    "multipart/form-data; boundary=b": (_FORM % (b"\r\n-" * 300_000),),
    "application/x-www-form-urlencoded": (b"&" * 60_000, b"&" * _MIB),
    "application/json": (b"[" * _MIB,),
}


def filled(gate: Gate) -> int:
    """A leaderboard with a large task, and a submission with large results: its id."""
    gate.sql(
        "UPDATE leaderboard.leaderboard SET task = jsonb_set(task, '{files,big.py}', to_jsonb(repeat('é', %s)))", _MIB
    )
    number = int(gate.submit().json["details"]["id"])
    cases = {f"test.{index}.spec": "ü" * 2_000 for index in range(100)}
    record = run_record("test", result={"test-count": "100", **cases}, meta={"stdout": "x" * _MIB, "success": True})
    gate.bench.store.complete(gate.bench.claim(), result(Verdict.ACCEPTED, record))
    return number


@pytest.fixture
def made_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that have made JSON of more than 256 KiB, or a submission's page."""
    threads: list[str] = []
    make, show = context._json, html._templates.get_template

    def recorded(value: object) -> str:
        text = make(value)
        if len(text) > 256 << 10:
            threads.append(threading.current_thread().name)
        return text

    def templates(name: str) -> object:
        if name == "view.html":
            threads.append(threading.current_thread().name)
        return show(name)

    monkeypatch.setattr(context, "_json", recorded)
    monkeypatch.setattr(html._templates, "get_template", templates)
    return threads


def test_what_is_large_is_made_in_a_thread(gate: Gate, made_by: list[str]) -> None:
    """By each route that answers with results or tasks, and by a stream's end."""
    number, ada = filled(gate), Browser(gate, "ada-token")
    asked: list[Callable[[], object]] = [
        lambda: gate.ask("GET", "/leaderboards").json,
        lambda: gate.ask("GET", f"/user/submissions/{number}", cli="ada-token").json,
        lambda: gate.ask("GET", f"/admin/submissions/{number}", admin=ADMIN).json,
        lambda: ada.get(f"/view/{number}").text,
    ]
    for ask in asked:
        before = len(made_by)
        assert ask()
        assert len(made_by) > before
    assert all(name.startswith("asyncio_") for name in made_by), made_by


def test_bodies_are_parsed_in_a_thread_or_are_small(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they hold, and whoever sends them: routes with forms, with files, and with JSON."""
    #: Bytes of what the loop's thread has parsed as JSON, and the threads that have parsed forms.
    in_loop: list[int] = []
    form_threads: set[str] = set()
    loads = json.loads

    def loaded(text: Any, **more: Any) -> Any:  # noqa: ANN401 as json.loads
        if not threading.current_thread().name.startswith("asyncio_"):
            in_loop.append(len(text))
        return loads(text, **more)

    monkeypatch.setattr(json, "loads", loaded)
    for parser in (FormParser, MultiPartParser):

        def parsed(self: Any, parse: Callable[[Any], Any] = parser.parse) -> Any:  # noqa: ANN401 of either parser
            form_threads.add(threading.current_thread().name)
            return parse(self)

        monkeypatch.setattr(parser, "parse", parsed)
    posted = [route.path for route in routes() if "POST" in (route.methods or ())]
    assert len(posted) > 15
    for path in posted:
        place = path.replace("{lb}", "identity").replace("{leaderboard}", "identity").replace("{gpu}", "CPU")
        place = re.sub(r"{[^}]*}", "1", place.replace("{mode}", "test").replace("{name}", "identity"))
        for kind, bodies in _COSTLY.items():
            for body in bodies:
                answer = gate.ask("POST", place, body, headers={"Content-Type": kind}, cli="ada-token", admin=ADMIN)
                assert answer.status < 500 or answer.status == 501, (place, kind, answer)
    assert form_threads
    assert all(name.startswith("asyncio_") for name in form_threads), form_threads
    assert max(in_loop) <= 64 << 10


def test_tasks_are_made_once_and_shown_of_public_leaderboards_alone(gate: Gate, made_by: list[str]) -> None:
    """A second request makes nothing; one that is closed is hidden at once, a new one is there at once."""
    filled(gate)
    first = gate.ask("GET", "/leaderboards")
    assert first.json[0]["task"]["files"]["big.py"] == "é" * _MIB
    assert first.headers["content-type"] == "application/json"
    assert gate.ask("GET", "/leaderboards").body == first.body
    assert len(made_by) == 1
    gate.sql("UPDATE leaderboard.leaderboard SET visibility = 'closed'")
    assert gate.ask("GET", "/leaderboards").json == [{**first.json[0], "visibility": "closed", "task": {}}]
    gate.sql(
        "INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, description)"
        " VALUES ('new', now() + interval '1 day', %s, -1, 'ö')",
        json.dumps({"lang": "py", "note": "ä"}),
    )
    closed, new = gate.ask("GET", "/leaderboards").json
    assert (closed["task"], new["task"], new["description"]) == ({}, {"lang": "py", "note": "ä"}, "ö")
    assert list(new) == list(first.json[0])
