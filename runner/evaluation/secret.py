"""Everything that an evaluation does differently for the secret run of a submission. Pure.

A secret run shows that a submission passes on data that nobody has seen. It is a job of its own. The secret run of a
ranked submission follows an accepted public run, perhaps on another host; `precedes` says what passes to it. Authors
see nothing that it prints. Only its verdict counts, so its times are taken in fewer calls and do not rank; in a final
they count. No other module of the evaluation asks whether a job is secret. The schema decides which modes have one
(`add_jobs`), when it runs (`follow_public`), whether the public score counts (`counting_score`), and what authors see
of it (`result`).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from typing import Final

from runner.base.model import Demand, FinalJob, Job, Mode, SubmissionJob
from runner.task_format.model import Case, CaseSet, Task
from tasks.harness.judge.request import ModeRequest
from tasks.harness.judge.stopping import Timing

_NAMES: Final = {False: "public", True: "secret"}
#: When a case has been timed enough: a fifth of what a public run is given.
_TIMING: Final = Timing(max_runs=20, max_kernel_s=5.0)


def tests_of(job: Job, cases: CaseSet) -> tuple[Case, ...]:
    """The test cases: only a secret run has the hidden ones, after the others."""
    return (*(cases.tests or ()), *((cases.hidden or ()) if job.secret else ()))


def seed_of(job: SubmissionJob, task: Task) -> int | None:
    """The seed of the inputs: the task's own, if any, or one of the secret job's own."""
    if isinstance(job, FinalJob):
        return derived_seed(job.secret_seed, f"final {job.final_id} round {job.round}")
    return derived_seed(job.secret_seed, f"job {job.id}") if job.secret else task.seed


def derived_seed(secret_seed: int, purpose: str) -> int:
    """A seed of a secret job, or of the round of a final: no two have the same data.

    No submission ever sees the board's own seed. Below 2**31, as KernelBot's are (numpy needs less than 2**32).
    """
    digest = hmac.new(str(secret_seed).encode(), purpose.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:4]) & 0x7FFF_FFFF


def timed(job: Job, leaderboard: ModeRequest) -> ModeRequest:
    """The timed calls of a ranked job: fewer in a secret run, unless the task has a rule of its own.

    In a final no case ends because it has taken the judge long (`Stopping.of`): an empty rule says so.
    """
    if job.mode is Mode.FINAL:
        return replace(leaderboard, timing=leaderboard.timing or Timing())
    if _counts(job):
        return leaderboard
    return replace(leaderboard, timing=leaderboard.timing or _TIMING, ranked=False)


def demand_of(job: SubmissionJob) -> Demand:
    """What its times must satisfy to rank. Public times rank; a secret run keeps its score whatever it is worth."""
    return job.demand if _counts(job) else Demand()


def _counts(job: Job) -> bool:
    """Whether its times count."""
    return not job.secret or job.mode is Mode.FINAL


def run_of(job: Job) -> str:
    """Which run of its submission a job is."""
    return _NAMES[job.secret]


def precedes(job: Job) -> bool:
    """Whether a secret run of its submission follows when it is accepted.

    That one gets what compilers left in this run's caches, and may get its container, emptied. The other way nothing
    goes: a secret run saw hidden cases.
    """
    return not job.secret and job.mode is Mode.LEADERBOARD


def follows(job: Job) -> bool:
    """Whether it follows a public run of its submission."""
    return job.secret and job.mode is Mode.LEADERBOARD


def runs_of_build(job: Job) -> set[str]:
    """Which runs use the build of a job's submission: a ranked one has a public and a secret run."""
    return set(_NAMES.values()) if job.mode is Mode.LEADERBOARD else {run_of(job)}
