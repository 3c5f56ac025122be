"""Live pages: what watchers are sent, to whom, and that many of them cost the database no more than one."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Sequence

import pytest

from runner.extras.gateway.live import Live, Topic
from runner.extras.gateway.queries import QUERIES
from runner.extras.store import AsyncStore
from runner.store.connection import Row
from tests.integration.extras.gateway.conftest import Gate, gateway_login
from tests.integration.extras.gateway.test_pages import Browser, checked
from tests.integration.store.conftest import Bench, ranked
from tests.support.waiting import PATIENCE_S


class Watching:
    """A connection that follows live events."""

    def __init__(self, gate: Gate, path: str, cookie: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", gate.port), timeout=PATIENCE_S)
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n".encode()
        )
        self._file = self._socket.makefile("rb")

    def until(self, text: str) -> str:
        """The first state that has a text."""
        for line in self._file:
            if line.startswith(b"data: "):
                html = str(json.loads(line[6:])["html"])
                if text in html:
                    return html
        raise AssertionError(f"the stream ended without {text!r}")

    def close(self) -> None:
        """Go away."""
        self._file.close()
        self._socket.close()


def record(gate: Gate, score_s: float, user: str = "ada") -> None:
    """A ranked submission from its claim to its end, each job announced."""
    gate.submit("/submission/identity/CPU/leaderboard", f"# {score_s}".encode(), cli=f"{user}-token")
    for _ in range(2):
        job = gate.bench.claim()
        gate.bench.store.complete(job, ranked(job, score_s))
        gate.bench.store.announce(events=[{"event": "done", "submission_id": job.submission_id}])


def test_watchers_share_what_a_change_costs(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets the present state first and every record then; ten of them make no more statements than one."""
    sent: list[str] = []
    send = AsyncStore.all

    async def noted(store: AsyncStore, name: str, /, **values: object) -> Sequence[Row]:
        sent.append(name)
        return await send(store, name, **values)

    record(gate, 2e-5)
    watching = [Watching(gate, "/board/identity/live/events?gpu=CPU") for _ in range(10)]
    watching += [Watching(gate, "/live/events") for _ in range(3)]
    for one in watching:
        one.until("20.0 µs")
    monkeypatch.setattr(AsyncStore, "all", noted)
    record(gate, 1e-5, "bob")
    states = [one.until("10.0 µs") for one in watching]
    monkeypatch.undo()
    assert len(set(states)) == 2
    assert re.findall(r'data-key="record (\d)"', states[0]) == ["2", "1"]
    # A look more, and one state for each of the two jobs, may fall into this time.
    assert sent.count("places") <= 4
    again = Watching(gate, "/board/identity/live/events?gpu=CPU")
    assert again.until("10.0 µs") == states[0]
    for one in (*watching, again):
        one.close()


def test_a_live_board_shows_public_jobs_alone(gate: Gate, bench: Bench) -> None:
    """What waits and runs is told; of a secret run neither that it waits nor that it runs."""
    watching = Watching(gate, "/board/identity/live/events")
    watching.until("Nothing waits")
    gate.submit("/submission/identity/CPU/leaderboard")
    watching.until("<strong>1</strong> waits")
    public = bench.claim()
    bench.store.announce(events=[{"event": "claimed", "submission_id": 1}])
    watching.until("Runs: <bdi>Ada</bdi></li>")
    bench.store.complete(public, ranked(public, 1e-5))
    secret = bench.claim()
    bench.store.announce(events=[{"event": "claimed", "submission_id": 1}])
    text = watching.until("Nothing runs")
    assert "Nothing waits" in text
    assert "No score ranks here yet" in text
    bench.store.complete(secret, ranked(secret, 1e-5))
    bench.store.announce(events=[{"event": "done", "submission_id": 1}])
    assert "Ada" in watching.until("10.0 µs")
    watching.close()


def test_live_pages_of_closed_boards_are_for_the_invited(gate: Gate) -> None:
    """The page, its events, and a wall that names the board; a stream ends when its board is closed."""
    record(gate, 1e-5)
    watching = Watching(gate, "/board/identity/live/events")
    watching.until("10.0 µs")
    gate.sql("UPDATE leaderboard.leaderboard SET visibility = 'closed'")
    gate.sql("NOTIFY runner_events, '{\"submissions\": [1]}'")
    with pytest.raises(AssertionError, match="the stream ended"):
        watching.until("never")
    watching.close()
    stranger, ada = Browser(gate), Browser(gate)
    ada.login("ada-token")
    for path, status in (("/board/identity/live", 303), ("/board/identity/live/events", 401)):
        assert stranger.get(path).status == status
        assert ada.get(path).status == 403
    assert "identity" not in checked(stranger.get("/live"))
    assert ada.get("/live/events?board=identity").status == 403
    gate.sql(
        "INSERT INTO leaderboard.leaderboard_invite (code, user_id) VALUES ('x', 'ada');"
        "INSERT INTO leaderboard.leaderboard_invite_scope (invite_id, leaderboard_id) VALUES (1, 1)"
    )
    assert "10.0 µs" in checked(ada.get("/board/identity/live"))
    assert "10.0 µs" in checked(ada.get("/live?board=identity"))
    watching = Watching(gate, "/board/identity/live/events", ada.cookie)
    watching.until("10.0 µs")
    watching.close()


def test_a_slow_watcher_gets_one_state_with_every_record(gate: Gate, database_url: str) -> None:
    """Nothing is kept for it: the newest state stands for all that it did not take."""
    topic = Topic(board_id=1, gpu="CPU")

    async def follow() -> tuple[int, list[int]]:
        store = AsyncStore(gateway_login(database_url), queries=QUERIES, connections=2, name="test")
        await store.open()
        live = Live(store)
        live.start()
        try:
            async with live.watch([topic]) as ((view,), changed):
                before = view.version
                for number in range(5):
                    await asyncio.to_thread(record, gate, 1e-5 / (number + 1))
                    live.heard([number + 1])
                while view.state is None or len(view.state.records) < 5:
                    await changed.wait()
                    changed.clear()
                return view.version - before, [score.submission_id for score in view.state.records]
        finally:
            await live.stop()
            await store.close()

    states, records = asyncio.run(follow())
    assert states >= 1
    assert records == [5, 4, 3, 2, 1]
