"""A full queue of notifications: submitting goes on, and the queue empties once its cause is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from runner.base.model import Verdict
from runner.extras.boards.store import BoardStore
from runner.store import migrate
from tests.integration.store.conftest import Bench, result, run_record
from tests.plugins.postgres import embedded_server
from tests.support.waiting import PATIENCE_S, wait_until

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def small_url() -> Iterator[str]:
    """A migrated database on a server whose queue of notifications has 512 KiB, the least that there is."""
    with embedded_server({"max_notify_queue_pages": "64"}) as url:
        migrate(url)
        yield url


def fill(other: psycopg.Connection[tuple[object, ...]]) -> None:
    """Send more notifications than the queue holds."""
    for _ in range(200):
        other.execute("SELECT pg_notify('other', repeat('x', 7900))")


@pytest.fixture
def full(small_url: str) -> Iterator[Bench]:
    """A queue that is full, because a session listens and leaves its transaction open."""
    bench = Bench(store=BoardStore(small_url, application_name="test"), url=small_url)
    with (
        closing(psycopg.connect(small_url)) as forgotten,
        closing(psycopg.connect(small_url, autocommit=True)) as other,
    ):
        forgotten.execute("LISTEN other")
        forgotten.commit()
        forgotten.execute("SELECT 1")
        with pytest.raises(psycopg.Error, match="too many notifications"):
            fill(other)
        yield bench
    bench.store.close()


def test_intake_and_operators_go_on(full: Bench) -> None:
    """Submissions, cancellations and invalidations are stored, and daemons' announcements fail nothing."""
    full.board()
    first, second = full.submit(), full.submit(user_id="u2")
    assert full.store.cancel(second) == 1
    full.store.complete(full.claim_of(first), result(Verdict.ACCEPTED, run_record()))
    full.store.announce(events=[{"event": "done"}], wake=["CPU"])
    with psycopg.connect(full.url, autocommit=True) as db:
        (changed,) = db.execute(
            "SELECT runner.invalidate(submission_id => %s, reason => 'x')", (first,)
        ).fetchone() or (None,)
    assert changed == 1


def test_the_reaper_empties_what_all_have_read(full: Bench) -> None:
    """For other programs on the server too: a listener that comes later frees nothing, and each of theirs fails."""
    with psycopg.connect(full.url, autocommit=True) as db:
        waiting = "FROM pg_stat_activity WHERE state = 'idle in transaction'"
        db.execute(f"SELECT pg_terminate_backend(pid) {waiting}".encode())
        # It is only told to end. While it is there, the queue waits for it.
        wait_until(lambda: db.execute(f"SELECT {waiting}".encode()).fetchone() is None, "the session has ended")
        db.execute("LISTEN runner_queue")
        with pytest.raises(psycopg.Error, match="too many notifications"):
            fill(db)
        full.store.reap(keep_s=DAY_S)
        db.execute("NOTIFY other")
        full.store.announce(wake=["CPU"])
        assert [note.payload for note in db.notifies(timeout=PATIENCE_S, stop_after=1)] == ["CPU"]
