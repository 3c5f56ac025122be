"""Claims, and the leases that they give."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from runner.base.model import (
    Claimed,
    Demand,
    FinalJob,
    GroupJob,
    Job,
    Mode,
    ProfileOptions,
    SubmissionJob,
    TimingAssurance,
    ValidationJob,
)
from runner.store.base import Base, text_array, typed
from runner.store.connection import Row
from runner.store.queries import QUERIES
from runner.store.records import Claims, LeaseState, Reclaimed, Unreadable
from runner.store.session import Unloadable

#: What a claim says of the host, in every row, and of a job.
_STANDING: Final = ("draining", "drain_reason", "registered", "overdue", "rivals", "now_s")
_SUBMISSION_JOB: Final = tuple(field.name for field in fields(SubmissionJob) if field.name != "demand")
_ANY_JOB: Final = tuple(field.name for field in fields(Job))
#: A claim waits for no lock. Its connection leads nowhere if it is not answered within this; after a minute of silence
#: another daemon may take the host's name.
CLAIM_ANSWER_S: Final = 20.0
#: A heartbeat that is not answered within this part of a lease is sent again, on another connection.
_ANSWER: Final = 1 / 5
_ANSWER_MIN_S: Final = 1.0
_ANSWER_MAX_S: Final = 15.0


class Claiming(Base):
    """The part of a store that hands out jobs and takes them back."""

    def claim(
        self,
        *,
        host: str,
        slots: Mapping[str, int],
        lease_s: float,
        instance: str | None = None,
    ) -> Claims:
        """Take the best waiting jobs of one GPU type and priority, at most as many as the type has free slots.

        `slots` maps GPU types, aliases included, to free slots. Of types whose best jobs have the same priority the one
        named first is served. The answer also says how the host stands, whether there was a job or not. If another
        `instance` goes by the host's name, there is none.

        A job that cannot be read spoils no other: it comes as `unreadable`, and must be failed.

        When this raises, the server may have committed the claim all the same: `recover` before the next one.
        """
        parameters = {
            "host": host,
            "gpu_types": text_array(slots),
            "free": text_array(map(str, slots.values())),
            "lease_s": lease_s,
            "instance": instance,
        }
        answer = self._link.taken(QUERIES["claim"], parameters, answer_s=CLAIM_ANSWER_S)
        standing = {name: answer[0][name] for name in _STANDING}
        taken = [_job(row) for row in answer if row["id"] is not None]
        return Claims(
            jobs=tuple(job for job in taken if isinstance(job, Job)),
            unreadable=tuple(job for job in taken if isinstance(job, Unreadable)),
            **standing,
        )

    def take_check(self, *, host: str, gpu_types: Iterable[str], instance: str) -> SubmissionJob | None:
        """A job that waits, for a check of its submission that needs no slot; None: there is none.

        It is not claimed. It is as its next claim would give it, for `complete_waiting`, and is given to no other host.
        Waits for no lock.
        """
        parameters = {"host": host, "gpu_types": text_array(gpu_types), "instance": instance}
        answer = self._link.taken(QUERIES["take_check"], parameters, answer_s=CLAIM_ANSWER_S)
        job = _job(answer[0]) if answer else None
        # A claim tells what is unreadable.
        return job if isinstance(job, SubmissionJob) else None

    def heartbeat(
        self, *, host: str, lease_s: float, held: Sequence[tuple[int, int]], instance: str | None = None
    ) -> Sequence[LeaseState]:
        """Renew the leases on `held` (job id, attempt) for `lease_s` seconds and show that the host is alive.

        Waits for no lock: a job that another transaction holds keeps its lease as it is until the next heartbeat.
        If another `instance` goes by the host's name, nothing is renewed and nothing is ours.

        Raises:
            DatabaseUnavailableError: among others, no answer within a fifth of a lease, so that there is time for
                another heartbeat on another connection.
        """
        ids, attempts = _columns(held)
        parameters = {"host": host, "lease_s": lease_s, "ids": ids, "attempts": attempts, "instance": instance}
        answer_s = min(_ANSWER_MAX_S, max(_ANSWER_MIN_S, _ANSWER * lease_s))
        return [LeaseState(**record) for record in self._link.all(QUERIES["heartbeat"], parameters, answer_s=answer_s)]

    def reclaim(self) -> Sequence[Reclaimed]:
        """Put jobs with expired leases back into the queue, a hundred at a time.

        That costs a job nothing, until it has happened `max_lost_leases` times: then it ends as `internal_error`.
        """
        return [Reclaimed(**typed(row)) for row in self._link.all(QUERIES["reclaim"])]

    def recover(
        self, *, host: str, keep: Sequence[tuple[int, int]], died: bool = False, instance: str | None = None
    ) -> Sequence[Reclaimed]:
        """Put every job that runs in the name of this host back into the queue, except (job id, attempt) in `keep`.

        For a daemon whose claim was never answered: that costs the jobs nothing. Or whose earlier process `died`: maybe
        it was one of them, so it counts as for `reclaim`. None, if another `instance` goes by the host's name. Must not
        run beside a claim of the same host.
        """
        ids, attempts = _columns(keep)
        parameters = {"host": host, "ids": ids, "attempts": attempts, "died": died, "instance": instance}
        return [Reclaimed(**typed(row)) for row in self._link.all(QUERIES["recover"], parameters)]


def _job(claimed: Row) -> Job | Unreadable:
    own = {name: claimed[name] for name in _SUBMISSION_JOB}
    for name, value in own.items():
        if isinstance(value, Unloadable):
            return _unreadable(own, f"{name}: {value.cause}")
    try:
        own["mode"] = Mode(own["mode"])
        if own["mode"] is Mode.VALIDATION:
            return _validation(own)
        if own["submission_id"] is None and own["mode"] is not Mode.FINAL:
            return _group(own)
        own["demand"] = _demand(claimed["timing"], claimed["tolerance"])
        own["options"] = ProfileOptions(**own["options"] or {})
        return FinalJob(**{**own, **own["task"]}) if own["mode"] is Mode.FINAL else SubmissionJob(**own)
    except (ValueError, TypeError) as error:
        return _unreadable(own, str(error))


@functools.lru_cache(maxsize=64)
def _demand(timing: str, tolerance: float) -> Demand:
    return Demand(timing=TimingAssurance(timing), tolerance=tolerance)


def _group(own: Mapping[str, Any]) -> GroupJob:
    """A claimed group of a batch.

    Raises:
        ValueError: it is of a kind that this release does not know.
    """
    task = own["task"]
    if not isinstance(task, Mapping) or not task.get("kind") or not task.get("reference"):
        raise ValueError("it is a group that this release cannot evaluate")
    group = {key: value for key, value in task.items() if key != "batch_id"}
    return GroupJob(**{**{name: own[name] for name in _ANY_JOB}, "task": group, "batch_id": task["batch_id"]})


def _validation(own: Mapping[str, Any]) -> ValidationJob:
    """A claimed validation; its task names the submission."""
    values = {name: own[name] for name in (*_ANY_JOB, "leaderboard", "file_name", "code", "extra")}
    return ValidationJob(**{**values, "task": own["task"]["task"], "validates": own["task"]["validates"]})


def _unreadable(row: Mapping[str, Any], cause: str) -> Unreadable:
    ids = {name: row[name] for name in ("id", "attempt", "submission_id", "gpu_type", "secret")}
    return Unreadable(claimed=Claimed(**ids), cause=cause)


def _columns(held: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [job_id for job_id, _ in held], [attempt for _, attempt in held]
