"""What the queue promises, as a model in memory: one thread, no database, no clock.

The state-machine test holds the real queue against it. The model takes ids and turns from the database and predicts
everything else: who gets which job, what every write does, what is refused as stale, and what a submission's readers
see after each step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from runner.base.model import JobState, Mode, Verdict
from tests.chaos import script
from tests.chaos.script import Ended, final_status

#: After this many, a claim whose answer was lost counts as a lost lease.
MAX_UNANSWERED = 3
#: A job ends that has failed, or lost its lease, this often.
MAX_ATTEMPTS = 3
MAX_RECLAIMS = 5
OPEN = (JobState.QUEUED, JobState.RUNNING)


@dataclass(kw_only=True, repr=False)
class ModelJob:
    """One job."""

    id: int
    submission: int
    user: str
    gpu_type: str
    mode: Mode
    secret: bool
    priority: int
    turn: int
    state: JobState = JobState.QUEUED
    verdict: Verdict | None = None
    attempt: int = 0
    failures: int = 0
    reclaims: int = 0
    unanswered: int = 0
    owner: str | None = None
    cancel_requested: bool = False
    #: Not claimed before its pause is over.
    paused: bool = False
    #: Secret, and its public job is not over: not claimed.
    after_public: bool = False
    #: Where it failed last. With a slot: no other host can have it, so that host runs it on another slot if it can.
    avoid_host: str | None = None
    avoid_slot: str | None = None
    #: Not claimed by that host.
    avoiding: bool = False
    expired: bool = False
    #: A host was given its submission while it waited.
    checked: bool = False
    replaces: int | None = None
    retired_as: str | None = None
    #: Score of a scored row.
    score: float | None = None
    #: The last job of its key that has results: what they say counts.
    rows: tuple[script.Row, ...] = ()
    superseded: int = 0
    evidence: int = 0

    def __repr__(self) -> str:
        return f"job {self.id} ({self.state}, attempt {self.attempt})"

    @property
    def open(self) -> bool:
        """Whether it waits or runs."""
        return self.state in OPEN

    @property
    def key(self) -> tuple[int, str, Mode, bool]:
        """What it evaluates."""
        return self.submission, self.gpu_type, self.mode, self.secret

    @property
    def line(self) -> tuple[str, int]:
        """The class in which it waits."""
        return self.gpu_type, self.priority

    def speaks(self) -> bool:
        """Whether the final words depend on it."""
        return self.retired_as in (None, "invalidated")

    def leave(self, state: JobState, verdict: Verdict | None = None) -> None:
        """Stop running."""
        self.state, self.verdict, self.owner, self.expired = state, verdict, None, False


@dataclass(kw_only=True)
class ModelSubmission:
    """One submission as its readers see it."""

    id: int
    user: str
    done: bool = False
    status: str = "active"
    job_status: str = "pending"


@dataclass(kw_only=True)
class ModelHost:
    """One daemon."""

    name: str
    draining: bool = False
    #: How many daemons have gone by the name before this one.
    takeovers: int = 0

    @property
    def instance(self) -> str:
        """Who goes by the name."""
        return self.was(self.takeovers)

    def was(self, number: int) -> str:
        """Who was the name's owner after so many takeovers."""
        return f"instance {number} of {self.name}"


@dataclass
class Queue:
    """All of it."""

    hosts: dict[str, ModelHost] = field(default_factory=dict)
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    submissions: dict[int, ModelSubmission] = field(default_factory=dict)
    banned: set[str] = field(default_factory=set)
    #: (GPU type, priority) -> the highest turn claimed.
    clock: dict[tuple[str, int], int] = field(default_factory=dict)

    def of(self, submission: int) -> list[ModelJob]:
        """The jobs of a submission, oldest first."""
        return [job for job in self.jobs.values() if job.submission == submission]

    def running(self, owner: str | None = None) -> list[ModelJob]:
        """Jobs that run, on one host or on all."""
        return [
            job for job in self.jobs.values() if job.state is JobState.RUNNING and (owner is None or job.owner == owner)
        ]

    def waiting(self) -> list[ModelJob]:
        """Jobs that wait."""
        return [job for job in self.jobs.values() if job.state is JobState.QUEUED]

    def over(self) -> list[ModelJob]:
        """Jobs that are over."""
        return [job for job in self.jobs.values() if not job.open]

    # --- what frontends and operators do -------------------------------------------------------------------------

    def add(self, jobs: Iterable[ModelJob]) -> None:
        """Jobs were made."""
        for job in jobs:
            self.jobs[job.id] = job
            self._look_alive(job.submission)

    def enqueue_refusal(self, submission: int, gpu_types: Sequence[str], mode: Mode) -> str | None:
        """The error that an enqueue meets, if any."""
        jobs = [job for job in self.of(submission) if job.open]
        reruns = [job for job in jobs if job.replaces is not None]
        if self.submissions[submission].done or (reruns and len(reruns) == len(jobs)):
            return "KR016"
        if self.submissions[submission].user in self.banned:
            return "KR010"
        return "KR017" if any(job.mode is mode and job.gpu_type in gpu_types for job in jobs) else None

    def cancel(self, submission: int, *, by_author: bool = False) -> int:
        """Cancel what waits, ask what runs; an author only what an author ordered. How many jobs that were."""
        asked = [
            job
            for job in self.of(submission)
            if job.open and not job.cancel_requested and not (by_author and job.replaces is not None)
        ]
        for job in asked:
            job.cancel_requested = True
            if job.state is JobState.QUEUED:
                job.leave(JobState.CANCELLED)
        if any(job.state is JobState.CANCELLED for job in asked):
            self._settle(submission)
        return len(asked)

    def again(self, submission: int) -> list[ModelJob]:
        """The finished jobs that a rerun of a submission would replace."""
        found = []
        for jobs in self._groups(submission).values():
            if not any(job.open for job in jobs):
                latest = {job.secret: job for job in jobs if job.speaks()}
                found += [latest[secret] for secret in sorted(latest)]
        return found

    def rerun(self, submission: int) -> None:
        """New jobs were made, which will replace old ones."""
        self.submissions[submission].done = False
        self._look_alive(submission)

    def invalidate(self, submission: int) -> int:
        """Take what counts out of the ranking; how many jobs that were."""
        counting = [job for job in self.of(submission) if job.state is JobState.DONE and job.retired_as is None]
        for job in counting:
            _retire(job, "invalidated")
        if counting:
            self._settle(submission)
        return len(counting)

    # --- what daemons do -----------------------------------------------------------------------------------------

    def claimable(self, host: str, slots: Mapping[str, int]) -> list[ModelJob]:
        """What a host gets: jobs of the best class that it may serve, of the type named first among equals."""
        if self.hosts[host].draining:
            return []
        line = [job for job in self.jobs.values() if slots.get(job.gpu_type, 0) > 0 and self._may_claim(job, host)]
        if not line:
            return []
        best = min(line, key=lambda job: (-job.priority, list(slots).index(job.gpu_type)))
        line = sorted((job for job in line if job.line == best.line), key=lambda job: (job.turn, job.id))
        return line[: slots[best.gpu_type]]

    def claim(self, host: str, taken: Sequence[ModelJob]) -> None:
        """A host got these."""
        for job in taken:
            job.state, job.owner, job.expired = JobState.RUNNING, host, False
            job.attempt += 1
            self.clock[job.line] = max(job.turn, self.clock.get(job.line, 0))
            self._look_alive(job.submission)

    def checkable(self, host: str) -> ModelJob | None:
        """The job that a host is given for a check: the next that no host was given, of a class with claims."""
        line = [job for job in self.jobs.values() if self._may_claim(job, host) and job.line in self.clock]
        line = [job for job in line if not job.checked and not (job.secret and job.mode is Mode.LEADERBOARD)]
        line = [] if self.hosts[host].draining else line
        return min(line, key=lambda job: (-job.priority, job.turn, job.id), default=None)

    def complete_waiting(self, host: str, job_id: int, attempt: int, verdict: Verdict) -> bool | None:
        """A result of a check; whether that was the submission's last job. None: the job did not wait for it."""
        job = self.jobs[job_id]
        if job.state is not JobState.QUEUED or job.paused or job.after_public or job.attempt + 1 != attempt:
            return None
        job.state, job.owner = JobState.RUNNING, host
        job.attempt += 1
        return self.complete(job_id, verdict, 1e-6)

    def heartbeat(self, host: str, held: Sequence[tuple[int, int]]) -> list[tuple[int, bool, bool]]:
        """(job id, still ours, asked to stop) for each."""
        answers = []
        for job_id, attempt in held:
            job = self.jobs[job_id]
            ours = job.state is JobState.RUNNING and job.attempt == attempt and job.owner == host
            if ours:
                job.expired = False
            answers.append((job_id, ours, ours and job.cancel_requested))
        return answers

    def is_current(self, job_id: int, attempt: int) -> bool:
        """Whether a write of this attempt counts."""
        job = self.jobs[job_id]
        return job.state is JobState.RUNNING and job.attempt == attempt

    def complete(self, job_id: int, verdict: Verdict, score: float) -> bool:
        """A result of the current attempt; whether that was the submission's last job."""
        job = self.jobs[job_id]
        job.leave(JobState.DONE, verdict)
        job.rows = script.rows(job.mode, verdict)
        job.score = score if any(row.scored for row in job.rows) else None
        return self._settle(job.submission)

    def fail(self, job_id: int, slot: str) -> bool:
        """An infrastructure failure of the current attempt."""
        job = self.jobs[job_id]
        host = job.owner
        job.failures += 1
        if job.cancel_requested:
            job.leave(JobState.CANCELLED)
        elif job.failures < MAX_ATTEMPTS:
            self._wait_again(job)
            job.paused = True
            elsewhere = any(other.name != host and not other.draining for other in self.hosts.values())
            job.avoiding, job.avoid_host, job.avoid_slot = elsewhere, host, None if elsewhere else slot
        else:
            job.leave(JobState.DONE, Verdict.INTERNAL_ERROR)
        return self._settle(job.submission)

    def give_back(self, job_id: int) -> bool:
        """The current attempt ends without a result, at no cost."""
        job = self.jobs[job_id]
        if job.cancel_requested:
            job.leave(JobState.CANCELLED)
        else:
            self._wait_again(job)
        return self._settle(job.submission)

    def cancelled(self, job_id: int) -> bool:
        """The current attempt has stopped, as it was asked to."""
        job = self.jobs[job_id]
        job.leave(JobState.CANCELLED)
        return self._settle(job.submission)

    def reclaim(self) -> dict[int, tuple[JobState, bool]]:
        """What becomes of every job whose lease expired, and whether that was its submission's last."""
        became = {}
        for job in [job for job in self.running() if job.expired]:
            self._take_back(job)
            became[job.id] = (job.state, self._settle(job.submission))
        return became

    def _take_back(self, job: ModelJob) -> None:
        job.reclaims += 1
        if job.cancel_requested:
            job.leave(JobState.CANCELLED)
        elif job.reclaims < MAX_RECLAIMS:
            self._wait_again(job)
        else:
            job.leave(JobState.DONE, Verdict.INTERNAL_ERROR)

    def recover(self, host: str, keep: Sequence[tuple[int, int]], *, died: bool) -> dict[int, tuple[JobState, bool]]:
        """A daemon gives back what it does not know, of its own or of an earlier process; what becomes of each."""
        became = {}
        for job in [job for job in self.running(host) if (job.id, job.attempt) not in keep]:
            if died or job.unanswered >= MAX_UNANSWERED:
                self._take_back(job)
                last = self._settle(job.submission)
            else:
                job.unanswered += 1
                last = self.give_back(job.id)
            became[job.id] = (job.state, last)
        return became

    def end_pauses(self) -> None:
        """Time passes: what failed may be tried again, but not yet where it failed."""
        for job in self.jobs.values():
            job.paused = False

    def end_avoidance(self) -> None:
        """More time passes: anywhere will do."""
        for job in self.jobs.values():
            job.paused, job.avoiding = False, False

    # --- what readers see ----------------------------------------------------------------------------------------

    def ranking(self) -> list[tuple[str, int, str, int, float]]:
        """(GPU type, rank, user, submission, score) of every place; equal scores share a rank."""
        best: dict[tuple[str, str], tuple[float, int]] = {}
        for job in self.jobs.values():
            if job.secret or job.score is None or not job.rows or not self._counts(job):
                continue
            place = (job.gpu_type, job.user)
            best[place] = min((job.score, job.submission), best.get(place, (job.score, job.submission)))
        places = []
        for gpu_type in sorted({gpu_type for gpu_type, _ in best}):
            line = sorted(
                (score, submission, user) for (kind, user), (score, submission) in best.items() if kind == gpu_type
            )
            places += [
                (gpu_type, 1 + sum(better < score for better, _, _ in line), user, submission, score)
                for score, submission, user in line
            ]
        return places

    def _counts(self, job: ModelJob) -> bool:
        """No run was hacked, a secret ranked run passed on the same type, none failed there, and the user may rank."""
        submission = self.submissions[job.submission]
        if "hacked" in (submission.status, submission.job_status) or submission.user in self.banned:
            return False
        secret = [
            row
            for other in self.of(job.submission)
            if other.secret and other.gpu_type == job.gpu_type
            for row in other.rows
        ]
        return any(row.passed and row.mode == "leaderboard" for row in secret) and all(row.passed for row in secret)

    # --- inside --------------------------------------------------------------------------------------------------

    def _may_claim(self, job: ModelJob, host: str) -> bool:
        elsewhere = job.avoiding and job.avoid_host == host
        return job.state is JobState.QUEUED and not job.paused and not elsewhere and not job.after_public

    def _wait_again(self, job: ModelJob) -> None:
        """It keeps its turn, or is first of those that are due now."""
        job.leave(JobState.QUEUED)
        job.turn = max(job.turn, self.clock.get(job.line, 0))

    def _follow(self, secret: ModelJob, public: ModelJob) -> None:
        """A secret job waits for its public one, and runs only where that was accepted."""
        if public.open:
            return
        secret.after_public = False
        if public.verdict is Verdict.ACCEPTED:
            self._wait_again(secret)
        else:
            secret.leave(public.state, public.verdict)
            secret.cancel_requested = public.cancel_requested

    def _groups(self, submission: int) -> dict[tuple[str, Mode], list[ModelJob]]:
        groups: dict[tuple[str, Mode], list[ModelJob]] = defaultdict(list)
        for job in self.of(submission):
            groups[job.gpu_type, job.mode].append(job)
        return groups

    def _look_alive(self, submission: int) -> None:
        """KernelBot's word for a submission that is not over."""
        runs = any(job.state is JobState.RUNNING for job in self.of(submission))
        self.submissions[submission].job_status = "running" if runs else "pending"

    def _settle(self, number: int) -> bool:
        """After a job left queue or slot: reruns retire what they replace, the last job writes the last word."""
        submission = self.submissions[number]
        jobs = self.of(number)
        for job in jobs:
            if job.after_public and job.state is JobState.QUEUED:
                self._follow(job, [other for other in jobs if other.key == (*job.key[:3], False)][-1])
        for job in jobs:
            if job.replaces is None or job.retired_as is not None or job.open:
                continue
            if job.state is JobState.CANCELLED or job.verdict is Verdict.INTERNAL_ERROR:
                _retire(job, "dropped")
                continue
            for earlier in jobs:
                if earlier.key == job.key and earlier.id < job.id and not earlier.open and earlier.speaks():
                    _retire(earlier, "replaced")
        if any(job.open for job in jobs):
            self._look_alive(number)
            return False
        submission.done = True
        submission.job_status = final_status(
            [
                Ended(
                    mode=job.mode,
                    state=job.state,
                    verdict=job.verdict,
                    passed=tuple(row.passed for row in job.rows),
                    invalidated=job.retired_as is not None,
                )
                for job in jobs
                if job.speaks()
            ]
        )
        submission.status = "hacked" if submission.job_status == "hacked" else "active"
        return True


def _retire(job: ModelJob, retired_as: str) -> None:
    """What it wrote no longer counts, and is kept elsewhere."""
    job.retired_as = retired_as
    job.superseded += len(job.rows)
    job.rows, job.score = (), None
