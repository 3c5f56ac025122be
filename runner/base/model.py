"""The words of the project as records and enums; pure, imported by every layer, imports none.

Records are frozen and keyword-only. Absent is None. Durations are integer nanoseconds. Wall-clock times come from
the database; what happens inside a job is an offset from the moment it was claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

#: JSON object as it is stored in a jsonb column.
Json = Mapping[str, Any]

#: Stands for every time from here on, infinity included: PostgreSQL has years that Python has not.
NEVER: Final = datetime(9999, 12, 30, tzinfo=UTC)
#: The same for every time up to here.
ALWAYS: Final = datetime(1, 1, 2, tzinfo=UTC)


class Mode(StrEnum):
    """What a job is asked to do with a submission."""

    TEST = "test"
    BENCHMARK = "benchmark"
    PROFILE = "profile"
    LEADERBOARD = "leaderboard"
    #: The secret chain only, unscored.
    PRIVATE = "private"
    #: The task's own script beside a ranked submission; ordered by operators alone (runner.validate).
    VALIDATION = "validation"
    #: The secret run of a ranked submission, whose times count; ordered by operators alone (runner.final).
    FINAL = "final"

    @property
    def ranked(self) -> bool:
        """Whether the times count."""
        return self in {Mode.LEADERBOARD, Mode.PRIVATE, Mode.VALIDATION, Mode.FINAL}


class Verdict(StrEnum):
    """How a job ended; a closed set. Never derived from an exit code alone."""

    ACCEPTED = "accepted"
    WRONG_ANSWER = "wrong_answer"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    #: Cheating was detected.
    REJECTED = "rejected"
    #: Bad submission or bad task: a clear message, nothing ran.
    INVALID = "invalid"
    #: Our fault; the only verdict that is retried.
    INTERNAL_ERROR = "internal_error"


class TimingAssurance(StrEnum):
    """How far a time can be trusted, from the least to the most."""

    #: On the word of the submission's own process alone.
    CLAIMED = "claimed"
    #: A claim that the judge's clock bounds, with the host's work in its span: it says less about the device.
    AUDITED_HOST = "audited_host"
    #: By the judge's own clock.
    MEASURED = "measured"
    #: A claim that the judge's clock bounds to within the tolerance that the leaderboard asks for.
    AUDITED = "audited"

    def satisfies(self, demanded: TimingAssurance) -> bool:
        """Whether it is at least what is demanded."""
        order = tuple(TimingAssurance)
        return order.index(self) >= order.index(demanded)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What a leaderboard demands of a time before it ranks; the defaults are those of a board that says nothing."""

    timing: TimingAssurance = TimingAssurance.CLAIMED
    #: A claim is audited where the judge's clock bounds it to within this part of it.
    tolerance: float = 0.1


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """What a profile captures. All but the benchmark is for Nsight Compute; see `Capture` of the harness."""

    #: The only benchmark that is profiled, counted from 0; None: all are.
    benchmark: int | None = None
    kernel: str | None = None
    kernel_base: str = "function"
    launches: int = 10


class JobState(StrEnum):
    """Where a job stands; says nothing about its verdict."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What a claimed job is known by; `attempt` is the fencing token of every later write."""

    id: int
    attempt: int
    #: None: a group of a batch, a validation, or an evaluation of a final.
    submission_id: int | None
    gpu_type: str
    secret: bool

    @property
    def submission(self) -> int:
        """The id of the submission, for what concerns no group.

        Raises:
            ValueError: it is a group.
        """
        if self.submission_id is None:
            raise ValueError(f"job {self.id} is a group of a batch and has no submission")
        return self.submission_id

    @property
    def key(self) -> tuple[int, int]:
        """Id and attempt: what a claim of it is known by."""
        return self.id, self.attempt

    @property
    def about(self) -> Json:
        """The fields that every event has of it."""
        return {
            "submission_id": self.submission_id,
            "job_id": self.id,
            "gpu_type": self.gpu_type,
            "secret": self.secret,
        }


@dataclass(frozen=True, kw_only=True)
class Job(Claimed):
    """A claimed job: `SubmissionJob`, `GroupJob` or `ValidationJob`."""

    mode: Mode
    user_id: str
    #: What is to be evaluated, as stored.
    task: Json
    #: Infrastructure failures so far.
    failures: int
    #: Or its start time.
    created_at: datetime
    started_at: datetime
    #: A slot of this host that has just failed it, to be avoided if there is another.
    avoid_slot: str | None = None


@dataclass(frozen=True, kw_only=True)
class SubmissionJob(Job):
    """The job of a submission; `task` is `leaderboard.leaderboard.task` (parse it with `runner.task_format`)."""

    leaderboard: str
    #: The name the user gave the file, e.g. `fast.py`; inside the container it is always the task's @SUBMISSION@ name.
    file_name: str
    code: bytes
    #: What `runner.yml` said (see `runner.task_format`), or None for a board that KernelBot made.
    extra: Json | None
    #: The board's secret seed. Reaches only the judge, never an in-process eval (one is derived per job).
    secret_seed: int = field(repr=False)
    #: Of a profile.
    options: ProfileOptions = field(default_factory=ProfileOptions)
    #: What its leaderboard demanded when it was claimed.
    demand: Demand = field(default_factory=Demand)


@dataclass(frozen=True, kw_only=True)
class FinalJob(SubmissionJob):
    """An evaluation of a submission for a final, which is no job of that submission."""

    #: The submission.
    validates: int
    final_id: int
    round: int

    @property
    def submission(self) -> int:
        """The id of the submission."""
        return self.validates

    @property
    def about(self) -> Json:
        """The fields that every event has of it, and the submission."""
        return {**super().about, "validates": self.validates}


@dataclass(frozen=True, kw_only=True)
class GroupJob(Job):
    """A group of a batch; `task` is a reference, settings and candidates, each with the id of its item."""

    batch_id: int

    @property
    def about(self) -> Json:
        """The fields that every event has of it, and its batch."""
        return {**super().about, "batch_id": self.batch_id}


@dataclass(frozen=True, kw_only=True)
class ValidationJob(Job):
    """A validation of a submission, which is no job of that submission; `task` is as for one that is."""

    #: The submission.
    validates: int
    leaderboard: str
    file_name: str
    code: bytes
    extra: Json | None

    @property
    def about(self) -> Json:
        """The fields that every event has of it, and the submission."""
        return {**super().about, "validates": self.validates}


@dataclass(frozen=True, kw_only=True)
class Device:
    """One physical accelerator."""

    uuid: str
    name: str
    vendor: str
    index: int
    pci_address: str | None = None
    #: Its PCI id, `vendor:device`, e.g. `10de:2330`; OEM boards may have names of their own.
    pci_id: str | None = None
    #: Which part of a divided device it is (MIG profile `1g.10gb`, compute partition `CPX`); None: a whole one.
    partition: str | None = None
    numa_node: int | None = None
    #: Device nodes a container needs for it, e.g. `/dev/kfd` and `/dev/dri/renderD128` (AMD).
    nodes: tuple[str, ...] = ()
    #: Numeric groups whose members alone may open one of these nodes.
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The capacity to run one job at a time: a set of devices plus a set of processor cores."""

    name: str
    gpu_type: str
    devices: tuple[Device, ...]
    #: Logical CPU numbers for the container's cpuset; never empty.
    cpus: tuple[int, ...]
    numa_node: int | None = None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a running job is; for `runner.status` and NOTIFY."""

    #: build, test, benchmark, leaderboard or profile.
    phase: str
    done: int
    #: Cases of the phase; 0: only the program knows.
    total: int
    #: Where it runs; None: not known.
    slot: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One row of `leaderboard.runs`: one mode's execution inside a job.

    `start_offset_ns` and `end_offset_ns` count from the job's `started_at`; the store turns them into database time.
    """

    #: test, benchmark, leaderboard or profile.N
    mode: str
    start_offset_ns: int
    end_offset_ns: int
    passed: bool
    #: Seconds; only of a passed `leaderboard` run of a leaderboard job, and not of a public one that may not rank.
    score_s: float | None
    compilation: Json | None
    meta: Json
    result: Mapping[str, str]
    system_info: Json

    def __post_init__(self) -> None:
        if self.score_s is not None and not (self.passed and self.mode == "leaderboard"):
            raise ValueError(f"run {self.mode!r}: a score needs a passed leaderboard run, found passed={self.passed}")


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file kept for a while with a job: a profile trace, a full log."""

    name: str
    media_type: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """A statement, in the exact text that was signed, and who signed it; `runner.base.receipts` reads and checks it."""

    statement: str
    #: The host's public key and the signature, in hexadecimal.
    key: str
    signature: str


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What one attempt found; the store commits it in one transaction, if the attempt is still ours."""

    verdict: Verdict
    runs: tuple[RunRecord, ...]
    #: A sentence for the submission's author (or the operator, for internal_error); None when accepted.
    error: str | None
    #: Goes to `runner.job.report`: phases, outcome, assurance, test cases, versions.
    report: Json
    #: Time spent in the container before the first run (start, imports, compilation), and in the runs themselves.
    build_ns: int
    eval_ns: int
    artifacts: tuple[Artifact, ...] = field(default=())
    #: Of a group: what was found of each item, with its `id`. An item that is left out is evaluated again.
    items: tuple[Json, ...] = field(default=())
    #: Of an accepted ranked job, once its host has signed it.
    receipt: Receipt | None = None

    def __post_init__(self) -> None:
        if self.verdict is Verdict.ACCEPTED and self.error is not None:
            raise ValueError(f"an accepted job has no error, found {self.error!r}")
        if self.verdict is not Verdict.ACCEPTED and not self.error:
            raise ValueError(f"a job with verdict {self.verdict} needs a sentence that says why")
