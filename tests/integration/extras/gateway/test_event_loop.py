"""All requests and streams share an event loop: what is made of megabytes is made beside it, and nothing twice."""

from __future__ import annotations

import json
import threading

import pytest

from runner.extras.gateway import context, html
from runner.model import Verdict
from tests.integration.extras.gateway.conftest import Gate
from tests.integration.store.conftest import result, run_record

_MIB = 2**20


def filled(gate: Gate) -> int:
    """A leaderboard with a large task, and a submission with large results: its id."""
    gate.sql(
        "UPDATE leaderboard.leaderboard SET task = jsonb_set(task, '{files,big.py}', to_jsonb(repeat('é', %s)))", _MIB
    )
    number = int(gate.submit().json["details"]["id"])
    cases = {f"test.{index}.spec": "ü" * 10_000 for index in range(100)}
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
