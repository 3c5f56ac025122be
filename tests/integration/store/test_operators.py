"""Draining from afar, and what an operator's role may do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from runner.base.errors import MissingRightError, NotFoundError, SubmissionError
from runner.base.model import JobState, Verdict
from runner.extras.boards.again import Selection
from runner.extras.boards.store import BoardStore
from tests.integration.store.conftest import Bench, Db, notes, rows, value
from tests.integration.store.test_again import evaluate, ranked_submission


def test_a_host_is_drained_and_undrained_with_a_reason(bench: Bench, db: Db) -> None:
    """Its row says so, the daemon is called, the history keeps who was drained why; doing it twice changes nothing."""
    bench.register("node1")
    db.execute("LISTEN runner_hosts")
    assert bench.store.drain("node1", reason=" new fan ")
    assert not bench.store.drain("node1", reason="new fan")
    assert [(host.draining, host.drain_reason) for host in bench.store.hosts()] == [(True, "new fan")]
    assert bench.store.undrain("node1")
    assert not bench.store.undrain("node1")
    assert [(host.draining, host.drain_reason) for host in bench.store.hosts()] == [(False, None)]
    assert [note.payload for note in notes(db)] == ["node1"] * 4
    assert rows(db, "SELECT kind, host, detail FROM runner.event ORDER BY id") == [
        ("drained", "node1", {"reason": "new fan"}),
        ("undrained", "node1", {}),
    ]


NO_SELECTION = [
    (Selection(), "no filter given"),
    (Selection(leaderboard="nowhere"), "leaderboard 'nowhere' does not exist"),
    (Selection(host="nobody"), "host 'nobody' is not known here"),
    (Selection(gpu_types=("H1000",)), "GPU type 'H1000' is not known here"),
    (Selection(since=datetime(2026, 1, 2, tzinfo=UTC), until=datetime(2026, 1, 1, tzinfo=UTC)), "is empty"),
    (Selection(submission_id=4711), "submission 4711 does not exist"),
]


def test_what_cannot_be_meant_is_refused(queue: Bench, db: Db) -> None:
    """By a sentence that repeats what was named; who waits, or was taken out, reads the reason."""
    store, one = queue.store, Selection(submission_id=ranked_submission(queue))
    refusals: list[tuple[Callable[[], object], str]] = [
        (partial(act, selection), says)
        # Looking first says so as well.
        for act in (store.matching, store.rerun, partial(store.invalidate, reason="x"))
        for selection, says in NO_SELECTION
    ]
    refusals += [
        (partial(store.rerun, one, priority=5000), "priority"),
        (partial(store.invalidate, one, reason="  "), "no reason given"),
        (partial(store.drain, "nobody"), "host 'nobody' is not known here"),
        (partial(store.undrain, "nobody"), "host 'nobody' is not known here"),
        (partial(store.pause, "CPU", reason=" "), "no reason given"),
        (partial(store.pause, "H10", reason="x"), "GPU type 'H10' is not known here"),
        (partial(store.resume, "H10"), "GPU type 'H10' is not known here"),
        (partial(store.pause_board, "identity", reason=" "), "no reason given"),
        (partial(store.pause_board, "nowhere", reason="x"), "leaderboard 'nowhere' does not exist"),
        (partial(store.resume_board, "nowhere"), "leaderboard 'nowhere' does not exist"),
        *(
            (partial(store.moment, span), "'2 hours ago'")
            for span in ("soon", "2 parsecs ago", "99999999999999 years ago")
        ),
        (partial(store.moment, ""), "'2 hours ago'"),
    ]
    for act, says in refusals:
        with pytest.raises((NotFoundError, SubmissionError), match=says):
            act()
    for statement, says in (
        ("SELECT runner.invalidate(leaderboard => 'identity')", "no reason given"),
        ("SELECT runner.rerun(verdicts => '{odd}')", "'odd' is no verdict"),
    ):
        with pytest.raises(psycopg.Error, match=says):
            db.execute(statement.encode())
    assert len(store.ranking("identity")) == 1


def test_a_span_becomes_a_moment_on_the_databases_clock(bench: Bench, db: Db) -> None:
    """As PostgreSQL reads intervals."""
    moment = bench.store.moment("1 day 30 min ago")
    assert 24 < (value(db, "SELECT now()") - moment).total_seconds() / 3600 < 25


def test_an_operators_role_has_what_it_needs(queue: Bench) -> None:
    """It looks, reruns, invalidates and drains. What it may not is in test_rights.py, as for every role."""
    queue.register("node1")
    submission_id = ranked_submission(queue)
    url = make_conninfo(queue.url, options="-c role=runner_operator")
    with closing(BoardStore(url, application_name="test")) as operator:
        assert operator.rerun(Selection(leaderboard="identity")) == 2
        evaluate(queue)
        evaluate(queue)
        assert operator.invalidate(Selection(submission_id=submission_id), reason="x") == 2
        assert operator.drain("node1")
        assert operator.undrain("node1")
        assert operator.cancel(submission_id) == 0
        assert len(operator.submission(submission_id).jobs) == 4
        assert len(operator.queue(limit=5)) == len(operator.hosts()) == 1
        assert operator.line("identity").gpus == queue.store.board("identity").gpus
        assert (operator.ranking("identity"), operator.final_ranking("identity")) == ([], ([], []))
        assert operator.validations(leaderboard="identity") == []
        with pytest.raises(MissingRightError, match="runner_operator"):
            operator.reap(keep_s=1)


def test_of_a_paused_type_nothing_is_begun(bench: Bench, db: Db) -> None:
    """By any of its names, on every host; what runs goes on, other types are served. Who waits reads the reason."""
    bench.store.sync_gpu_types([("H100", "nvidia", ("H100-SXM",), ""), ("A100", "nvidia", (), "")])
    bench.board("identity", "h100-sxm", "A100")
    names = ("H100", "H100-SXM", "h100-sxm", "A100")
    running = bench.submit(gpu_types=["h100-sxm"])
    job = bench.claim(*names)
    assert bench.store.pause("h100", reason=" new driver ")
    assert not bench.store.pause("H100-SXM", reason="new driver")
    waits, other = bench.submit(gpu_types=["h100-sxm"], priority=9), bench.submit(gpu_types=["A100"])
    assert bench.claim(*names).submission_id == other
    assert bench.idle(*names)
    assert bench.store.submission(waits).status.paused == "new driver"
    assert [bench.store.submission(each).status.paused for each in (running, other)] == [None, None]
    assert bench.accept(job).submission_done
    db.execute("LISTEN runner_queue")
    assert bench.store.resume("H100")
    assert not bench.store.resume("h100-sxm")
    assert [note.payload for note in notes(db)] == [""]
    assert bench.claim(*names).submission_id == waits


def test_failed_attempts_are_listed_with_what_became_of_them(queue: Bench, db: Db) -> None:
    """Failures and silences, the newest first, each with its own reason; the filters restrict them."""
    queue.board("other")
    first = queue.submit(mode="leaderboard")
    queue.free_secret_jobs()
    queue.store.fail(queue.claim(host="node1"), error="the engine hung", report=None, slot="gpu3")
    queue.claim(host="node2", lease_s=-1)
    queue.store.reclaim()
    queue.end_pauses()
    second = queue.submit(leaderboard="other", user_id="u2", priority=1)
    for _ in range(3):
        queue.store.fail(queue.claim(host="node1"), error="no device", report=None, slot="gpu4")
        queue.end_pauses()
    lines = queue.store.failed(limit=9)
    assert [(line.submission_id, line.kind, line.attempt, line.host, line.slot, line.error) for line in lines] == [
        (second, "failed", 3, "node1", "gpu4", "no device"),
        (second, "failed", 2, "node1", "gpu4", "no device"),
        (second, "failed", 1, "node1", "gpu4", "no device"),
        (first, "reclaimed", 1, "node2", None, "host node2 did not renew its lease"),
        (first, "failed", 1, "node1", "gpu3", "the engine hung"),
    ]
    over = (JobState.DONE, Verdict.INTERNAL_ERROR)
    assert [(line.state, line.verdict) for line in lines] == [over, over, over, *[(JobState.QUEUED, None)] * 2]
    assert queue.store.failed(limit=2) == lines[:2]
    assert queue.store.failed(limit=9, host="node2") == lines[3:4]
    assert queue.store.failed(limit=9, leaderboard="other") == lines[:3]
    assert queue.store.failed(limit=9, since=lines[1].at) == lines[:2]


def test_verdict_and_cause_choose_what_is_evaluated_again(queue: Bench) -> None:
    """All internal errors that the engine caused; an attempt that was repeated with success has a cause too."""
    causes = {"the ENGINE hung": 3, "no device": 3, "the engine was slow": 1}
    ids = {}
    for cause, failures in causes.items():
        ids[cause] = queue.submit()
        for _ in range(failures):
            queue.store.fail(queue.claim_of(ids[cause]), error=cause, report=None, slot="gpu3")
            queue.end_pauses()
    queue.accept(queue.claim_of(ids["the engine was slow"]))

    def chosen(**selection: Any) -> int:  # noqa: ANN401 - whatever a selection has
        return sum(line.jobs for line in queue.store.matching(Selection(**selection)))

    assert chosen(verdicts=(Verdict.INTERNAL_ERROR,)) == 2
    assert chosen(verdicts=(Verdict.INTERNAL_ERROR, Verdict.ACCEPTED)) == 3
    assert chosen(verdicts=(Verdict.WRONG_ANSWER,)) == 0
    assert chosen(cause="engine") == 2
    selection = Selection(verdicts=(Verdict.INTERNAL_ERROR,), cause="engine", leaderboard="identity")
    assert queue.store.invalidate(selection, reason="x") == 1
    assert queue.store.rerun(selection) == 1
    assert queue.claim().submission_id == ids["the ENGINE hung"]


def test_what_is_to_be_evaluated_again_can_be_looked_at_by_any_one_filter(queue: Bench, db: Db) -> None:
    """`matching` chooses by the arguments of `rerun` and `invalidate`, of which none is required."""
    submission_id = ranked_submission(queue)
    filters: dict[str, object] = {
        "submission_id": submission_id,
        "leaderboard": "identity",
        "host": "host-a",
        "since": "-infinity",
        "until": "infinity",
        "gpu_types": ["CPU"],
        "verdicts": ["accepted"],
    }
    for name, chosen in filters.items():
        query = f"SELECT submission_id FROM runner.matching({name} => %s)"  # noqa: S608 - a name of ours
        assert value(db, query, chosen) == submission_id
    assert value(db, "SELECT count(*) FROM runner.matching(cause => 'no such cause')") == 0
