"""Live pages: what watchers are sent, to whom, and that many of them cost the database no more than one."""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack

from runner.extras.gateway.live import Live, Topic
from runner.extras.gateway.queries import QUERIES
from runner.extras.store import AsyncStore
from tests.integration.extras.gateway.conftest import Gate, gateway_login, invite, watching
from tests.integration.extras.gateway.test_pages import Browser, checked
from tests.integration.store.conftest import Bench, ranked


def record(gate: Gate, score_s: float, user: str = "ada") -> None:
    """A ranked submission from its claim to its end, each job announced."""
    gate.submit("/submission/identity/CPU/leaderboard", f"# {score_s}".encode(), cli=f"{user}-token")
    for _ in range(2):
        job = gate.bench.claim()
        gate.bench.store.complete(job, ranked(job, score_s))
        gate.bench.store.announce(events=[{"event": "done", "submission_id": job.submission_id}])


def test_watchers_share_what_a_change_costs(gate: Gate, statements: list[str]) -> None:
    """Each gets the present state first and every record then; ten of them make no more statements than one."""
    record(gate, 2e-5)
    paths = ["/board/identity/live/events?gpu=CPU"] * 10 + ["/live/events"] * 3
    with ExitStack() as all_leave:
        watchers = [all_leave.enter_context(watching(gate, path)) for path in paths]
        for one in watchers:
            one.shows("20.0 µs")
        statements.clear()
        record(gate, 1e-5, "bob")
        states = [one.shows("10.0 µs") for one in watchers]
        assert len(set(states)) == 2
        assert re.findall(r'data-key="record (\d)"', states[0]) == ["2", "1"]
        # A look more, and one state for each of the two jobs, may fall into this time.
        assert statements.count("places") <= 4
        assert all_leave.enter_context(watching(gate, paths[0])).shows("10.0 µs") == states[0]


def test_a_live_board_shows_public_jobs_alone(gate: Gate, bench: Bench) -> None:
    """What waits and runs is told; of a secret run neither that it waits nor that it runs."""
    with watching(gate, "/board/identity/live/events") as watcher:
        watcher.shows("Nothing waits")
        gate.submit("/submission/identity/CPU/leaderboard")
        watcher.shows("<strong>1</strong> waits")
        public = bench.claim()
        bench.store.announce(events=[{"event": "claimed", "submission_id": 1}])
        watcher.shows("Runs: <bdi>Ada</bdi></li>")
        bench.store.complete(public, ranked(public, 1e-5))
        secret = bench.claim()
        bench.store.announce(events=[{"event": "claimed", "submission_id": 1}])
        text = watcher.shows("Nothing runs")
        assert "Nothing waits" in text
        assert "No score ranks here yet" in text
        bench.store.complete(secret, ranked(secret, 1e-5))
        bench.store.announce(events=[{"event": "done", "submission_id": 1}])
        assert "Ada" in watcher.shows("10.0 µs")


def test_live_pages_of_closed_boards_are_for_the_invited(gate: Gate) -> None:
    """The page, its events, and a wall that names the board; a stream ends when its board is closed."""
    record(gate, 1e-5)
    with watching(gate, "/board/identity/live/events") as watcher:
        watcher.shows("10.0 µs")
        gate.sql("UPDATE leaderboard.leaderboard SET visibility = 'closed'")
        gate.sql("NOTIFY runner_events, '{\"submissions\": [1]}'")
        watcher.rest()
    stranger, ada = Browser(gate), Browser(gate, "ada-token")
    for path, status in (("/board/identity/live", 303), ("/board/identity/live/events", 401)):
        assert stranger.get(path).status == status
        assert ada.get(path).status == 403
    assert "identity" not in checked(stranger.get("/live"))
    assert ada.get("/live/events?board=identity").status == 403
    invite(gate.owner_url, "identity", "ada")
    assert "10.0 µs" in checked(ada.get("/board/identity/live"))
    assert "10.0 µs" in checked(ada.get("/live?board=identity"))
    with watching(gate, "/board/identity/live/events", ada.cookie) as watcher:
        watcher.shows("10.0 µs")


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
