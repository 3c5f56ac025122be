"""Evaluating again and taking out: which jobs that concerns, what counts meanwhile, and how a submission comes back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runner.base.errors import SubmissionError
from runner.base.model import Job, JobState, Verdict
from runner.extras.boards.again import Selection
from tests.integration.store.conftest import (
    Bench,
    Db,
    count,
    enqueue,
    notes,
    ranked,
    result,
    rows,
    run_record,
    together,
    value,
)
from tests.integration.store.test_queue import words


def evaluate(bench: Bench, *gpus: str, host: str = "host-a", score_s: float = 2.5e-6) -> Job:
    """Claim the next job and complete it."""
    job = bench.claim(*gpus, host=host)
    if job.mode == "leaderboard":
        bench.store.complete(job, ranked(job, score_s))
    else:
        bench.accept(job)
    return job


def ranked_submission(bench: Bench, *, host: str = "host-a", score_s: float = 2.5e-6, **changes: object) -> int:
    """A submission that stands in the ranking."""
    submission_id = bench.submit(**{"mode": "leaderboard", **changes})
    evaluate(bench, host=host, score_s=score_s)
    evaluate(bench, host=host, score_s=score_s)
    return submission_id


def scores(bench: Bench) -> list[tuple[str, float]]:
    """Users and scores of a ranking."""
    return [(line.user_id, line.score_s) for line in bench.store.ranking("identity")]


def rows_of(db: Db, job: Job) -> list[dict[str, Any]]:
    """The rows of results that a job wrote and that count."""
    return db.execute(
        "SELECT r.* FROM leaderboard.runs r JOIN runner.job_run x ON x.run_id = r.id WHERE x.job_id = %s ORDER BY r.id",
        (job.id,),
    ).fetchall()


def test_the_old_results_count_until_the_new_ones_are_there(queue: Bench, db: Db) -> None:
    """Each job replaces its own; the rows leave KernelBot's table whole, with the reason, and could be put back."""
    submission_id = queue.submit(mode="leaderboard")
    public = evaluate(queue, host="bad", score_s=1e-6)
    secret = evaluate(queue, host="bad", score_s=1e-6)
    written = rows_of(db, public)
    assert queue.store.rerun(Selection(submission_id=submission_id), reason="mended task") == 2
    assert words(db, submission_id) == (False, "active", "pending", None)
    assert scores(queue) == [("u1", 1e-6)]
    assert (count(db, "leaderboard", "runs"), count(db, "runner", "superseded_run")) == (6, 0)

    again = evaluate(queue, host="good", score_s=3e-6)
    reason = f"replaced by job {again.id}: mended task"
    assert not again.secret
    assert scores(queue) == [("u1", 3e-6)]
    assert (rows_of(db, public), len(rows_of(db, secret)), len(rows_of(db, again))) == ([], 3, 3)
    kept = db.execute(
        "SELECT (jsonb_populate_record(NULL::leaderboard.runs, run)).* FROM runner.superseded_run ORDER BY run_id"
    ).fetchall()
    assert kept == written
    about = rows(db, "SELECT DISTINCT submission_id, job_id, reason FROM runner.superseded_run")
    assert about == [(submission_id, public.id, reason)]

    evaluate(queue, host="good", score_s=9e-6)
    assert words(db, submission_id) == (True, "active", "succeeded", None)
    assert scores(queue) == [("u1", 3e-6)]
    old, _, new, _ = queue.store.submission(submission_id).jobs
    assert (old.retired_as, old.retired_reason, old.verdict) == ("replaced", reason, Verdict.ACCEPTED)
    assert (new.replaces, new.retired_as, new.host) == (old.id, None, "good")
    events = rows(db, "SELECT kind, job_id, detail FROM runner.event ORDER BY id")
    assert [event[:2] for event in events] == [
        ("rerun", 3),
        ("rerun", 4),
        ("superseded", old.id),
        ("superseded", secret.id),
    ]
    assert events[0][2] == {"replaces": old.id, "reason": "mended task"}


FILTERS: list[tuple[Selection, set[str]]] = [
    (Selection(leaderboard="one"), {"one-a", "one-b"}),
    (Selection(host="host-b"), {"one-b", "two-b"}),
    (Selection(leaderboard="two", host="host-b"), {"two-b"}),
    (Selection(leaderboard="one", gpu_types=("H100",)), set()),
    (Selection(gpu_types=("b200",)), {"three"}),
    (Selection(gpu_types=("Blackwell", "CPU"), host="host-a"), {"one-a", "three"}),
]


def _name(value: Selection | set[str]) -> str:
    return " ".join(sorted(value)) or "none" if isinstance(value, set) else str(value)[:60]


@pytest.mark.parametrize(("selection", "expected"), FILTERS, ids=_name)
def test_a_rerun_chooses_by_board_host_and_type(bench: Bench, db: Db, selection: Selection, expected: set[str]) -> None:
    """Every filter given must hold; types may be named by an alias of a registry, in any case."""
    bench.store.sync_gpu_types([("B200", "nvidia", ["B200_Nebius", "Blackwell"], ""), ("H100", "nvidia", [], "")])
    bench.board("one", "CPU", "H100")
    bench.board("two", "CPU")
    bench.board("three", "B200_Nebius")
    for name, host in (("one-a", "host-a"), ("one-b", "host-b"), ("two-b", "host-b")):
        bench.submit(leaderboard=name[:3], gpu_types=["CPU"], file_name=f"{name}.py")
        evaluate(bench, host=host)
    bench.submit(leaderboard="three", file_name="three.py")
    evaluate(bench, "B200_Nebius")
    assert sum(line.jobs for line in bench.store.matching(selection)) == len(expected)
    assert bench.store.rerun(selection) == len(expected)
    queued = rows(db, "SELECT file_name FROM runner.status WHERE state = 'queued'")
    assert {name.removesuffix(".py") for (name,) in queued} == expected


def test_a_rerun_chooses_by_the_time_the_evaluation_ended(queue: Bench, db: Db) -> None:
    """From `since` on, before `until`; of public and secret job one in the span is enough, and both run again."""
    submission_id = ranked_submission(queue)
    db.execute("UPDATE runner.job SET finished_at = '2026-01-01 12:00Z' WHERE NOT secret")
    db.execute("UPDATE runner.job SET finished_at = '2026-01-01 13:00Z' WHERE secret")
    noon, hour = datetime(2026, 1, 1, 12, tzinfo=UTC), timedelta(hours=1)

    def jobs(since: datetime | None, until: datetime | None) -> int:
        return sum(line.jobs for line in queue.store.matching(Selection(since=since, until=until)))

    assert jobs(noon, None) == jobs(None, noon + hour) == jobs(noon + hour, None) == jobs(noon, noon + hour) == 2
    assert jobs(noon + hour + timedelta(seconds=1), None) == jobs(None, noon) == 0
    assert queue.store.rerun(Selection(since=noon + hour, until=noon + 2 * hour)) == 2
    assert len(queue.store.submission(submission_id).jobs) == 4


def test_what_a_user_took_back_is_evaluated_again_by_its_number_only(queue: Bench, db: Db) -> None:
    """A filter passes over cancelled submissions; cancelled before anything ran, the rerun's result is the first."""
    submission_id = queue.submit(mode="leaderboard")
    queue.store.cancel(submission_id)
    assert queue.store.rerun(Selection(leaderboard="identity")) == 0
    assert [line.obstacle for line in queue.store.matching(Selection(leaderboard="identity"))] == ["cancelled"]
    assert queue.store.rerun(Selection(submission_id=submission_id)) == 2
    evaluate(queue)
    evaluate(queue)
    assert words(db, submission_id) == (True, "active", "succeeded", None)
    assert queue.store.submission(submission_id).status.state is JobState.DONE


def test_a_type_that_the_board_no_longer_offers_is_not_evaluated_again(bench: Bench, db: Db) -> None:
    """Such a job might wait for ever, and its submission with it; the other types of the submission run."""
    bench.board("identity", "A100", "H100")
    submission_id = bench.submit(gpu_types=["A100", "H100"])
    evaluate(bench, "A100")
    evaluate(bench, "H100")
    db.execute("DELETE FROM leaderboard.gpu_type WHERE gpu_type = 'A100'")
    lines = bench.store.matching(Selection(leaderboard="identity"))
    assert [(line.gpu_type, line.obstacle) for line in lines] == [("A100", "not offered"), ("H100", None)]
    assert bench.store.rerun(Selection(leaderboard="identity")) == 1
    evaluate(bench, "H100")
    with pytest.raises(SubmissionError, match="no longer offers"):
        bench.store.rerun(Selection(submission_id=submission_id, gpu_types=("A100",)))
    assert words(db, submission_id)[2] == "succeeded"


@pytest.mark.parametrize("marked", ["submission", "submission_job_status"])
def test_what_another_marked_hacked_stays_hacked(queue: Bench, db: Db, marked: str) -> None:
    """KernelBot's guard and administrators mark submissions; what they marked is not evaluated again."""
    submission_id = ranked_submission(queue)
    db.execute(f"UPDATE leaderboard.{marked} SET status = 'hacked'".encode())  # noqa: S608 - tables above
    assert queue.store.rerun(Selection(leaderboard="identity")) == 0
    with pytest.raises(SubmissionError, match="it is marked hacked"):
        queue.store.rerun(Selection(submission_id=submission_id))
    assert scores(queue) == []
    assert queue.store.submission(submission_id).status.score_s is None


def test_the_mark_of_another_outlives_a_rerun_that_was_on_its_way(queue: Bench, db: Db) -> None:
    """Marked while the rerun ran, it stays marked whatever is found; only our own mark goes with our verdict."""
    submission_id = ranked_submission(queue)
    queue.store.rerun(Selection(submission_id=submission_id))
    db.execute("UPDATE leaderboard.submission SET status = 'hacked'")
    evaluate(queue)
    evaluate(queue)
    assert words(db, submission_id)[:2] == (True, "hacked")
    assert scores(queue) == []
    cheat = queue.submit(user_id="cheat")
    queue.store.complete(queue.claim(), result(Verdict.REJECTED, run_record(passed=False)))
    assert words(db, cheat)[:3] == (True, "hacked", "hacked")
    queue.store.rerun(Selection(submission_id=cheat))
    evaluate(queue)
    assert words(db, cheat)[:3] == (True, "active", "succeeded"), "our own mark goes with our verdict"


def test_a_finished_submission_stays_closed_to_its_author_while_it_is_evaluated_again(bench: Bench) -> None:
    """KernelBot's rule is that nothing is added to a finished submission; an operator's rerun opens no door."""
    bench.board("identity", "A100", "H100")
    submission_id = bench.submit(gpu_types=["A100"])
    evaluate(bench, "A100")
    bench.store.rerun(Selection(submission_id=submission_id))
    with pytest.raises(SubmissionError, match="is finished"):
        enqueue(bench.store, submission_id, mode="test", gpu_types=["H100"])


def test_reruns_let_new_submissions_pass_and_take_turns_among_users(queue: Bench) -> None:
    """By default they are a class of lower priority, in which every user's first goes before anybody's second."""
    for user in ("ann", "ann", "ann", "bob"):
        queue.submit(user_id=user, file_name=f"{user}.py")
    for _ in range(4):
        evaluate(queue)
    assert queue.store.rerun(Selection(leaderboard="identity")) == 4
    new = queue.submit(user_id="eve")
    assert queue.claim().submission_id == new
    assert [queue.claim().user_id for _ in range(4)] == ["ann", "bob", "ann", "ann"]
    queue.submit(user_id="ann")
    assert queue.claim().user_id == "ann", "the turns of reruns are not taken from the user's own submissions"


def test_a_rerun_of_thousands_is_one_call_with_one_wake_up(bench: Bench, db: Db) -> None:
    """Two thousand evaluations on two types become twice as many jobs; daemons are woken once, with both types."""
    bench.board("identity", "A100", "H100")
    first = bench.submit(mode="leaderboard", gpu_types=["A100", "H100"])
    bench.store.cancel(first)
    # Numbers so long that a thousand of them fit into no notification.
    db.execute("SELECT setval('leaderboard.submission_id_seq', 10000000)")
    db.execute(
        "INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done)"
        " SELECT leaderboard_id, file_name, user_id, code_id, now(), true FROM leaderboard.submission,"
        " generate_series(1, 1000)"
    )
    db.execute(
        "INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, state, verdict, attempt, finished_at,"
        " host) SELECT s.id, s.user_id, g, 'leaderboard', x, 'done', 'accepted', 1, now(), 'bad'"
        " FROM leaderboard.submission s, unnest(ARRAY['A100', 'H100']) g, unnest(ARRAY[false, true]) x WHERE s.id > %s",
        (first,),
    )
    db.execute("ANALYZE")
    db.execute("LISTEN runner_queue")
    assert bench.store.rerun(Selection(host="bad"), reason="a broken fan") == 4000
    woken = notes(db)
    assert [sorted(note.payload.split(",")) for note in woken] == [["A100", "H100"]]
    jobs = "FROM runner.job WHERE state = 'queued' AND gpu_type = 'H100'"
    turns = rows(db, f"SELECT count(DISTINCT turn), max(turn) - min(turn) AS span {jobs}")
    assert turns == [(1000, 1998)], "one user's evaluations have one turn each"
    assert count(db, "runner", "event") == 4000
    db.execute("UNLISTEN runner_queue; LISTEN runner_events")
    assert bench.store.invalidate(Selection(host="bad"), reason="a broken fan") == 4000
    assert [json.loads(note.payload) for note in notes(db)] == [{"event": "invalidated", "submissions": None}], (
        "too many to name in one notification"
    )


def test_reruns_that_are_asked_for_at_once_make_the_jobs_once(queue: Bench, db: Db) -> None:
    """Six callers, one board of twelve submissions: twenty-four jobs in all."""
    for number in range(12):
        ranked_submission(queue, user_id=f"u{number}")
    counts = together(6, queue, lambda store, _: store.rerun(Selection(leaderboard="identity")))
    assert max(counts, key=str) == 24, counts
    assert sum(number for number in counts if isinstance(number, int)) == 24
    assert value(db, "SELECT count(*) FROM runner.job WHERE state = 'queued'") == 24


OUT = "taken out of the ranking: the fan was broken"
BROKEN_FAN = "the fan was broken"


def test_what_is_taken_out_is_gone_for_every_reader_and_says_why(queue: Bench, db: Db) -> None:
    """Ranking, score, KernelBot's rows and its final status; the verdict counts no more, the evidence is kept."""
    mine, other = ranked_submission(queue, host="bad"), ranked_submission(queue, user_id="u2", score_s=9e-6)
    db.execute("LISTEN runner_events")
    assert queue.store.invalidate(Selection(host="bad"), reason=f" {BROKEN_FAN} ") == 2
    assert words(db, mine) == (True, "active", "failed", OUT)
    assert scores(queue) == [("u2", 9e-6)]
    view = queue.store.submission(mine)
    status = view.status
    assert (status.state, status.verdict, status.score_s, status.error) == (JobState.DONE, None, None, OUT)
    assert [(job.verdict, job.retired_as, job.retired_reason, job.runs) for job in view.jobs] == [
        (Verdict.ACCEPTED, "invalidated", OUT, ())
    ] * 2
    assert rows(db, "SELECT DISTINCT submission_id FROM leaderboard.runs") == [(other,)]
    assert count(db, "runner", "superseded_run") == 6
    events = rows(db, "SELECT kind, host, detail FROM runner.event WHERE submission_id = %s", mine)
    assert events == [("invalidated", "bad", {"verdict": "accepted", "reason": BROKEN_FAN})] * 2
    assert [json.loads(note.payload) for note in notes(db)] == [{"event": "invalidated", "submissions": [mine]}]
    assert queue.store.invalidate(Selection(host="bad"), reason="once more") == 0
    assert words(db, mine)[3] == OUT


def test_public_and_secret_job_go_together(queue: Bench, db: Db) -> None:
    """A public row goes if its secret job is not to be trusted: KernelBot's website looks at public rows only."""
    submission_id = queue.submit(mode="leaderboard")
    evaluate(queue, host="good")
    evaluate(queue, host="bad")
    assert queue.store.invalidate(Selection(host="bad"), reason=BROKEN_FAN) == 2
    assert count(db, "leaderboard", "runs") == 0
    assert words(db, submission_id)[2] == "failed"


def test_only_the_type_that_is_named_is_taken_out(bench: Bench, db: Db) -> None:
    """A submission to two types keeps its score on the other; the verdict that is left is no word about all of it."""
    bench.board("identity", "A100", "H100")
    submission_id = bench.submit(mode="leaderboard", gpu_types=["A100", "H100"])
    for gpu in ("A100", "A100", "H100", "H100"):
        evaluate(bench, gpu)
    assert bench.store.invalidate(Selection(leaderboard="identity", gpu_types=("h100",)), reason=BROKEN_FAN) == 2
    assert [(line.gpu_type, line.user_id) for line in bench.store.ranking("identity")] == [("A100", "u1")]
    assert words(db, submission_id)[2:] == ("failed", OUT)
    assert bench.store.submission(submission_id).status.verdict is None


def test_a_cheat_that_is_taken_out_is_no_longer_marked(bench: Bench, db: Db) -> None:
    """The mark stood on the verdict. A verdict that counts on another type keeps it."""
    bench.board("identity", "A100", "H100")
    submission_id = bench.submit(gpu_types=["A100", "H100"])
    for gpu in ("A100", "H100"):
        bench.store.complete(bench.claim(gpu), result(Verdict.REJECTED, run_record(passed=False)))
    assert words(db, submission_id)[1:3] == ("hacked", "hacked")
    bench.store.invalidate(Selection(leaderboard="identity", gpu_types=("A100",)), reason=BROKEN_FAN)
    assert words(db, submission_id)[1:3] == ("hacked", "hacked")
    bench.store.invalidate(Selection(leaderboard="identity", gpu_types=("H100",)), reason=BROKEN_FAN)
    assert words(db, submission_id) == (True, "active", "failed", OUT)
