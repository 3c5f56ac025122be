"""What daemons, frontends and operators do with the database, as methods that take and return records.

One `Store` is one connection, confined to one thread; it opens when first used and again after it broke. Every write
about a claimed job is fenced by (id, attempt, state running). Locks are taken in one order everywhere: user,
submission, job, job status. No policy lives here: when to claim, renew or retry is the daemon's business.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import psycopg

from runner.errors import BoardError, NotFoundError, StaleAttemptError
from runner.model import Artifact, Job, JobResult, JobState, Json, Mode, Progress, RunRecord, Verdict
from runner.store import queries
from runner.store.clean import clean_json, clean_text, to_jsonb
from runner.store.connection import Link, Row, row, rows
from runner.store.queries import Query
from runner.store.records import (
    ArtifactLine,
    BoardLine,
    BoardView,
    Completion,
    GpuTypeLine,
    HostLine,
    HostRecord,
    JobView,
    LeaseState,
    RankingLine,
    RunView,
    StatusLine,
    SubmissionView,
)

#: Pause after the first infrastructure failure; it doubles with each further one.
BACKOFF_S: Final = 5.0
BACKOFF_MAX_S: Final = 300.0
#: A job whose lease expired so often is taken to be what kills its daemons.
MAX_RECLAIMS: Final = 5
#: How long `listen` sleeps before it looks at the stop event again.
_LISTEN_SLICE_S: Final = 0.25
#: What may not change under the submissions of a leaderboard without `force`: they would not compare.
_FROZEN_KEYS: Final = ("files", "config", "lang", "benchmarks")


class Store:
    """The database through one connection, for one thread.

    Every method raises `DatabaseUnavailableError` when PostgreSQL cannot be reached or goes away; the next call
    connects again.
    """

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._link = Link(dsn, application_name=application_name)
        self._listener = Link(dsn, application_name=f"{application_name} listen")

    def close(self) -> None:
        """Close the connections; using the store again opens new ones."""
        self._link.close()
        self._listener.close()

    def ping(self) -> None:
        """A round trip to the database."""
        self._link.one(queries.PING)

    # --- queue -------------------------------------------------------------------------------------------------

    def claim(self, *, host: str, slots: Mapping[str, int], lease_s: float) -> Job | None:
        """Take the best waiting job of a GPU type with a free slot: highest priority, then oldest.

        `slots` maps GPU types, aliases included, to free slots. None: nothing to do.
        """
        gpu_types = [gpu_type for gpu_type, free in slots.items() if free > 0]
        if not gpu_types:
            return None
        with self._link.transaction() as connection:
            claimed = row(connection, queries.CLAIM, {"gpu_types": gpu_types, "host": host, "lease_s": lease_s})
            if claimed is None:
                return None
            job = Job(**{**claimed, "mode": Mode(claimed["mode"])})
            rows(connection, queries.MARK_RUNNING, {"submission_id": job.submission_id})
            _notify(connection, {"event": "claimed", "host": host, **_about(job)})
        return job

    def heartbeat(self, *, host: str, lease_s: float, held: Sequence[tuple[int, int]]) -> Sequence[LeaseState]:
        """Renew the leases on `held` (job id, attempt) for `lease_s` seconds and show that the host is alive."""
        self._link.all(queries.TOUCH_HOST, {"host": host})
        if not held:
            return ()
        ids = [job_id for job_id, _ in held]
        parameters = {"host": host, "lease_s": lease_s, "ids": ids, "attempts": [attempt for _, attempt in held]}
        states = [LeaseState(**found) for found in self._link.all(queries.HEARTBEAT, parameters)]
        self._link.all(queries.TOUCH_SUBMISSIONS, {"ids": [state.job_id for state in states if state.ours]})
        return states

    def progress(self, job: Job, progress: Progress) -> None:
        """Show how far a job is; a secret twin's progress is kept for operators and announced to nobody."""
        shown = {"phase": clean_text(progress.phase), "done": progress.done, "total": progress.total}
        with self._link.transaction() as connection:
            rows(connection, queries.SAVE_PROGRESS, {**_fence(job), "progress": to_jsonb(shown)})
            if not job.secret:
                _notify(connection, {"event": "progress", **_about(job), **shown})

    def complete(self, job: Job, result: JobResult) -> Completion:
        """Commit what an attempt found: runs, artifacts, verdict and, after the last job, the submission's status.

        Committing the same result twice (the answer to the first commit was lost) is no error.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written but evidence in `runner.stale_result`.
        """
        report = to_jsonb(result.report)
        with self._link.transaction() as connection:
            rows(connection, queries.LOCK_SUBMISSION, {"submission_id": job.submission_id})
            parameters = {
                **_fence(job),
                "verdict": result.verdict.value,
                "error": _text(result.error),
                "report": report,
                "build_ms": result.build_ns // 1_000_000,
                "eval_ms": result.eval_ns // 1_000_000,
            }
            finished = row(connection, queries.FINISH_JOB, parameters)
            if finished is not None:
                for run in result.runs:
                    _insert_run(connection, job, finished, run)
                for artifact in result.artifacts:
                    _insert_artifact(connection, job, artifact)
                return Completion(submission_done=_settle(connection, job, "done", {"verdict": result.verdict.value}))
            now = row(connection, queries.JOB_NOW, {"id": job.id})
            if now is not None and _is_committed(now, job, result):
                return Completion(submission_done=_is_settled(connection, job))
            rows(
                connection,
                queries.INSERT_STALE_RESULT,
                {**_fence(job), "verdict": result.verdict.value, "result": to_jsonb(_evidence(result))},
            )
        raise _stale(job, now)

    def fail(self, job: Job, *, error: str, report: Json | None) -> bool:
        """Record an infrastructure failure. True: the job is queued again, after a pause.

        False: that was the last of `max_attempts`, and the job is over with verdict `internal_error` (or is cancelled,
        if that was asked for meanwhile).

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        parameters = {
            "error": _text(error),
            "report": to_jsonb(report),
            "backoff_s": BACKOFF_S,
            "backoff_max_s": BACKOFF_MAX_S,
        }
        return self._give_up(job, queries.FAIL_JOB, parameters) is JobState.QUEUED

    def release(self, job: Job, *, reason: str) -> None:
        """Put a running job back into the queue at no cost (drain, lost slot).

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        self._give_up(job, queries.RELEASE_JOB, {"reason": _text(reason)})

    def cancelled(self, job: Job) -> None:
        """Record that a running job was asked to stop and has stopped.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written.
        """
        self._give_up(job, queries.CANCEL_JOB, {})

    def reclaim(self) -> int:
        """Put jobs with expired leases back into the queue; returns how many were taken back.

        That costs a job nothing, until it has happened MAX_RECLAIMS times: then it ends as `internal_error`.
        """
        taken = 0
        for expired in self._link.all(queries.EXPIRED_JOBS):
            with self._link.transaction() as connection:
                rows(connection, queries.LOCK_SUBMISSION, {"submission_id": expired["submission_id"]})
                parameters = {"id": expired["id"], "attempt": expired["attempt"], "max_reclaims": MAX_RECLAIMS}
                changed = row(connection, queries.RECLAIM_JOB, parameters)
                if changed is not None:
                    about = {"submission_id": expired["submission_id"], "job_id": expired["id"]}
                    _after_give_up(connection, changed, about)
                    taken += 1
        return taken

    def register_host(self, *, host: HostRecord) -> None:
        """Announce a daemon, or its new version and slots."""
        parameters = {
            "name": host.name,
            "version": host.version,
            "slots": to_jsonb(list(host.slots)),
            "draining": host.draining,
        }
        self._link.all(queries.REGISTER_HOST, parameters)

    def unregister_host(self, name: str) -> None:
        """Forget a daemon that stops."""
        self._link.all(queries.UNREGISTER_HOST, {"name": name})

    def sync_gpu_types(self, types: Sequence[tuple[str, str, Sequence[str], str]]) -> None:
        """Publish a registry: (name, vendor, aliases, description) each. Types of other hosts stay."""
        with self._link.transaction() as connection:
            # In one order everywhere, or two daemons that start together could block each other.
            for name, vendor, aliases, description in sorted(types, key=lambda entry: entry[0]):
                parameters = {"name": name, "vendor": vendor, "aliases": list(aliases), "description": description}
                rows(connection, queries.SYNC_GPU_TYPE, parameters)

    def listen(self, *, stop: threading.Event, timeout_s: float) -> bool:
        """Wait for a wake-up of the queue, on a connection of its own, at most `timeout_s` seconds.

        True: there may be work: notified, or connected only now, so that a notification may have been missed.
        False: nothing came, or `stop` was set.
        """
        fresh = not self._listener.connected
        with self._listener.open() as connection:
            if fresh:
                rows(connection, queries.LISTEN)
                return True
            deadline_s = time.monotonic() + timeout_s
            while not stop.is_set():
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    break
                # Exhausted at once: a suspended generator would keep the connection's lock.
                if list(connection.notifies(timeout=min(remaining_s, _LISTEN_SLICE_S), stop_after=1)):
                    return True
        return False

    # --- frontends ---------------------------------------------------------------------------------------------

    def submit(
        self,
        *,
        leaderboard: str | None,
        user_id: str,
        file_name: str,
        code: bytes,
        mode: str,
        gpu_types: Sequence[str] | None,
        user_name: str | None,
        priority: int = 0,
        idempotency_key: str | None = None,
    ) -> int:
        """Store a submission and its jobs; returns the submission's id.

        Raises:
            SubmissionError: refused; the message is for its author.
        """
        parameters = {
            "leaderboard": _text(leaderboard),
            "user_id": _text(user_id),
            "file_name": _text(file_name),
            "code": code,
            "mode": _text(mode),
            "gpu_types": None if gpu_types is None else [clean_text(name) for name in gpu_types],
            "user_name": _text(user_name),
            "priority": priority,
            "idempotency_key": _text(idempotency_key),
        }
        return int(_expect(self._link.one(queries.SUBMIT, parameters))["submission_id"])

    def enqueue(
        self, submission_id: int, *, mode: str, gpu_types: Sequence[str] | None = None, priority: int = 0
    ) -> int:
        """Add jobs to a submission that is stored already; returns how many.

        Raises:
            SubmissionError: refused, see `submit`.
            NotFoundError: no such submission.
        """
        parameters = {
            "submission_id": submission_id,
            "mode": _text(mode),
            "gpu_types": None if gpu_types is None else [clean_text(name) for name in gpu_types],
            "priority": priority,
        }
        return int(_expect(self._link.one(queries.ENQUEUE, parameters))["added"])

    def cancel(self, submission_id: int, user_id: str | None = None) -> int:
        """Cancel a submission's waiting jobs and ask its running ones to stop; returns how many jobs that were.

        Raises:
            NotFoundError: no such submission, or not one of `user_id`.
        """
        found = self._link.one(queries.CANCEL, {"submission_id": submission_id, "user_id": _text(user_id)})
        return int(_expect(found)["asked"])

    def submission(self, submission_id: int) -> SubmissionView:
        """Everything about a submission, secret output included.

        Raises:
            NotFoundError: no such submission, or one without jobs of ours.
        """
        parameters = {"submission_id": submission_id}
        with self._link.transaction() as connection:
            status = row(connection, queries.STATUS, parameters)
            if status is None:
                raise NotFoundError(f"submission {submission_id} does not exist or was never queued here")
            runs: dict[int, list[RunView]] = {}
            for found in rows(connection, queries.RUNS, parameters):
                runs.setdefault(found.pop("job_id"), []).append(_run_view(found))
            artifacts: dict[int, list[ArtifactLine]] = {}
            for found in rows(connection, queries.ARTIFACTS, parameters):
                artifacts.setdefault(found.pop("job_id"), []).append(ArtifactLine(**found))
            jobs = tuple(
                JobView(
                    **{
                        **found,
                        "mode": Mode(found["mode"]),
                        "state": JobState(found["state"]),
                        "verdict": _verdict(found["verdict"]),
                    },
                    runs=tuple(runs.get(found["id"], ())),
                    artifacts=tuple(artifacts.get(found["id"], ())),
                )
                for found in rows(connection, queries.JOBS, parameters)
            )
        return SubmissionView(status=_status_line(status), jobs=jobs)

    def queue(self, *, limit: int) -> Sequence[StatusLine]:
        """What runs, what waits and the newest of what is over, in this order."""
        return [_status_line(found) for found in self._link.all(queries.QUEUE, {"limit": limit})]

    def ranking(self, leaderboard: str, gpu_type: str | None = None) -> Sequence[RankingLine]:
        """The best score that counts of every user, per GPU type.

        Raises:
            NotFoundError: no such leaderboard.
        """
        return self._places(queries.RANKING, leaderboard, {"gpu_type": gpu_type})

    def personal(self, leaderboard: str, user_id: str) -> Sequence[RankingLine]:
        """All scores of a user that count; `rank` is among these, per GPU type.

        Raises:
            NotFoundError: no such leaderboard.
        """
        return self._places(queries.PERSONAL, leaderboard, {"user_id": user_id})

    def artifact(self, artifact_id: int) -> Artifact:
        """A kept file.

        Raises:
            NotFoundError: no such artifact, or it has expired.
        """
        found = self._link.one(queries.ARTIFACT, {"id": artifact_id})
        if found is None:
            raise NotFoundError(f"artifact {artifact_id} does not exist or has expired")
        return Artifact(**found)

    def hosts(self) -> Sequence[HostLine]:
        """The daemons that have announced themselves."""
        return [HostLine(**found) for found in self._link.all(queries.HOSTS)]

    def gpu_types(self) -> Sequence[GpuTypeLine]:
        """The GPU types that any daemon's registry knows."""
        return [
            GpuTypeLine(**{**found, "aliases": tuple(found["aliases"])}) for found in self._link.all(queries.GPU_TYPES)
        ]

    # --- boards ------------------------------------------------------------------------------------------------

    def create_board(
        self,
        *,
        name: str,
        deadline: datetime,
        task: Json,
        description: str,
        gpus: Sequence[str],
        templates: Mapping[str, str],
        extra: Json | None,
        creator_id: int = -1,
        forum_id: int = 0,
    ) -> int:
        """Publish a task; returns the leaderboard's id.

        Raises:
            BoardError: the name is taken or empty, or there is no GPU type.
        """
        _check_board(name, deadline, gpus)
        with self._link.transaction() as connection:
            parameters = {
                "name": name,
                "deadline": deadline,
                "task": to_jsonb(task),
                "creator_id": creator_id,
                "forum_id": forum_id,
                "description": clean_text(description),
            }
            created = row(connection, queries.INSERT_BOARD, parameters)
            if created is None:
                raise BoardError(
                    f"leaderboard {name!r} exists already; update it, delete it first, or choose another name"
                )
            _write_board_parts(connection, created["id"], gpus=gpus, templates=templates, extra=extra)
        return int(created["id"])

    def update_board(
        self,
        *,
        name: str,
        deadline: datetime,
        task: Json,
        description: str,
        gpus: Sequence[str],
        templates: Mapping[str, str],
        extra: Json | None,
        force: bool = False,
    ) -> int:
        """Publish a task anew under an existing name; returns the leaderboard's id.

        Raises:
            NotFoundError: no such leaderboard.
            BoardError: there are submissions and what they were measured with would change; `force` does it anyway.
        """
        _check_board(name, deadline, gpus)
        with self._link.transaction() as connection:
            board = _lock_board(connection, name)
            new = clean_json(task)
            changed = [key for key in _FROZEN_KEYS if isinstance(new, dict) and board["task"].get(key) != new.get(key)]
            if board["submissions"] and changed and not force:
                raise BoardError(
                    f"leaderboard {name!r} has {board['submissions']} submissions and {', '.join(changed)} would "
                    "change: old and new scores would not compare; force the update, or create another leaderboard"
                )
            parameters = {
                "id": board["id"],
                "deadline": deadline,
                "task": to_jsonb(task),
                "description": clean_text(description),
            }
            rows(connection, queries.UPDATE_BOARD, parameters)
            _write_board_parts(connection, board["id"], gpus=gpus, templates=templates, extra=extra)
        return int(board["id"])

    def delete_board(self, name: str, *, force: bool = False) -> None:
        """Remove a leaderboard with everything on it.

        Raises:
            NotFoundError: no such leaderboard.
            BoardError: it has submissions; `force` removes them too.
        """
        with self._link.transaction() as connection:
            board = _lock_board(connection, name)
            if board["submissions"] and not force:
                raise BoardError(
                    f"leaderboard {name!r} has {board['submissions']} submissions; force the deletion to lose them"
                )
            for query in (
                queries.DELETE_BOARD_RUNS,
                queries.DELETE_BOARD_SUBMISSIONS,
                queries.DROP_BOARD_TEMPLATES,
                queries.DELETE_BOARD,
            ):
                rows(connection, query, {"id": board["id"]})

    def boards(self) -> Sequence[BoardLine]:
        """All leaderboards, open ones first."""
        return [BoardLine(**{**found, "gpus": tuple(found["gpus"])}) for found in self._link.all(queries.BOARDS)]

    def board(self, name: str) -> BoardView:
        """A leaderboard with its task.

        Raises:
            NotFoundError: no such leaderboard.
        """
        with self._link.transaction() as connection:
            found = row(connection, queries.BOARD, {"name": name})
            if found is None:
                raise _no_board(name)
            templates = rows(connection, queries.BOARD_TEMPLATES, {"id": found["id"]})
        return BoardView(
            **{**found, "gpus": tuple(found["gpus"])},
            templates={template["lang"]: template["code"] for template in templates},
        )

    # --- inside ------------------------------------------------------------------------------------------------

    def _give_up(self, job: Job, query: Query, parameters: Mapping[str, Any]) -> JobState:
        """End an attempt without a result; the state the job is in then."""
        with self._link.transaction() as connection:
            rows(connection, queries.LOCK_SUBMISSION, {"submission_id": job.submission_id})
            changed = row(connection, query, {**_fence(job), **parameters})
            if changed is None:
                raise _stale(job, row(connection, queries.JOB_NOW, {"id": job.id}))
            _after_give_up(connection, changed, _about(job))
        return JobState(changed["state"])

    def _places(self, query: Query, leaderboard: str, parameters: Mapping[str, Any]) -> Sequence[RankingLine]:
        with self._link.transaction() as connection:
            found = rows(connection, query, {"leaderboard": leaderboard, **parameters})
            if not found and row(connection, queries.BOARD, {"name": leaderboard}) is None:
                raise _no_board(leaderboard)
        return [RankingLine(score_s=float(place.pop("score")), **place) for place in found]


def _fence(job: Job) -> dict[str, Any]:
    return {"id": job.id, "attempt": job.attempt}


def _about(job: Job) -> dict[str, Any]:
    return {"submission_id": job.submission_id, "job_id": job.id, "gpu_type": job.gpu_type, "secret": job.secret}


def _notify(connection: psycopg.Connection[Row], event: Mapping[str, Any]) -> None:
    rows(connection, queries.NOTIFY_EVENT, {"payload": json.dumps(event)})


def _settle(connection: psycopg.Connection[Row], job: Job, event: str, facts: Mapping[str, Any]) -> bool:
    parameters = {"submission_id": job.submission_id}
    done = bool(_expect(row(connection, queries.SETTLE, parameters))["done"])
    if not done:
        rows(connection, queries.MARK_PENDING, parameters)
    _notify(connection, {"event": event, **_about(job), **facts, "submission_done": done})
    return done


def _after_give_up(connection: psycopg.Connection[Row], changed: Row, about: Mapping[str, Any]) -> None:
    """What follows when a job left the state running without a result."""
    parameters = {"submission_id": about["submission_id"]}
    done = False
    if changed["state"] == JobState.QUEUED:
        rows(connection, queries.MARK_PENDING, parameters)
        rows(connection, queries.NOTIFY_QUEUE, {"gpu_types": changed["gpu_type"]})
    else:
        done = bool(_expect(row(connection, queries.SETTLE, parameters))["done"])
    _notify(connection, {"event": changed["state"], **about, "submission_done": done})


def _is_committed(now: Row, job: Job, result: JobResult) -> bool:
    """Whether this very result was written before: only the holder of an attempt can end it with a verdict."""
    return (now["state"], now["attempt"], now["verdict"]) == (JobState.DONE, job.attempt, result.verdict.value)


def _is_settled(connection: psycopg.Connection[Row], job: Job) -> bool:
    status = row(connection, queries.STATUS, {"submission_id": job.submission_id})
    return status is not None and bool(status["done"])


def _stale(job: Job, now: Row | None) -> StaleAttemptError:
    found = "it is gone" if now is None else f"it is {now['state']} at attempt {now['attempt']}"
    return StaleAttemptError(f"job {job.id}, attempt {job.attempt}: expected to be running still, but {found}")


def _evidence(result: JobResult) -> dict[str, Any]:
    return {
        "error": result.error,
        "report": result.report,
        "runs": [
            {
                "mode": run.mode,
                "passed": run.passed,
                "score_s": run.score_s,
                "result": run.result,
                "meta": run.meta,
                "system_info": run.system_info,
            }
            for run in result.runs
        ],
        "artifacts": [artifact.name for artifact in result.artifacts],
    }


def _insert_run(connection: psycopg.Connection[Row], job: Job, finished: Row, run: RunRecord) -> None:
    parameters = {
        "submission_id": job.submission_id,
        "started_at": finished["started_at"],
        "start_us": run.start_offset_ns // 1000,
        "end_us": run.end_offset_ns // 1000,
        "mode": clean_text(run.mode),
        "secret": finished["secret"],
        "runner": finished["gpu_type"],
        # repr is the shortest text that means this float; numeric keeps it exactly.
        "score": None if run.score_s is None else Decimal(repr(run.score_s)),
        "passed": run.passed,
        "compilation": to_jsonb(run.compilation),
        "meta": to_jsonb(run.meta),
        "result": to_jsonb(run.result),
        "system_info": to_jsonb(run.system_info),
    }
    written = _expect(row(connection, queries.INSERT_RUN, parameters))
    rows(connection, queries.LINK_RUN, {"run_id": written["id"], "job_id": job.id})


def _insert_artifact(connection: psycopg.Connection[Row], job: Job, artifact: Artifact) -> None:
    parameters = {
        "job_id": job.id,
        "name": clean_text(artifact.name),
        "media_type": clean_text(artifact.media_type),
        "data": artifact.data,
    }
    rows(connection, queries.INSERT_ARTIFACT, parameters)


def _check_board(name: str, deadline: datetime, gpus: Sequence[str]) -> None:
    if not name.strip() or name != clean_text(name):
        raise BoardError(f"leaderboard name {name!r}: expected visible text")
    if deadline.tzinfo is None:
        raise BoardError(f"leaderboard {name!r}: deadline {deadline} has no time zone; say UTC if you mean it")
    if not gpus:
        raise BoardError(f"leaderboard {name!r}: no GPU type; name at least one it is ranked on")
    if len(set(gpus)) != len(gpus):
        raise BoardError(f"leaderboard {name!r}: a GPU type is named twice in {', '.join(gpus)}")


def _lock_board(connection: psycopg.Connection[Row], name: str) -> Row:
    board = row(connection, queries.LOCK_BOARD, {"name": name})
    if board is None:
        raise _no_board(name)
    return board


def _no_board(name: str) -> NotFoundError:
    return NotFoundError(f"leaderboard {name!r} does not exist; `kernel-runner leaderboard list` shows those that do")


def _write_board_parts(
    connection: psycopg.Connection[Row],
    board_id: int,
    *,
    gpus: Sequence[str],
    templates: Mapping[str, str],
    extra: Json | None,
) -> None:
    rows(connection, queries.DROP_BOARD_GPUS, {"id": board_id, "gpus": list(gpus)})
    rows(connection, queries.INSERT_BOARD_GPUS, {"id": board_id, "gpus": list(gpus)})
    rows(connection, queries.DROP_BOARD_TEMPLATES, {"id": board_id})
    for lang, code in templates.items():
        parameters = {"id": board_id, "lang": clean_text(lang), "code": clean_text(code)}
        rows(connection, queries.INSERT_BOARD_TEMPLATE, parameters)
    harness = None if extra is None else extra.get("harness")
    rows(connection, queries.SAVE_BOARD_EXTRA, {"id": board_id, "extra": to_jsonb(extra), "harness": harness})


def _run_view(found: Row) -> RunView:
    return RunView(score_s=_float(found.pop("score")), **found)


def _status_line(found: Row) -> StatusLine:
    return StatusLine(
        **{
            **{key: value for key, value in found.items() if key != "score"},
            "modes": tuple(Mode(mode) for mode in found["modes"]),
            "gpu_types": tuple(found["gpu_types"]),
            "state": JobState(found["state"]),
            "verdict": _verdict(found["verdict"]),
            "progress": tuple(found["progress"] or ()),
            "score_s": _float(found["score"]),
        }
    )


def _verdict(word: str | None) -> Verdict | None:
    return None if word is None else Verdict(word)


def _float(number: Decimal | None) -> float | None:
    return None if number is None else float(number)


def _text(text: str | None) -> str | None:
    return None if text is None else clean_text(text)


def _expect(found: Row | None) -> Row:
    if found is None:
        raise RuntimeError("a statement that always returns a row returned none")
    return found
