"""Taking results out of the ranking: what that shows, and how a submission comes back."""

from __future__ import annotations

import json

from runner.base.model import JobState, Verdict
from runner.extras.boards.again import Selection
from tests.integration.store.conftest import Bench, Db, count, notes, result, rows, run_record
from tests.integration.store.test_again import evaluate, ranked_submission, scores
from tests.integration.store.test_queue import words

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
