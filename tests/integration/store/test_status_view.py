"""What `runner.status` says of a submission, for frontends that ask only the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from runner.base.model import Progress, Verdict
from runner.extras.boards.again import Selection
from runner.store import POSITION_LIMIT
from tests.integration.store.conftest import Bench, Db, enqueue, one, ranked, result, rows, run_record, value
from tests.integration.store.test_again import evaluate, ranked_submission


def status(db: Db, submission_id: int) -> dict[str, Any]:
    """The line of a submission."""
    return one(db, "SELECT * FROM runner.status WHERE submission_id = %s", submission_id)


def phase(db: Db, submission_id: int) -> str | None:
    """What happens to it now, in words."""
    words: str | None = status(db, submission_id)["phase"]
    return words


#: Mode, phase, done, total.
PHASES: Mapping[tuple[str, str, int, int], str] = {
    ("leaderboard", "build", 0, 1): "building",
    ("leaderboard", "build", 1, 1): "building",
    ("leaderboard", "compile", 0, 0): "building",
    ("leaderboard", "test", 0, 10): "testing case 1 of 10",
    ("leaderboard", "test", 2, 10): "testing case 3 of 10",
    ("leaderboard", "test", 10, 10): "testing case 10 of 10",
    ("leaderboard", "benchmark", 0, 4): "benchmarking case 1 of 4",
    ("leaderboard", "leaderboard", 3, 4): "ranked run case 4 of 4",
    ("leaderboard", "leaderboard", 4, 4): "finishing",
    ("leaderboard", "leaderboard", 0, 0): "ranked run",
    ("test", "test", 10, 10): "finishing",
    ("test", "test", 0, 0): "testing",
    ("benchmark", "benchmark", 1, 2): "benchmarking case 2 of 2",
    ("profile", "profile.0", 0, 1): "profiling case 1",
    ("profile", "profile.2", 1, 1): "profiling case 3",
    ("test", "warm-up", 1, 3): "warm-up case 2 of 3",
}


def test_the_phase_is_told_in_words(queue: Bench, db: Db) -> None:
    """Whatever a daemon posts becomes text that a person can read."""
    for (mode, name, done, total), expected in PHASES.items():
        submission_id = queue.submit(mode=mode)
        assert phase(db, submission_id) == "queued"
        job = queue.claim()
        assert phase(db, submission_id) == "starting"
        queue.store.progress(job, Progress(phase=name, done=done, total=total))
        assert phase(db, submission_id) == expected


ODD = [
    "[]",
    "{}",
    '{"phase": null, "done": "x", "total": {}}',
    '{"phase": "test", "done": 1.5, "total": 3}',
    '{"phase": "test", "done": 1e30, "total": 9999999999}',
    '{"phase": "test", "done": -1e30, "total": 3}',
]


def test_odd_progress_breaks_no_status(queue: Bench, db: Db) -> None:
    """Any version of a daemon may have written it."""
    submission_id = queue.submit()
    queue.claim()
    for odd in ODD:
        db.execute("UPDATE runner.job SET progress = %s", (odd,))
        found = status(db, submission_id)
        assert found["state"] == "running"
        # Without a name of a phase there are no words for it.
        assert (found["phase"] is None) is ('"phase": "test"' not in odd)


def test_a_secret_run_is_only_called_one(queue: Bench, db: Db) -> None:
    """How many hidden cases there are, and how far a submission got with them, stays hidden."""
    submission_id = queue.submit(mode="leaderboard")
    public = queue.claim()
    assert phase(db, submission_id) == "starting"
    queue.store.complete(public, ranked(public))
    secret = queue.claim()
    queue.store.progress(secret, Progress(phase="test", done=3, total=9_876_543))
    line = status(db, submission_id)
    assert (line["phase"], line["progress"]) == ("secret run", None)
    assert "9876543" not in str(line)
    assert [job["phase"] for job in line["jobs"]] == [None, "secret run"]
    queue.store.complete(secret, ranked(secret))
    assert phase(db, submission_id) is None


@pytest.mark.parametrize("mode", ["leaderboard", "private"])
def test_how_long_a_secret_run_took_is_not_told(queue: Bench, db: Db, mode: str) -> None:
    """A submission could sleep for as long as secret data say: no duration, no time of a row, an end to the second."""
    submission_id = queue.submit(mode=mode)
    for number in (1, 2) if mode == "leaderboard" else (1,):
        job = queue.claim()
        found = ranked(job) if mode == "leaderboard" else result(Verdict.ACCEPTED, run_record())
        queue.store.complete(job, replace(found, eval_ns=number * 10**9, build_ns=number * 10**7))
    line = status(db, submission_id)
    assert (line["eval_ms"], line["build_ms"]) == ((1000, 10) if mode == "leaderboard" else (None, None))
    assert line["finished_at"].microsecond == 0
    ended = value(db, "SELECT max(finished_at) FROM runner.job")
    assert timedelta(0) <= line["finished_at"] - ended < timedelta(seconds=1)
    for view in ("result", "seen_run"):
        query = f"SELECT secret, start_time, end_time, score FROM runner.{view}"  # noqa: S608 - views above
        for secret, start_time, end_time, score in rows(db, query):
            assert (start_time is None, end_time is None) == (secret, secret)
            assert score is None or not secret


def test_a_type_that_no_host_serves_is_told_since_when(bench: Bench, db: Db) -> None:
    """From the submission's time, or from the last sign of a host that served it; none once one does."""
    bench.board("identity", "A100", "H100")
    submission_id = bench.submit(gpu_types=["A100", "H100"])
    made = value(db, "SELECT min(created_at) FROM runner.job")
    seen = "SELECT last_seen FROM runner.host WHERE name = 'node2'"

    def since() -> datetime | None:
        found: datetime | None = status(db, submission_id)["no_host_since"]
        return found

    bench.register("node1", "H100", "H100 80GB")
    assert since() == made
    bench.register("node2", "A100")
    assert since() is None
    bench.store.drain("node2")
    assert since() == value(db, seen)
    bench.store.undrain("node2")
    db.execute("UPDATE runner.host SET last_seen = now() - interval '61 seconds' WHERE name = 'node2'")
    assert since() == made
    db.execute("UPDATE runner.job SET created_at = now() - interval '1 hour'")
    assert since() == value(db, seen)
    bench.claim("A100")
    assert since() is None


def test_the_phases_of_several_types_stand_side_by_side(bench: Bench, db: Db) -> None:
    """Each type's own, in the order of its jobs, until it is over."""
    bench.board("identity", "A100", "H100")
    submission_id = bench.submit(mode="leaderboard", gpu_types=["H100", "A100"])
    assert phase(db, submission_id) == "H100: queued; A100: queued"
    job = bench.claim("A100")
    bench.store.progress(job, Progress(phase="test", done=0, total=2))
    assert phase(db, submission_id) == "H100: queued; A100: testing case 1 of 2"
    bench.store.complete(job, ranked(job))
    bench.claim("A100")
    assert phase(db, submission_id) == "H100: queued; A100: secret run"
    for _ in range(2):
        evaluate(bench, "H100")
    assert phase(db, submission_id) == "secret run"


def test_a_job_that_is_to_stop_is_stopping(queue: Bench, db: Db) -> None:
    """Cancelled while it runs, until its daemon says that it has stopped."""
    submission_id = queue.submit()
    job = queue.claim()
    queue.store.cancel(submission_id)
    assert phase(db, submission_id) == "stopping"
    queue.store.cancelled(job)
    assert phase(db, submission_id) is None


def test_a_retry_says_why_and_when(queue: Bench, db: Db) -> None:
    """Whose fault it was, in plain words, without what only an operator should read; nothing once it is over."""
    submission_id = queue.submit()
    queue.store.fail(queue.claim(host="node7"), error="/dev/nvidia3: secret path", report=None, slot="gpu3")
    line = status(db, submission_id)
    assert (line["phase"], line["attempts"]) == ("queued to be tried again", 1)
    assert line["retry_reason"] == "a fault of host node7, not of the submission"
    assert timedelta(0) < line["retry_at"] - value(db, "SELECT now()") <= timedelta(seconds=5000)
    queue.end_pauses()
    assert phase(db, submission_id) == "queued"
    queue.claim(host="node8", lease_s=-1)
    assert status(db, submission_id)["retry_reason"] == "a fault of host node7, not of the submission"
    queue.store.reclaim()
    line = status(db, submission_id)
    assert (line["attempts"], line["retry_reason"], line["retry_at"]) == (2, "host node8 stopped answering", None)
    job = queue.claim(host="node9")
    assert status(db, submission_id)["retry_reason"] == "host node8 stopped answering"
    queue.accept(job)
    line = status(db, submission_id)
    assert (line["attempts"], line["retry_reason"]) == (3, None)


def test_a_rerun_shows_as_one(queue: Bench, db: Db) -> None:
    """Its own place, priority and phase; the score is the earlier one's, and told to be by `rerunning`."""
    submission_id = ranked_submission(queue, score_s=4e-6)
    queue.submit(user_id="u2")
    queue.store.rerun(Selection(submission_id=submission_id))
    line = status(db, submission_id)
    assert (line["state"], line["verdict"], line["phase"], line["position"]) == ("queued", None, "queued", 2)
    assert (line["priority"], line["reruns"], line["rerunning"]) == (-1, 1, True)
    assert (float(line["score"]), line["attempts"], line["started_at"], line["finished_at"]) == (4e-6, 0, None, None)
    jobs = [(job["id"], job["replaces"], job["retired"]) for job in line["jobs"]]
    assert jobs == [(1, None, None), (2, None, None), (4, 1, None), (5, 2, None)]
    evaluate(queue)
    job = evaluate(queue)
    replaced = status(db, submission_id)["jobs"][0]
    assert (replaced["retired"], replaced["retired_reason"]) == ("replaced", f"replaced by job {job.id}")


def queued(db: Db, number: int, *, gpu_type: str, priority: int = 0, first_turn: int = 0) -> None:
    """So many waiting jobs of one submission, each with a turn of its own."""
    db.execute("DROP INDEX IF EXISTS runner.job_open_key")
    db.execute(
        "INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, priority, turn)"
        " SELECT s.id, s.user_id, %s, 'test', false, %s, %s + n FROM leaderboard.submission s,"
        " generate_series(0, %s - 1) n WHERE s.file_name = 'many.py'",
        (gpu_type, priority, first_turn, number),
    )


def test_the_place_in_the_queue_goes_by_priority_turn_and_age(bench: Bench, db: Db) -> None:
    """On its own GPU type; of several types the best place counts."""
    bench.board("identity", "A100", "H100")
    bench.submit(file_name="many.py", gpu_types=["A100"])
    submission_id = bench.submit(gpu_types=["A100"])
    db.execute("UPDATE runner.job SET turn = 10")

    def place() -> int:
        return int(status(db, submission_id)["position"])

    assert place() == 2, "older, same turn"
    queued(db, 3, gpu_type="A100", first_turn=9)
    assert place() == 3, "a lower turn goes first, the same by a younger one or a higher one does not"
    queued(db, 2, gpu_type="A100", priority=1, first_turn=99)
    assert place() == 5, "a higher priority goes first, whatever its turn"
    queued(db, 7, gpu_type="A100", priority=-1)
    queued(db, 7, gpu_type="H100", priority=5)
    assert place() == 5, "lower priorities and other types do not matter"
    db.execute(
        "INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret)"
        " VALUES (%s, 'u1', 'H100', 'test', false)",
        (submission_id,),
    )
    assert place() == 5
    db.execute("UPDATE runner.job SET priority = 9 WHERE submission_id = %s AND gpu_type = 'H100'", (submission_id,))
    assert place() == 1


def test_places_are_counted_up_to_a_thousand(queue: Bench, db: Db) -> None:
    """Behind so many the exact number is not needed, and to have it every status would walk the queue."""
    queue.submit(file_name="many.py")
    queued(db, 998, gpu_type="CPU", priority=1)
    submission_id = queue.submit()
    assert status(db, submission_id)["position"] == 1000
    queued(db, 1, gpu_type="CPU", priority=2)
    assert status(db, submission_id)["position"] == POSITION_LIMIT == 1001
    queued(db, 500, gpu_type="CPU", priority=3)
    assert status(db, submission_id)["position"] == POSITION_LIMIT


def test_the_list_shows_what_runs_then_what_waits_then_what_is_over(queue: Bench, db: Db) -> None:
    """The newest of each first, as many as asked for; a rerun waits, whatever it once was."""
    over = [ranked_submission(queue) for _ in range(3)]
    running = queue.submit(user_id="u2")
    waiting = [queue.submit(user_id="u2") for _ in range(2)]
    queue.claim_of(running)
    queue.store.rerun(Selection(submission_id=over[0]))
    expected = [running, waiting[1], waiting[0], over[0], over[2], over[1]]
    for limit in range(1, 8):
        assert [line.submission_id for line in queue.store.queue(limit=limit)] == expected[:limit]


def test_results_of_any_writer_are_shown(bench: Bench, db: Db) -> None:
    """Ours by way of their jobs; another program's where it made the submission, with a job of ours or without."""
    board = bench.board()
    ours = ranked_submission(bench)
    make = (
        "INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done)"
        " SELECT %s, 'x.py', user_id, code_id, now(), false FROM leaderboard.submission LIMIT 1 RETURNING id"
    )
    theirs, shared = (value(db, make, board) for _ in range(2))
    enqueue(bench.store, shared, mode="test", gpu_types=["CPU"])
    bench.accept(bench.claim_of(shared))
    for submission_id in (theirs, shared):
        db.execute(
            "INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed,"
            " system_info) VALUES (%s, now(), now(), 'leaderboard', true, 'T4', 1, true, '{}')",
            (submission_id,),
        )
    query = "SELECT submission_id, job_id IS NULL, mode, score IS NOT NULL AS scored FROM runner.result ORDER BY run_id"
    assert rows(db, query) == [
        (ours, False, "test", False),
        (ours, False, "benchmark", False),
        (ours, False, "leaderboard", True),
        (ours, False, "test", False),
        (ours, False, "benchmark", False),
        (ours, False, "leaderboard", False),
        (shared, False, "test", False),
        (theirs, True, "leaderboard", False),
        (shared, True, "leaderboard", False),
    ]
    for submission_id, number in ((ours, 6), (theirs, 1), (shared, 2)):
        assert value(db, "SELECT count(*) FROM runner.result WHERE submission_id = %s", submission_id) == number


def test_of_a_secret_run_an_author_sees_its_verdict_alone(queue: Bench, finish: Callable[..., None], db: Db) -> None:
    """Every other column is empty: readings of its devices, too, say how long it took, and so what its data are."""
    queue.submit(mode="leaderboard")
    finish()
    seen = {"submission_id", "job_id", "run_id", "gpu_type", "mode", "secret", "passed"}
    secret = db.execute("SELECT * FROM runner.result WHERE secret").fetchall()
    assert {mode for row in secret if (mode := row["mode"])} == {"test", "benchmark", "leaderboard"}
    assert {key for row in secret for key, value in row.items() if value is not None} == seen
    public = db.execute("SELECT system_info FROM runner.result WHERE NOT secret").fetchall()
    assert all(row["system_info"] for row in public)


@pytest.mark.parametrize("mode", ["test", "benchmark", "profile", "leaderboard"])
def test_an_error_is_the_reason_of_the_gravest_public_job(queue: Bench, db: Db, mode: str) -> None:
    """In every mode, with or without rows, on several GPU types; of our faults a sentence without the host's error."""
    for verdict in set(Verdict) - {Verdict.ACCEPTED}:
        for runs in ((), (run_record("test", passed=False),)):
            submission_id = queue.submit(mode=mode)
            queue.store.complete(queue.claim_of(submission_id), result(verdict, *runs))
            row = status(db, submission_id)
            ours = "the evaluation on CPU failed for a reason that is not yours"
            assert row["verdict"] == verdict
            assert row["error"] == (ours if verdict is Verdict.INTERNAL_ERROR else f"because {verdict}")
    queue.board("pair", "CPU", "H100")
    submission_id = queue.submit(leaderboard="pair", mode=mode, gpu_types=["CPU", "H100"])
    queue.store.complete(queue.claim("CPU"), result(Verdict.COMPILE_ERROR))
    queue.store.complete(queue.claim("H100"), result(Verdict.WRONG_ANSWER))
    assert status(db, submission_id)["error"] == "because compile_error"


def test_an_error_says_nothing_of_a_secret_job(queue: Bench, db: Db) -> None:
    """Its own words may tell of secret data."""
    for verdict in set(Verdict) - {Verdict.ACCEPTED}:
        submission_id = queue.submit(mode="leaderboard")
        public = queue.claim_of(submission_id)
        queue.store.complete(public, ranked(public))
        queue.store.complete(queue.claim_of(submission_id), result(verdict, error="the secret is 17"))
        row = status(db, submission_id)
        assert row["verdict"] == verdict
        assert row["error"]
        assert "17" not in row["error"]
