"""What is shown of a submission, and what is kept back."""

from __future__ import annotations

import json

from runner.base.model import JobState, Mode, Verdict
from runner.cli import render_submission
from runner.cli.view import from_store
from runner.store.records import SubmissionView
from tests.unit.cli import samples
from tests.unit.cli.test_render import text_of


def _leaderboard_submission() -> SubmissionView:
    public = samples.job(
        id=1, mode=Mode.LEADERBOARD, runs=(samples.run(), samples.run(mode="leaderboard", score_s=2e-6))
    )
    secret = samples.job(
        id=2,
        mode=Mode.LEADERBOARD,
        secret=True,
        verdict=Verdict.WRONG_ANSWER,
        error=f"case {samples.SECRET_MARK} differs",
        progress={"phase": samples.SECRET_MARK, "done": 1, "total": 9},
        runs=(samples.run(secret=True, passed=False, score_s=3e-6),),
    )
    return samples.submission(public, secret, line=samples.status(verdict=Verdict.WRONG_ANSWER))


def test_nothing_of_a_secret_run_but_verdict_and_passed_is_shown() -> None:
    """Neither JSON nor page contains a single character that a secret run produced; administrators see it in full."""
    shown, whole = (from_store(_leaderboard_submission(), admin=admin) for admin in (False, True))
    document = json.dumps(shown.to_json())
    page = text_of(render_submission.submission_page(shown))
    assert samples.SECRET_MARK not in document
    assert samples.SECRET_MARK not in page
    secret = shown.to_json()["jobs"][1]
    assert (secret["verdict"], secret["error"]) == ("wrong_answer", None)
    withheld = dict.fromkeys(("score", "result", "compilation", "meta", "system_info"))
    assert secret["runs"] == [{"mode": "test", "passed": False, **withheld}]
    assert "wrong_answer" in page
    secret = whole.to_json()["jobs"][1]
    assert secret["error"] == f"case {samples.SECRET_MARK} differs"
    assert secret["runs"][0]["meta"]["stdout"] == samples.SECRET_MARK
    assert samples.SECRET_MARK in text_of(render_submission.submission_page(whole))


def test_progress_that_is_no_progress_is_ignored() -> None:
    """A daemon of another release may write other objects; they do not break the waiting."""
    view = samples.submission(samples.job(state=JobState.RUNNING, progress={"phase": 3}))
    assert from_store(view, admin=False).jobs[0].progress is None
