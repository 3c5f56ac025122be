"""What the store hands out and takes in, as frozen records; pure.

Times are the database's, with time zone. Scores are seconds. Absent is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from runner.base.model import Claimed, Job, JobState, Json, Mode, Verdict

#: `runner.status` counts no further: a position of this means that at least so many are ahead, itself included.
POSITION_LIMIT: Final = 1001


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A claimed job that holds something this release makes no sense of."""

    claimed: Claimed
    #: Its description, for operators.
    cause: str


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What a claim brought, and how the host stands."""

    #: All of one GPU type and priority, best first.
    jobs: tuple[Job, ...]
    #: The host shall finish what runs and claims nothing.
    draining: bool
    drain_reason: str | None
    #: The host's row is there, does not say that it has stopped, and is not another instance's.
    registered: bool
    #: Leases, ends or starts are due, of any host, or a sweep is: reclaim.
    overdue: bool
    #: Live hosts that serve a GPU type of this one, itself included; None: not counted this time.
    rivals: int | None = None
    #: Taken as well, but fit only to be failed.
    unreadable: tuple[Unreadable, ...] = ()
    #: What the server's clock said, in seconds since 1970; None: not known.
    now_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class LeaseState:
    """What a heartbeat learned about one held job."""

    job_id: int
    attempt: int
    #: False: another attempt has it, or it is over; stop working on it.
    ours: bool
    cancel_requested: bool


@dataclass(frozen=True, kw_only=True)
class Reclaimed:
    """A job that was taken back from its holder: its lease had expired, or the holder knew nothing of it."""

    job_id: int
    #: None: a group of a batch.
    submission_id: int | None
    gpu_type: str
    secret: bool
    #: Queued again, or over.
    state: JobState
    submission_done: bool


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What became of a job whose attempt ended without a result."""

    #: Queued again, or over.
    state: JobState
    submission_done: bool


@dataclass(frozen=True, kw_only=True)
class Wakeup:
    """Why daemons should look at the queue now."""

    #: GPU types for which there may be work.
    gpu_types: frozenset[str] = frozenset()
    #: Hosts of which something is wanted: a running job is to stop, or they are to drain or not to drain any more.
    hosts: frozenset[str] = frozenset()
    #: Every listener should look, whatever the rest says.
    all_hosts: bool = False


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a committed result meant for its submission."""

    #: This was the last job: the final status is written.
    submission_done: bool


@dataclass(frozen=True, kw_only=True)
class HostRecord:
    """A daemon as it announces itself."""

    name: str
    version: str
    #: One object per slot: {"name", "gpu_type", "devices": [uuid, ...], "cpus": [number, ...]}.
    slots: Sequence[Json]
    #: Identity of the daemon's state directory: two daemons must not go by one name.
    instance: str
    #: Every name, aliases included, that a job may use for one of the slots.
    gpu_types: Sequence[str]
    #: Public key of its receipts; None: it signs none.
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class HostLine:
    """A daemon as others see it."""

    name: str
    version: str
    slots: Sequence[Json]
    draining: bool
    registered_at: datetime
    last_seen: datetime
    #: Seconds since `last_seen`, on the database's clock.
    silent_s: float
    #: Jobs it holds now.
    running: int
    #: Every name, aliases included, that a job may use for one of its slots.
    gpu_types: tuple[str, ...] = ()
    drain_reason: str | None = None
    #: When it said goodbye; None while it serves, or if it died.
    stopped_at: datetime | None = None
    #: As `HostKey`s.
    keys: Sequence[Json] = ()


def unused(slots: Iterable[Json]) -> list[str]:
    """Which of a host's slots are not used, and why: a sentence per reason."""
    names: dict[str, list[str]] = {}
    for slot in slots:
        if slot.get("quarantined"):
            names.setdefault(str(slot["quarantined"]), []).append(str(slot.get("name")))
    return [f"{', '.join(these)} not used: {why}" for why, these in names.items()]


@dataclass(frozen=True, kw_only=True)
class GpuTypeLine:
    """A GPU type that some daemon's registry knows."""

    name: str
    vendor: str
    aliases: tuple[str, ...]
    description: str
    #: Jobs waiting for it, under its name or an alias.
    queued: int


@dataclass(frozen=True, kw_only=True)
class QueueDepth:
    """What waits for one GPU type, by the name that the jobs use."""

    gpu_type: str
    jobs: int
    #: How long the oldest has waited, on the database's clock.
    oldest_s: float


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One row of `leaderboard.runs`; to a frontend's login a secret one has no more than `passed`."""

    id: int
    mode: str
    secret: bool
    passed: bool
    score_s: float | None
    start_time: datetime | None
    end_time: datetime | None
    result: Json | None
    compilation: Json | None
    meta: Json | None
    system_info: Json


@dataclass(frozen=True, kw_only=True)
class ArtifactLine:
    """A kept file, without its bytes."""

    id: int
    name: str
    media_type: str
    size_bytes: int
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class JobView:
    """One job with everything it wrote, secret output too, if the login may read that."""

    id: int
    gpu_type: str
    mode: Mode
    secret: bool
    state: JobState
    verdict: Verdict | None
    attempt: int
    host: str | None
    error: str | None
    progress: Json | None
    #: From here to `eval_ms` None to a frontend's login.
    failures: int | None = None
    priority: int | None = None
    cancel_requested: bool | None = None
    report: Json | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    build_ms: int | None = None
    eval_ms: int | None = None
    #: The job that it evaluates again.
    replaces: int | None = None
    #: None: its result counts. replaced, dropped or invalidated: it does not, for this reason.
    retired_as: str | None = None
    retired_reason: str | None = None
    #: Why attempts ended without a result, oldest first: {attempt, host, slot, kind, error, at}.
    causes: Sequence[Json] = ()
    runs: tuple[RunView, ...] = ()
    artifacts: tuple[ArtifactLine, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StatusLine:
    """A row of `runner.status`: one submission."""

    submission_id: int
    leaderboard: str
    user_id: str
    user_name: str | None
    file_name: str
    submission_time: datetime
    modes: tuple[Mode, ...]
    gpu_types: tuple[str, ...]
    priority: int
    state: JobState
    #: The gravest of its jobs', once all are over.
    verdict: Verdict | None
    done: bool
    #: KernelBot's word: pending, running, succeeded, failed, timed_out, hacked.
    job_status: str | None
    error: str | None
    #: 1 is next on its GPU type; POSITION_LIMIT stands for all places from there on.
    position: int | None
    #: Per running public job: {"gpu_type", "phase", "done", "total"}.
    progress: tuple[Json, ...]
    #: Best public score that counts.
    score_s: float | None
    queue_ms: int
    build_ms: int | None
    eval_ms: int | None
    started_at: datetime | None
    finished_at: datetime | None
    #: What happens now, as text for people: `queued`, `testing case 3 of 10`; None when all is over.
    phase: str | None = None
    #: The most claims that one of its jobs took.
    attempts: int = 0
    #: Why an attempt of a job that is not over yet ended without a result, for people.
    retry_reason: str | None = None
    #: When a job that waits after a failure may be claimed.
    retry_at: datetime | None = None
    #: How often an operator had it evaluated again.
    reruns: int = 0
    #: It is being evaluated again; score and ranking are those of the earlier evaluation.
    rerunning: bool = False
    #: What the score's time is worth, or without a score that of its public run; None: nothing was timed in public.
    timing: str | None = None
    #: The checker of the results: judge or in_process.
    correctness: str | None = None
    #: Why a time that passed does not rank, a sentence; None where it ranks, or is not there.
    unranked: str | None = None
    #: Since when no host has served a GPU type that it waits for; None: one does, or nothing waits.
    no_host_since: datetime | None = None
    #: Why an operator lets no host begin jobs of a GPU type that it waits for.
    paused: str | None = None


@dataclass(frozen=True, kw_only=True)
class ValidationLine:
    """What the task's script said of a submission on a GPU type, in its present version."""

    submission_id: int
    gpu_type: str
    contract_version: str
    #: completed or failed.
    status: str
    passed_shapes: int
    total_shapes: int
    fully_validated: bool
    geomean_sync_wall_speedup: float | None
    error: str | None
    checked_at: datetime


@dataclass(frozen=True, kw_only=True)
class Reaped:
    """How much was forgotten, and how many submissions without an open job were finished."""

    artifacts: int
    stale_results: int
    events: int
    hosts: int
    shares: int
    settled: int = 0
    reports: int = 0
    superseded: int = 0
    code: int = 0
    #: Of idempotency.
    keys: int = 0
    #: Scores of other programs that were copied.
    scores: int = 0
    #: Rows of batches, and texts.
    batches: int = 0


@dataclass(frozen=True, kw_only=True)
class SubmissionView:
    """A submission with all its jobs and runs; holds secret output, so it is for operators."""

    status: StatusLine
    jobs: tuple[JobView, ...]
