"""The books of the storm: what must hold at every moment, and what must have happened in the end.

`Watch` looks at the database all the time, `settled` looks at everything once nothing is open any more. Both return
sentences about what is wrong; none means that nothing was lost, doubled or let in late. Wrong is a job that has not
ended exactly once with the rows of one execution, a claim that ran twice, a device that did two things at once, and a
lost result whose daemon was not killed at that moment. They trust the orders, the tables and the daemons' journals, and
know nothing of how the queue works.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from runner.base.model import JobState, Mode, Verdict
from tests.chaos import script
from tests.chaos.producer import BOARD, Deed, Order
from tests.chaos.script import Ended, final_status, job_key

Row = dict[str, Any]
Db = psycopg.Connection[Row]
#: A job ends that has failed, or lost its lease, this often. The storm kills more than any fleet does, so some may.
MAX_ATTEMPTS: Final = 3
MAX_RECLAIMS: Final = 5

_OVER: Final = """
SELECT id, state, verdict, attempt, finished_at FROM runner.job WHERE state IN ('done', 'cancelled')
"""
#: A submission is done exactly when its last job is over: the same transaction says both.
_HALF_DONE: Final = """
SELECT s.id, s.done, count(*) FILTER (WHERE j.state IN ('queued', 'running')) AS open
FROM leaderboard.submission s JOIN runner.job j ON j.submission_id = s.id
GROUP BY s.id HAVING s.done = (count(*) FILTER (WHERE j.state IN ('queued', 'running')) > 0)
"""
#: Only a job that is done has rows, and a job never fails more often than it may.
_EARLY: Final = """
SELECT j.id, j.state, j.failures, (SELECT count(*) FROM runner.job_run x WHERE x.job_id = j.id) AS runs
FROM runner.job j
WHERE j.failures > (SELECT max_attempts FROM runner.retry)
   OR (j.state <> 'done' AND EXISTS (SELECT FROM runner.job_run x WHERE x.job_id = j.id))
"""
_JOBS: Final = """
SELECT j.*, i.key, s.done, s.status AS submission_status, t.status AS job_status, t.error AS job_error
FROM runner.job j
JOIN leaderboard.submission s ON s.id = j.submission_id
LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
LEFT JOIN runner.idempotency i ON i.submission_id = s.id
ORDER BY j.id
"""
#: Rows that no longer count keep what they said.
_SUPERSEDED: Final = """
SELECT w.job_id, w.run_id AS id, w.submission_id, w.run ->> 'runner' AS runner, w.run ->> 'mode' AS mode,
       (w.run ->> 'secret')::boolean AS secret, (w.run ->> 'passed')::boolean AS passed,
       (w.run ->> 'score')::float8 AS score, w.run -> 'result' AS result
FROM runner.superseded_run w ORDER BY w.run_id
"""
_EVENTS: Final = (
    "SELECT job_id, kind, count(*) AS times FROM runner.event WHERE job_id IS NOT NULL GROUP BY job_id, kind"
)
#: Why attempts were given back at no cost; the host's name does not count.
_GIVEN_BACK: Final = """
SELECT replace(detail ->> 'reason', format('host %s ', host), 'host ') AS reason, count(*) AS times
FROM runner.event WHERE kind = 'released' GROUP BY 1 ORDER BY 1
"""
_RUNS: Final = """
SELECT x.job_id, r.id, r.submission_id, r.runner, r.mode, r.secret, r.passed, r.score::float8 AS score, r.result
FROM leaderboard.runs r LEFT JOIN runner.job_run x ON x.run_id = r.id ORDER BY r.id
"""


class Watch:
    """Looks at the database every second in a thread of its own."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._lock = threading.Lock()
        self._over: dict[int, Row] = {}
        self.looks = 0
        self.violations: list[str] = []

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(30.0)

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """The database goes back to an earlier moment meanwhile: what was over before may change."""
        with self._lock:
            yield
            self._over = {}

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            try:
                with connect(self._url) as db:
                    self.look(db)
            except psycopg.OperationalError:
                continue  # the server is down, as the storm will have it

    def look(self, db: Db) -> None:
        """Look once."""
        with self._lock:
            self._look(db)

    def _look(self, db: Db) -> None:
        now = {row["id"]: row for row in db.execute(_OVER)}
        for job_id, before in self._over.items():
            if now.get(job_id) != before:
                self.violations.append(f"job {job_id} was over and changed: {before} became {now.get(job_id)}")
        self._over = now
        for row in db.execute(_HALF_DONE):
            self.violations.append(f"submission {row['id']}: done is {row['done']}, but {row['open']} jobs are open")
        for row in db.execute(_EARLY):
            self.violations.append(f"job {row['id']} has rows too soon, or failed too often: {row}")
        self.looks += 1


@dataclass(frozen=True, kw_only=True)
class Books:
    """Everything the final check looks at."""

    orders: Sequence[Order]
    jobs: Sequence[Row]
    #: What counts, and what was replaced or taken out.
    runs: Sequence[Row]
    superseded: Sequence[Row]
    #: How often each kind of event happened to a job.
    events: Mapping[int, Mapping[str, int]]
    #: The evaluators' journals, by host.
    journals: Mapping[str, Sequence[Mapping[str, Any]]]
    #: How many executions each host may have lost: what its slots may have handed over, times its kills.
    losses: Mapping[str, int]
    #: Nonces of results that came too late and were kept as evidence.
    stale: frozenset[str]
    #: Nonces in artifacts, by job.
    artifacts: Mapping[int, Sequence[str]]
    ranking: Sequence[Row]
    #: How many attempts were given back at no cost, by reason.
    given_back: Mapping[str, int]
    #: The database lost what happened in this time, in seconds since 1970: results that were found then may be nowhere.
    lost_s: tuple[float, float] | None = None


def connect(url: str) -> Db:
    """A plain connection in autocommit mode."""
    return psycopg.Connection[Row].connect(url, autocommit=True, row_factory=dict_row, connect_timeout=60)


def read(
    db: Db, orders: Sequence[Order], journals: Mapping[str, Sequence[Mapping[str, Any]]], losses: Mapping[str, int]
) -> Books:
    """Open the books; see `Books` for what is given."""
    artifacts: dict[int, list[str]] = defaultdict(list)
    for row in db.execute("SELECT job_id, convert_from(data, 'UTF8')::jsonb ->> 'nonce' AS nonce FROM runner.artifact"):
        artifacts[row["job_id"]].append(row["nonce"])
    events: dict[int, dict[str, int]] = defaultdict(dict)
    for row in db.execute(_EVENTS):
        events[row["job_id"]][row["kind"]] = row["times"]
    return Books(
        orders=orders,
        jobs=db.execute(_JOBS).fetchall(),
        runs=db.execute(_RUNS).fetchall(),
        superseded=db.execute(_SUPERSEDED).fetchall(),
        events=events,
        journals=journals,
        losses=losses,
        stale=frozenset(
            row["nonce"]
            for row in db.execute("SELECT result -> 'report' ->> 'nonce' AS nonce FROM runner.stale_result")
        ),
        artifacts=artifacts,
        ranking=db.execute("SELECT * FROM runner.ranking").fetchall(),
        given_back={row["reason"]: row["times"] for row in db.execute(_GIVEN_BACK)},
    )


def settled(books: Books) -> list[str]:
    """What is wrong once nothing is open any more."""
    runs, superseded = _by_job(books.runs), _by_job(books.superseded)
    found = [f"run {row['id']} belongs to no job" for row in books.runs if row["job_id"] is None]
    found += _submissions(books)
    orders = {order.key: order for order in books.orders}
    publics = _publics(books)
    for job in books.jobs:
        order = orders.get(job["key"])
        if order is None:
            continue  # said already
        about = f"job {job['id']}: "
        found += [about + problem for problem in _follows(job, publics.get(job["id"]))]
        if _never_ran(job):
            if runs[job["id"]] or superseded[job["id"]]:
                found.append(about + "it never ran, and has rows")
            continue
        found += [about + problem for problem in _state(job, order)]
        found += [about + problem for problem in _rows(job, runs[job["id"]], superseded[job["id"]], books)]
        found += [about + problem for problem in _history(job, books.events.get(job["id"], {}))]
    found += _replacements(books)
    found += _final_words(books, runs)
    found += _executions(books)
    found += _ranking(books)
    return found


def _by_job(rows: Sequence[Row]) -> Mapping[int, Sequence[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["job_id"]].append(row)
    return found


def _submissions(books: Books) -> Iterator[str]:
    """Each order is one submission with the jobs it asked for, each once; there is nothing else."""
    by_key: dict[str | None, list[Row]] = defaultdict(list)
    for job in books.jobs:
        by_key[job["key"]].append(job)
    for order in books.orders:
        jobs = by_key.pop(order.key, [])
        if {job["submission_id"] for job in jobs} != {order.submission_id}:
            found = sorted({job["submission_id"] for job in jobs})
            yield f"order {order.key}: the frontend was told submission {order.submission_id}, the database has {found}"
        names = Counter(job_key(job["gpu_type"], secret=job["secret"]) for job in jobs if job["replaces"] is None)
        if names != Counter(order.jobs()):
            yield f"order {order.key}: expected the jobs {sorted(order.jobs())}, found {dict(names)}"
        if Deed.RERUN not in order.done and any(job["replaces"] is not None for job in jobs):
            yield f"order {order.key}: evaluated again without a request"
    for key, jobs in by_key.items():
        yield f"submission {jobs[0]['submission_id']} (key {key}) was not ordered"


def _publics(books: Books) -> Mapping[int, Row]:
    """The public job that each secret job of a ranked submission was made with."""
    found: dict[int, Row] = {}
    latest: dict[tuple[int, str], Row] = {}
    for job in sorted(books.jobs, key=itemgetter("id")):
        key = (job["submission_id"], job["gpu_type"])
        if job["mode"] == Mode.LEADERBOARD and job["secret"] and key in latest:
            found[job["id"]] = latest[key]
        elif job["mode"] == Mode.LEADERBOARD:
            latest[key] = job
    return found


def _never_ran(job: Row) -> bool:
    return bool(job["state"] == JobState.DONE and job["attempt"] == 0)


def _follows(job: Row, public: Row | None) -> Iterator[str]:
    """A secret job runs if its public one was accepted; else it has the same verdict, and nothing more."""
    if _never_ran(job):
        if public is None or public["verdict"] != job["verdict"] or job["verdict"] == Verdict.ACCEPTED:
            yield f"{job['verdict']} without having run, and its public job ended otherwise"
        if job["report"] is not None or job["failures"] or job["reclaims"]:
            yield "it never ran, and has a report, failures or lost leases"
    elif public is not None and job["attempt"] > 0 and public["verdict"] != Verdict.ACCEPTED:
        yield f"ran {job['attempt']} times, though its public job ended as {public['verdict']}"


def _state(job: Row, order: Order) -> Iterator[str]:
    """One job is over, for a reason."""
    state = JobState(job["state"])
    if job["lease_owner"] is not None or job["lease_expires_at"] is not None:
        yield f"leased by {job['lease_owner']} until {job['lease_expires_at']}"
    if state not in (JobState.DONE, JobState.CANCELLED):
        yield f"never ended: {state}, {job['failures']} failures, not before {job['not_before']}"
        return
    if state is JobState.CANCELLED:
        # Only authors cancel here, and not what the operator ordered.
        if Deed.CANCEL not in order.done or job["replaces"] is not None:
            yield "cancelled without a request by its user or an operator"
        return
    verdict = Verdict(job["verdict"])
    if verdict is Verdict.INTERNAL_ERROR:
        if job["failures"] < MAX_ATTEMPTS and job["reclaims"] < MAX_RECLAIMS:
            yield f"internal_error after {job['failures']} failures and {job['reclaims']} reclaims: {job['error']}"
        if order.script.failing < MAX_ATTEMPTS and job["reclaims"] < MAX_RECLAIMS:
            yield f"internal_error, but only {order.script.failing} attempts were to fail: {job['error']}"
        return
    planned = order.script.verdict(job["gpu_type"], secret=job["secret"])
    if verdict is not planned:
        yield f"verdict {verdict}, expected {planned}"
    if job["failures"] != order.script.failing:
        yield f"{job['failures']} failures were counted, {order.script.failing} happened"


def _rows(job: Row, runs: Sequence[Row], superseded: Sequence[Row], books: Books) -> Iterator[str]:
    """Exactly the rows of the mode, all from the execution that was committed, which is the last attempt's."""
    state, mode = JobState(job["state"]), Mode(job["mode"])
    verdict = None if job["verdict"] is None else Verdict(job["verdict"])
    if superseded if job["retired_as"] is None else runs:
        yield f"retired as {job['retired_as']}, with {len(runs)} rows that count and {len(superseded)} that do not"
    has_result = state is JobState.DONE and verdict is not None and verdict is not Verdict.INTERNAL_ERROR
    expected = script.rows(mode, verdict) if has_result and verdict is not None else ()
    written = [*runs, *superseded]
    found = [script.Row(mode=run["mode"], passed=run["passed"], scored=run["score"] is not None) for run in written]
    if found != list(expected):
        yield f"{state} with verdict {verdict}: expected the rows {expected}, found {found}"
    for run in written:
        claims = (run["submission_id"], run["runner"], run["secret"])
        if claims != (job["submission_id"], job["gpu_type"], job["secret"]):
            yield f"row {run['id']} says submission {run['submission_id']}, {run['runner']}, secret {run['secret']}"
    if not has_result or verdict is None:
        return
    own = job["report"]
    marks = {(run["result"]["job"], run["result"]["attempt"], run["result"]["nonce"]) for run in written}
    marks.add((own["job"], own["attempt"], own["nonce"]))
    if marks != {(str(job["id"]), str(job["attempt"]), own["nonce"])}:
        yield f"ended at attempt {job['attempt']}, but its rows and its report come from {sorted(marks)}"
    nonces = books.artifacts.get(job["id"], ())
    expected_nonces = (own["nonce"],) if script.leaves_file(mode, verdict) else ()
    if tuple(nonces) != expected_nonces:
        yield f"artifacts of the executions {nonces}, expected {expected_nonces}"


def _history(job: Row, events: Mapping[str, int]) -> Iterator[str]:
    """Every claim is accounted for: it ended with the job, or an event says why not."""
    failed, reclaimed = events.get("failed", 0), events.get("reclaimed", 0)
    if (failed, reclaimed) != (job["failures"], job["reclaims"]):
        yield f"{failed} failures and {reclaimed} reclaims are told, {job['failures']} and {job['reclaims']} counted"
    if len(job["causes"]) != min(failed + reclaimed, 20):
        yield f"{len(job['causes'])} causes for {failed} failures and {reclaimed} reclaims"
    without_result = failed + reclaimed + events.get("released", 0)
    last = {JobState.QUEUED: (0,), JobState.RUNNING: (1,), JobState.CANCELLED: (0, 1)}.get(
        JobState(job["state"]), (0,) if job["verdict"] == Verdict.INTERNAL_ERROR else (1,)
    )
    if job["attempt"] - without_result not in last:
        yield f"claimed {job['attempt']} times, {without_result} attempts ended without a result: {dict(events)}"


def _replacements(books: Books) -> Iterator[str]:
    """Of everything evaluated more than once, one job speaks: the last with a result, else the first."""
    history: dict[tuple[int, str, str, bool], list[Row]] = defaultdict(list)
    for job in books.jobs:
        history[job["submission_id"], job["gpu_type"], job["mode"], job["secret"]].append(job)
    for key, jobs in history.items():
        results = [job for job in jobs[1:] if job["state"] == "done" and job["verdict"] != Verdict.INTERNAL_ERROR]
        expected = (results or jobs[:1])[-1]["id"]
        speaking = [job["id"] for job in jobs if _speaks(job)]
        if speaking != [expected]:
            yield f"of {key} the jobs {speaking} count, expected {expected}"


def _speaks(job: Row) -> bool:
    return job["retired_as"] in (None, "invalidated")


def _final_words(books: Books, runs: Mapping[int, Sequence[Row]]) -> Iterator[str]:
    """Done, and the gravest of what its jobs amount to, in both places that say so."""
    by_submission: dict[int, list[Row]] = defaultdict(list)
    for job in books.jobs:
        by_submission[job["submission_id"]].append(job)
    for submission_id, jobs in by_submission.items():
        if any(job["finished_at"] is None for job in jobs):
            continue  # said already
        ended = [
            Ended(
                mode=Mode(job["mode"]),
                state=JobState(job["state"]),
                verdict=None if job["verdict"] is None else Verdict(job["verdict"]),
                passed=tuple(run["passed"] for run in runs.get(job["id"], ())),
                invalidated=job["retired_as"] is not None,
            )
            for job in jobs
            if _speaks(job)
        ]
        word = final_status(ended)
        expected = (True, word, "hacked" if word == "hacked" else "active", word == "succeeded")
        job = jobs[0]
        found = (job["done"], job["job_status"], job["submission_status"], job["job_error"] is None)
        if found != expected:
            yield f"submission {submission_id}: (done, job status, status, no error) is {found}, expected {expected}"


def _executions(books: Books) -> Iterator[str]:
    """An attempt runs once, a slot runs one thing at a time, and no result is nowhere unless its host was killed."""
    known = books.stale | {job["report"]["nonce"] for job in books.jobs if (job["report"] or {}).get("nonce")}
    #: The time of the claim counts: a database that lost claims makes them again.
    begun: Counter[tuple[int, int, float]] = Counter()
    for host, lines in books.journals.items():
        begun.update((line["job"], line["attempt"], line["claimed_at"]) for line in lines if line["what"] == "begun")
        for line in lines:
            if line["what"] == "doubled":
                yield f"{host}: two runs at once on slot {line['slot']}: {line}"
        lost = [
            line
            for line in lines
            if line["what"] == "found"
            and line["nonce"] not in known
            and not (books.lost_s and books.lost_s[0] < line["at"] < books.lost_s[1])
        ]
        if len(lost) > books.losses[host]:
            yield (
                f"{host}: {len(lost)} results were found and are nowhere, at most {books.losses[host]} could be lost: "
                f"{lost[:5]}"
            )
    for (job_id, attempt, _), times in begun.items():
        if times > 1:
            yield f"job {job_id}, attempt {attempt} was run {times} times"
    yield from _early_checks(books, {(job_id, attempt) for job_id, attempt, _ in begun})
    claimed_at = {line["nonce"]: line["claimed_at"] for lines in books.journals.values() for line in lines}
    for job in books.jobs:
        found_at = claimed_at.get((job["report"] or {}).get("nonce"))
        if found_at is not None and found_at != job["started_at"].timestamp():
            yield f"job {job['id']}: its result is of another claim than the one that the database knows"


def refused_early(books: Books) -> Mapping[int, int]:
    """Job -> attempt, of those that an early check ended."""
    lines = [line for lines in books.journals.values() for line in lines if line["what"] == "refused"]
    refused = {line["nonce"] for line in lines}
    return {job["id"]: job["attempt"] for job in books.jobs if (job["report"] or {}).get("nonce") in refused}


def _early_checks(books: Books, begun: Collection[tuple[int, int]]) -> Iterator[str]:
    """A job is checked once, and what a check ended no host had begun; a lost database forgets both."""
    if books.lost_s is not None:
        return
    checks = Counter(line["job"] for lines in books.journals.values() for line in lines if line["what"] == "checked")
    for job_id, times in checks.items():
        if times > 1:
            yield f"job {job_id} was checked early {times} times"
    for job_id, attempt in refused_early(books).items():
        if (job_id, attempt) in begun:
            yield f"job {job_id}, attempt {attempt} was run, and refused early"


def _ranking(books: Books) -> Iterator[str]:
    """Each user's best public score per GPU type.

    A score counts if the secret job was accepted too and no job of the submission was rejected.
    """
    best: dict[tuple[str, str], float] = {}
    verdicts: dict[tuple[int, str, bool], str] = {}
    counting = [job for job in books.jobs if job["retired_as"] is None]
    hacked = {job["submission_id"] for job in counting if job["verdict"] == Verdict.REJECTED}
    users = {order.submission_id: order.user_id for order in books.orders}
    for job in counting:
        if job["mode"] == Mode.LEADERBOARD:
            verdicts[job["submission_id"], job["gpu_type"], job["secret"]] = job["verdict"]
    for run in books.runs:
        if run["secret"] or run["score"] is None or run["submission_id"] in hacked:
            continue
        if verdicts.get((run["submission_id"], run["runner"], True)) == Verdict.ACCEPTED:
            place = (users.get(run["submission_id"], "?"), run["runner"])
            best[place] = min(run["score"], best.get(place, run["score"]))
    found = {(row["user_id"], row["gpu_type"]): float(row["score"]) for row in books.ranking}
    if found != best or any(row["leaderboard"] != BOARD for row in books.ranking):
        yield f"the ranking differs: expected {best}, found {found}"


def claimed_since(db: Db, host: str, moment: datetime) -> int:
    """How many jobs a host claimed after a moment of the database's clock."""
    found = db.execute(
        "SELECT count(*) AS claims FROM runner.job WHERE host = %s AND started_at > %s", (host, moment)
    ).fetchone()
    return 0 if found is None else int(found["claims"])
