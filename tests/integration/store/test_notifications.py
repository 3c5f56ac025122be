"""A full queue of notifications: submitting goes on, and the queue empties once its cause is gone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from runner.extras.boards.again import Selection
from runner.extras.boards.store import BoardStore
from runner.store import migrate
from tests.integration.store.conftest import Bench
from tests.plugins.postgres import embedded_server
from tests.support.waiting import PATIENCE_S, wait_until

DAY_S = 86_400.0
#: Each commit of a submission waits for an advisory lock.
WAITS = """
CREATE FUNCTION public.waits() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON leaderboard.submission DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.waits();
"""


@pytest.fixture(scope="module")
def small_url() -> Iterator[str]:
    """A migrated database on a server whose queue of notifications has 512 KiB, the least that there is."""
    with embedded_server({"max_notify_queue_pages": "64"}) as url:
        migrate(url)
        yield url


def fill(other: psycopg.Connection[tuple[object, ...]]) -> None:
    """Send notifications until the queue takes no more."""
    try:
        while True:
            other.execute("SELECT pg_notify('other', repeat('x', 7900))")
    except psycopg.OperationalError as error:
        assert "too many notifications" in str(error)  # noqa: PT017 - the end of a loop


@pytest.fixture
def forgotten(small_url: str) -> Iterator[Bench]:
    """A session listens and leaves its transaction open, so that the queue is not emptied."""
    bench = Bench(store=BoardStore(small_url, application_name="test"), url=small_url)
    with closing(psycopg.connect(small_url)) as listener:
        listener.execute("LISTEN other")
        listener.commit()
        listener.execute("SELECT 1")
        yield bench
    bench.store.close()


@pytest.fixture
def full(forgotten: Bench) -> Bench:
    """A queue that is full."""
    with psycopg.connect(forgotten.url, autocommit=True) as other:
        fill(other)
    return forgotten


def test_a_queue_that_fills_before_a_commit_fails_nothing(forgotten: Bench) -> None:
    """The submission has looked at the queue, and waits in its commit while others fill it."""
    board_id = forgotten.board("later")
    with psycopg.connect(forgotten.url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        other.execute(WAITS)
        other.execute("SELECT pg_advisory_lock(1)")
        submission = pool.submit(forgotten.submit, leaderboard="later")
        blocked = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: other.execute(blocked).fetchone() is not None, "the submission is being committed")
        fill(other)
        other.execute("SELECT pg_advisory_unlock(1)")
        assert submission.result(timeout=PATIENCE_S) > 0
        rows = other.execute("SELECT id FROM leaderboard.submission WHERE leaderboard_id = %s", (board_id,)).fetchall()
        other.execute("DROP TRIGGER waits ON leaderboard.submission; DROP FUNCTION public.waits")
    assert rows == [(submission.result(),)]
    assert forgotten.store.cancel(submission.result()) == 1


def test_intake_and_operators_go_on(full: Bench) -> None:
    """Submissions, cancellations and invalidations are stored, and daemons' announcements fail nothing."""
    full.board()
    first, second = full.submit(), full.submit(user_id="u2")
    assert full.store.cancel(second) == 1
    full.accept(full.claim_of(first))
    full.store.announce(events=[{"event": "done"}], wake=["CPU"])
    assert full.store.invalidate(Selection(submission_id=first), reason="x") == 1


def test_the_reaper_empties_what_all_have_read(full: Bench) -> None:
    """For other programs on the server too: a listener that comes later frees nothing, and each of theirs fails."""
    with psycopg.connect(full.url, autocommit=True) as db:
        waiting = "FROM pg_stat_activity WHERE state = 'idle in transaction'"
        db.execute(f"SELECT pg_terminate_backend(pid) {waiting}".encode())
        # It is only told to end. While it is there, the queue waits for it.
        wait_until(lambda: db.execute(f"SELECT {waiting}".encode()).fetchone() is None, "the session has ended")
        db.execute("LISTEN runner_queue")
        fill(db)
        full.store.reap(keep_s=DAY_S)
        db.execute("NOTIFY other")
        full.store.announce(wake=["CPU"])
        assert [note.payload for note in db.notifies(timeout=PATIENCE_S, stop_after=1)] == ["CPU"]
