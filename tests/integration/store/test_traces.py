"""Traces from the database to a collector: real HTTP, real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from runner.base.model import Verdict
from runner.extras.tracing import exporter
from runner.extras.tracing.exporter import Exporter, follow
from tests.integration.store.conftest import Bench, result, run_record
from tests.support.collector import Collector, collector
from tests.support.waiting import PATIENCE_S

Db = psycopg.Connection[dict[str, Any]]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def collected() -> Iterator[Collector]:
    """A collector."""
    with collector() as made:
        yield made


@pytest.fixture
def sender(bench: Bench, collected: Collector) -> Iterator[Exporter]:
    """An exporter that begins now."""
    bench.board()
    bench.register("host-a")
    made = Exporter(collected.url, since=bench.store.moment("0 seconds"))
    yield made
    made.close()


def evaluate(bench: Bench, submission_id: int) -> None:
    """Give its one job a verdict."""
    job = bench.claim_of(submission_id)
    bench.store.complete(job, result(Verdict.ACCEPTED, run_record()))


def trace(db: Db, submission_id: int, traceparent: str | None) -> int:
    """Note a context."""
    found = db.execute("SELECT runner.trace(%s, %s) AS id", (submission_id, traceparent)).fetchone()
    assert found is not None
    return int(found["id"])


def test_each_job_that_ends_is_sent_once(bench: Bench, db: Db, sender: Exporter, collected: Collector) -> None:
    """Below the frontend's span; a job that waits is not sent, and no job again."""
    ours, plain = bench.submit(), bench.submit()
    assert trace(db, ours, CONTEXT) == ours
    assert sender.export(bench.store) == 0
    evaluate(bench, ours)
    assert sender.export(bench.store) == 1
    assert collected.names()[:4] == ["submit", "job", "queue", "attempt"]
    assert {span.trace_id.hex() for span in collected.spans} == {TRACE}
    assert collected.spans[0].parent_span_id.hex() == PARENT
    evaluate(bench, plain)
    assert sender.export(bench.store) == 1
    assert sender.export(bench.store) == 0
    assert len({span.trace_id for span in collected.spans}) == 2
    assert collected.names().count("job") == 2


def test_what_a_collector_refuses_is_sent_again(
    bench: Bench, sender: Exporter, collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost while it is away."""
    evaluate(bench, bench.submit())
    collected.status = 400
    assert sender.export(bench.store) is None
    assert collected.spans == []
    collected.status = 200
    stop = threading.Event()
    counts: list[int] = []

    def told(count: int) -> None:
        counts.append(count)
        stop.set()

    thread = threading.Thread(
        target=follow, args=(sender, bench.store), kwargs={"every_s": 0.01, "stop": stop, "told": told}
    )
    thread.start()
    thread.join(PATIENCE_S)
    assert counts == [1]
    assert collected.names().count("job") == 1


def test_a_commit_that_comes_late_is_sent(
    bench: Bench, db: Db, sender: Exporter, collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began before one that was sent; and pages end within jobs that ended at once."""
    monkeypatch.setattr(exporter, "PAGE", 2)
    for _ in range(5):
        evaluate(bench, bench.submit())
    assert sender.export(bench.store) == 5
    late = bench.submit()
    evaluate(bench, late)
    db.execute(
        "UPDATE runner.job SET finished_at = (SELECT min(finished_at) FROM runner.job) WHERE submission_id = %s",
        (late,),
    )
    assert sender.export(bench.store) == 1
    assert collected.names().count("job") == 6


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "",
        "abc",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"01-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"{CONTEXT}\n",
    ],
)
def test_what_is_no_context_is_refused(bench: Bench, db: Db, bad: str | None) -> None:
    """With KR032."""
    bench.board()
    with pytest.raises(psycopg.Error) as caught:
        trace(db, bench.submit(), bad)
    assert caught.value.sqlstate == "KR032"


def test_the_first_context_counts(bench: Bench, db: Db) -> None:
    """A submission that was sent again keeps it; one that does not exist has none."""
    bench.board()
    submission_id = bench.submit()
    trace(db, submission_id, CONTEXT)
    trace(db, submission_id, f"00-{TRACE}-{'1' * 16}-01")
    assert [row["traceparent"] for row in db.execute("SELECT traceparent FROM runner.trace")] == [CONTEXT]
    with pytest.raises(psycopg.Error) as caught:
        trace(db, submission_id + 1, CONTEXT)
    assert caught.value.sqlstate == "KR015"
    db.execute("DELETE FROM leaderboard.submission WHERE id = %s", (submission_id,))
    assert db.execute("SELECT FROM runner.trace").fetchall() == []
