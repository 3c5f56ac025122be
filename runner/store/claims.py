"""Who works on what: claims and the leases that come of them. Called by the daemon's loop and its lease keeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg

from runner.model import Job, JobState, Mode
from runner.store import queries
from runner.store.base import Base, expect
from runner.store.connection import Row, row, rows
from runner.store.records import Claims, LeaseState, Reclaimed

#: A job whose lease expired so often is taken to be what kills its daemons.
MAX_RECLAIMS: Final = 5


class Claiming(Base):
    """The part of a store that hands out jobs and takes them back."""

    def claim(self, *, host: str, slots: Mapping[str, int], lease_s: float, at_most: int | None = None) -> Claims:
        """Take the best waiting jobs of one GPU type with free slots, as many as there are free slots for it.

        `slots` maps GPU types, aliases included, to free slots; `at_most` bounds the jobs in all. The answer also says
        how the host stands, whether there was a job or not.
        """
        free = {gpu_type: count for gpu_type, count in slots.items() if count > 0}

        def take(connection: psycopg.Connection[Row]) -> Claims:
            flags = expect(row(connection, queries.CLAIM_FLAGS, {"host": host}))
            jobs: list[Job] = []
            gpu_types = list(free)
            while gpu_types and not flags["draining"] and (at_most is None or len(jobs) < at_most):
                claimed = row(connection, queries.CLAIM, {"gpu_types": gpu_types, "host": host, "lease_s": lease_s})
                if claimed is None:
                    break
                job = Job(**{**claimed, "mode": Mode(claimed["mode"])})
                rows(connection, queries.MARK_RUNNING, {"submission_id": job.submission_id})
                jobs.append(job)
                gpu_types = [job.gpu_type] if len(jobs) < free[job.gpu_type] else []
            return Claims(jobs=tuple(jobs), **flags)

        return self._link.run(take)

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

    def reclaim(self) -> Sequence[Reclaimed]:
        """Put jobs with expired leases back into the queue.

        That costs a job nothing, until it has happened MAX_RECLAIMS times: then it ends as `internal_error`.
        """
        taken: list[Reclaimed] = []
        for expired in self._link.all(queries.EXPIRED_JOBS):
            parameters = {"id": expired["id"], "attempt": expired["attempt"], "max_reclaims": MAX_RECLAIMS}
            with self._link.transaction() as connection:
                changed = _take_back(connection, expired["submission_id"], queries.RECLAIM_JOB, parameters)
            taken.extend(changed)
        return taken

    def recover(self, *, host: str, keep: Sequence[tuple[int, int]]) -> int:
        """Put every job that runs in the name of this host back into the queue, except (job id, attempt) in `keep`.

        For a daemon that was started again, or whose claim was never answered; it costs the jobs nothing. Returns how
        many they were. Must not run beside a claim of the same host.
        """
        released = 0
        kept = set(keep)
        for held in self._link.all(queries.HELD_JOBS, {"host": host}):
            if (held["id"], held["attempt"]) in kept:
                continue
            parameters = {"id": held["id"], "attempt": held["attempt"], "reason": f"host {host} knew nothing of it"}
            with self._link.transaction() as connection:
                released += len(_take_back(connection, held["submission_id"], queries.RELEASE_JOB, parameters))
        return released

    def reserve(
        self, *, host: str, gpu_types: Sequence[str], smaller: Sequence[str], waited_s: float, hold_s: float
    ) -> str | None:
        """Ask for devices to be kept free for a job of these GPU types; returns the job's type, or None.

        A job is due when it has waited `waited_s` seconds, or when its priority is above every waiting job of the types
        in `smaller`, which would run on its devices meanwhile. A reservation of ours lasts `hold_s` seconds and is
        renewed as long as its job waits; a job that another live host has reserved is passed over.
        """
        parameters = {
            "host": host,
            "gpu_types": list(gpu_types),
            "smaller": list(smaller),
            "waited_s": waited_s,
            "hold_s": hold_s,
        }
        found = self._link.one(queries.RESERVE, parameters)
        return None if found is None else str(found["gpu_type"])


def _take_back(
    connection: psycopg.Connection[Row], submission_id: int, query: queries.Query, parameters: Mapping[str, Any]
) -> Sequence[Reclaimed]:
    rows(connection, queries.LOCK_SUBMISSION, {"submission_id": submission_id})
    changed = row(connection, query, parameters)
    if changed is None:
        return ()
    done = False
    if changed["state"] == JobState.QUEUED:
        rows(connection, queries.MARK_PENDING, {"submission_id": submission_id})
    else:
        done = bool(expect(row(connection, queries.SETTLE, {"submission_id": submission_id}))["done"])
    return (
        Reclaimed(
            job_id=parameters["id"],
            submission_id=submission_id,
            gpu_type=changed["gpu_type"],
            secret=changed["secret"],
            state=JobState(changed["state"]),
            submission_done=done,
        ),
    )
