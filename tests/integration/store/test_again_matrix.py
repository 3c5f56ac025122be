"""Every way in which a public and a secret job can end, be evaluated again and end once more, against a table.

Hundreds of submissions go through the queue's own functions side by side, so that the whole product takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, product
from typing import Any

import psycopg
import pytest

from runner.base.model import Verdict
from tests.integration.store.conftest import Bench

Db = psycopg.Connection[dict[str, Any]]

CANCELLED = "cancelled"
#: How a job can end, as far as the queue can tell endings apart. Those with a word in ROWS leave a row of results.
ENDINGS = ("accepted", "wrong_answer", "compile_error", "rejected", "internal_error", CANCELLED)
ROWS = {"accepted": True, "wrong_answer": False, "rejected": False}
#: An ending that leaves everything as it was.
NOTHING = ("internal_error", CANCELLED)
#: Each of these leads to another final word or another row.
TELLING = ("accepted", "wrong_answer", "rejected", "internal_error")
#: What an invalidated job stands for until it is replaced.
OUT = "out"
#: From mildest to gravest.
GRAVITY = ("accepted", "wrong_answer", "compile_error", "rejected", "internal_error")
OLD_SCORE, NEW_SCORE = 1e-6, 2e-6
REASON = "the fan was broken"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One submission's fate; pairs are (public, secret)."""

    id: int
    #: Whether results were taken out before the rerun, while it waited, or not.
    taken_out: str
    old: tuple[str, str]
    new: tuple[str, str]
    secret_first: bool

    def standing(self, *, ended: tuple[bool, bool] = (True, True)) -> tuple[str, str]:
        """What each job stands for once the new jobs named in `ended` are over."""
        return self._job(0, over=ended[0]), self._job(1, over=ended[1])

    def _job(self, number: int, *, over: bool) -> str:
        if over and self.new[number] not in NOTHING:
            return self.new[number]
        if self.taken_out != "no" and self.old[number] != CANCELLED:
            return OUT
        return self.old[number]

    def score(self, *, ended: tuple[bool, bool] = (True, True)) -> float | None:
        """The score that counts: of the new public job if that has one to offer."""
        if self.standing(ended=ended) != ("accepted", "accepted"):
            return None
        return NEW_SCORE if ended[0] and self.new[0] == "accepted" else OLD_SCORE


def final_words(standing: tuple[str, str]) -> tuple[str, str | None]:
    """KernelBot's status and error: of the gravest words, what was taken out, then the public job, then the other."""
    words = [
        (0 if ending == "rejected" else 1, ending != OUT, secret, _error(ending, secret=secret))
        for secret, ending in zip((False, True), standing, strict=True)
        if ending != "accepted"
    ]
    if not words:
        return "succeeded", None
    grave, _, _, error = min(words)
    return ("hacked" if grave == 0 else "failed"), error


def _error(ending: str, *, secret: bool) -> str:
    if ending == "rejected":
        return "rejected by the secret run on CPU" if secret else "because rejected"
    return {
        OUT: f"taken out of the ranking: {REASON}",
        CANCELLED: "cancelled",
        "internal_error": "the evaluation on CPU failed for a reason that is not yours",
    }.get(
        ending,
        f"{'secret' if secret else 'ranked'} validation failed on CPU; submission will not appear on the leaderboard",
    )


def verdict(standing: tuple[str, str]) -> str | None:
    """The gravest verdict that counts; accepted only if it is a word about both jobs."""
    counting = [ending for ending in standing if ending in GRAVITY]
    gravest = max(counting, key=GRAVITY.index, default=None)
    return None if gravest == "accepted" and len(counting) < 2 else gravest


def cases() -> Iterator[Case]:
    """All pairs of old endings with those new ones that tell; of invalidations and the other order, those alone."""
    number = count(1)
    for old, new in product(product(ENDINGS, ENDINGS), product((*TELLING, CANCELLED), (*TELLING, CANCELLED))):
        yield Case(id=next(number), taken_out="no", old=old, new=new, secret_first=False)
    for old, new in product(product(TELLING, TELLING), product(TELLING, TELLING)):
        yield Case(id=next(number), taken_out="no", old=old, new=new, secret_first=True)
        yield Case(id=next(number), taken_out="before", old=old, new=new, secret_first=False)
        yield Case(id=next(number), taken_out="during", old=old, new=new, secret_first=False)


#: Ends the jobs of a column of `fate` as a daemon's results would, and settles their submissions one by one.
END = """
WITH ended AS (
    UPDATE runner.job j
    SET state = CASE f.ending WHEN 'cancelled' THEN 'cancelled' ELSE 'done' END, attempt = 1, host = 'host-a',
        verdict = nullif(f.ending, 'cancelled'), finished_at = now(),
        error = CASE WHEN f.ending NOT IN ('accepted', 'cancelled') THEN 'because ' || f.ending END
    FROM (SELECT submission_id, secret, {ending} AS ending FROM fate WHERE {which}) AS f
    WHERE j.submission_id = f.submission_id AND j.secret = f.secret AND j.state = 'queued'
    RETURNING j.*
), written AS (
    INSERT INTO leaderboard.runs
        (submission_id, start_time, end_time, mode, secret, runner, score, passed, meta, result, system_info)
    SELECT e.submission_id, now(), now(), 'leaderboard', e.secret, e.gpu_type,
           CASE e.verdict WHEN 'accepted' THEN %(score)s::numeric END, e.verdict = 'accepted', '{{}}', '{{}}',
           jsonb_build_object('job', e.id)
    FROM ended e WHERE e.verdict = ANY (%(rows)s)
    RETURNING id, system_info
)
INSERT INTO runner.job_run (run_id, job_id) SELECT w.id, (w.system_info ->> 'job')::bigint FROM written w
"""
SETTLE = "SELECT submission_id, runner.settle(submission_id) AS done FROM fate WHERE {which} GROUP BY submission_id"
SEEN = """
SELECT s.submission_id, s.done, s.job_status, s.error, s.state, s.verdict, s.score::float8 AS score, s.rerunning,
       l.status AS mark, v.score::float8 AS ranked,
       (SELECT count(*) FROM leaderboard.runs r WHERE r.submission_id = s.submission_id) AS runs,
       (SELECT count(*) FROM runner.superseded_run r WHERE r.submission_id = s.submission_id) AS superseded,
       (SELECT count(*) FROM runner.job_run x JOIN runner.job j ON j.id = x.job_id
        WHERE j.submission_id = s.submission_id AND j.retired_at IS NULL) AS linked
FROM runner.status s
JOIN leaderboard.submission l ON l.id = s.submission_id
LEFT JOIN runner.ranking v ON v.submission_id = s.submission_id
"""


class Crowd:
    """The submissions of all cases, moved along together."""

    def __init__(self, bench: Bench, db: Db) -> None:
        self.db = db
        self.all = {case.id: case for case in cases()}
        for taken_out in ("no", "before", "during"):
            bench.board(taken_out)
        db.execute(
            "CREATE TEMP TABLE fate"
            " (submission_id integer, secret boolean, old text, new text, first boolean, board text)"
        )
        with db.cursor().copy("COPY fate FROM STDIN") as copy:
            for case in self.all.values():
                for secret in (False, True):
                    first = secret == case.secret_first
                    copy.write_row((case.id, secret, case.old[secret], case.new[secret], first, case.taken_out))
        db.execute("ANALYZE fate")
        db.execute("INSERT INTO leaderboard.user_info (id) SELECT DISTINCT submission_id::text FROM fate")
        db.execute("INSERT INTO leaderboard.code_files (code) VALUES ('pass')")
        db.execute(
            "INSERT INTO leaderboard.submission (id, leaderboard_id, file_name, user_id, code_id, submission_time)"
            " SELECT DISTINCT f.submission_id, l.id, 'x.py', f.submission_id::text, c.id, now()"
            " FROM leaderboard.code_files c, fate f JOIN leaderboard.leaderboard l ON l.name = f.board"
        )
        db.execute(
            "INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret)"
            " SELECT submission_id, submission_id::text, 'CPU', 'leaderboard', secret FROM fate ORDER BY 1, secret"
        )
        db.execute("ANALYZE")

    def end(self, ending: str, which: str, score: float) -> Mapping[int, bool]:
        """End these jobs; says which submissions were settled by that."""
        parameters = {"score": score, "rows": list(ROWS)}
        self.db.execute(END.format(ending=ending, which=which).encode(), parameters)
        # What autovacuum does for a queue that does not fill and empty within seconds.
        self.db.execute("ANALYZE runner.job, leaderboard.runs, runner.job_run, runner.event")
        found = self.db.execute(SETTLE.format(which=which).encode()).fetchall()
        return {row["submission_id"]: row["done"] for row in found}

    def seen(self) -> Mapping[int, dict[str, Any]]:
        """What everybody can see of every submission."""
        return {row["submission_id"]: row for row in self.db.execute(SEEN).fetchall()}


@pytest.fixture
def crowd(bench: Bench, db: Db) -> Crowd:
    """All cases, queued."""
    return Crowd(bench, db)


def _rerun(crowd: Crowd) -> None:
    """Everything again: board by board, and by number what was cancelled, which no other filter chooses."""
    for board in ("no", "before", "during"):
        crowd.db.execute("SELECT runner.rerun(leaderboard => %s)", (board,))
    crowd.db.execute(
        "SELECT runner.rerun(submission_id => f.submission_id) FROM fate f GROUP BY f.submission_id"
        " HAVING bool_or(f.old = 'cancelled')"
    )
    # Every pair of ends is possible for jobs of a release whose secret jobs did not wait.
    crowd.db.execute("UPDATE runner.job SET after_public = false, ready = true WHERE after_public")


def test_whatever_both_jobs_find_when_evaluated_again_the_truth_is_shown(crowd: Crowd) -> None:
    """For every pair of old and new endings, in both orders, taken out before or not: status, ranking, marks, rows."""
    assert set(GRAVITY) <= set(Verdict)
    assert all(crowd.end("old", "true", OLD_SCORE).values())
    before = crowd.seen()
    crowd.db.execute("SELECT runner.invalidate(leaderboard => 'before', reason => %s)", (REASON,))
    _rerun(crowd)
    crowd.db.execute("SELECT runner.invalidate(leaderboard => 'during', reason => %s)", (REASON,))
    waiting = crowd.seen()
    assert not any(crowd.end("new", "first", NEW_SCORE).values())
    between = crowd.seen()
    assert all(crowd.end("new", "NOT first", NEW_SCORE).values())
    after = crowd.seen()

    wrong: list[str] = []

    def check(case: Case, step: str, found: Mapping[str, Any], **expected: object) -> None:
        differs = {key: (found[key], value) for key, value in expected.items() if found[key] != value}
        if differs:
            wrong.append(f"{case} {step}: (found, expected) {differs}")

    for case in crowd.all.values():
        was_hacked = "rejected" in case.old
        mark = "hacked" if was_hacked else "active"
        status, error = final_words(case.old)
        score = OLD_SCORE if case.old == ("accepted", "accepted") else None
        rows = sum(ending in ROWS for ending in case.old)
        check(
            case, "at first", before[case.id],
            done=True, job_status=status, error=error, mark=mark, verdict=verdict(case.old), score=score, ranked=score,
            state="cancelled" if CANCELLED in case.old else "done",
            runs=rows, superseded=0, linked=rows, rerunning=False,
        )  # fmt: skip

        # While new jobs wait or run, what counts is shown and ranked, except that a cheat stays a cheat.
        for step, found, ended in (
            ("waiting", waiting, (False, False)),
            ("between", between, (not case.secret_first, case.secret_first)),
        ):
            # Taken out before the rerun, no submission is marked any more.
            marked = was_hacked and case.taken_out != "before"
            score = None if marked else case.score(ended=ended)
            check(
                case, step, found[case.id],
                done=False, job_status="pending", error=None, mark="hacked" if marked else "active", verdict=None,
                score=score, ranked=score, state="queued", rerunning=True,
            )  # fmt: skip

        standing = case.standing()
        status, error = final_words(standing)
        rows = sum(ending in ROWS for ending in standing)
        written = sum(ending in ROWS for ending in (*case.old, *case.new))
        check(
            case, "at last", after[case.id],
            done=True, job_status=status, error=error, mark="hacked" if "rejected" in standing else "active",
            verdict=verdict(standing), score=case.score(), ranked=case.score(),
            state="cancelled" if CANCELLED in standing else "done",
            runs=rows, superseded=written - rows, linked=rows, rerunning=False,
        )  # fmt: skip
    assert not wrong, f"{len(wrong)} of {len(crowd.all)}:\n" + "\n".join(wrong[:20])
