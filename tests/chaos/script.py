"""What a submission of the storm says about its own evaluation, and the words a submission must end with; pure.

A submission's code is its script: the evaluator of the storm obeys it, the ledger knows from it what had to come out.
Every execution has a nonce, and everything that it reports carries job, attempt and nonce: rows of two attempts, or of
two executions of one attempt, cannot be mistaken for each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from runner.base.model import Artifact, Job, JobResult, JobState, Mode, RunRecord, Verdict

#: The rows of `leaderboard.runs` that an accepted job of each mode has, in order.
RUNS: Final[Mapping[Mode, tuple[str, ...]]] = {
    Mode.TEST: ("test",),
    Mode.BENCHMARK: ("test", "benchmark"),
    Mode.PROFILE: ("test", "profile.0"),
    Mode.LEADERBOARD: ("test", "benchmark", "leaderboard"),
    Mode.PRIVATE: ("test", "benchmark", "leaderboard"),
}
#: The verdicts a script may ask for; what else there is, is treated like one of them.
VERDICTS: Final = (
    Verdict.ACCEPTED,
    Verdict.WRONG_ANSWER,
    Verdict.TIME_LIMIT,
    Verdict.COMPILE_ERROR,
    Verdict.REJECTED,
    Verdict.INVALID,
)
_PREFIX: Final = b"# chaos: "


@dataclass(frozen=True, kw_only=True)
class Script:
    """How the jobs of one submission go."""

    #: How long each evaluation takes.
    work_ms: int
    #: So many attempts of each job fail through no fault of the submission.
    failing: int
    #: What each job finds, by "GPU TYPE/public" or "GPU TYPE/secret".
    verdicts: Mapping[str, Verdict]

    def verdict(self, gpu_type: str, *, secret: bool) -> Verdict:
        """What a job finds."""
        return self.verdicts[job_key(gpu_type, secret=secret)]

    def to_code(self) -> bytes:
        """As the source of a submission."""
        facts = {"work_ms": self.work_ms, "failing": self.failing, "verdicts": self.verdicts}
        return _PREFIX + json.dumps(facts, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_code(cls, code: bytes) -> Self:
        """Back from the source of a submission."""
        facts: dict[str, Any] = json.loads(code.removeprefix(_PREFIX))
        verdicts = {key: Verdict(word) for key, word in facts.pop("verdicts").items()}
        return cls(**facts, verdicts=verdicts)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What must be true of one row of `leaderboard.runs`."""

    mode: str
    passed: bool
    scored: bool


def job_key(gpu_type: str, *, secret: bool) -> str:
    """How scripts and the ledger name a job within its submission."""
    return f"{gpu_type}/{'secret' if secret else 'public'}"


def rows(mode: Mode, verdict: Verdict) -> tuple[Row, ...]:
    """The rows that a job with this verdict writes."""
    names = RUNS[mode]
    match verdict:
        case Verdict.ACCEPTED:
            passed = [True] * len(names)
        case Verdict.WRONG_ANSWER | Verdict.REJECTED:
            passed = [*[True] * (len(names) - 1), False]
        case _:
            passed = []
    # The secret job's score is stored too; the views do not show it.
    scored = mode is Mode.LEADERBOARD
    return tuple(
        Row(mode=name, passed=ok, scored=ok and scored and name == "leaderboard")
        for name, ok in zip(names, passed, strict=False)
    )


def leaves_file(mode: Mode, verdict: Verdict) -> bool:
    """Whether the job has a file. What does not compile may be refused early, by a check that keeps none."""
    return mode is Mode.PROFILE and verdict is not Verdict.COMPILE_ERROR


def found(job: Job, script: Script, *, nonce: str, score_s: float) -> JobResult:
    """What an evaluation that obeys the script reports."""
    verdict = script.verdict(job.gpu_type, secret=job.secret)
    mark = {"job": str(job.id), "attempt": str(job.attempt), "nonce": nonce}
    records = tuple(
        RunRecord(
            mode=row.mode,
            start_offset_ns=number * 1_000_000,
            end_offset_ns=(number + 1) * 1_000_000,
            passed=row.passed,
            score_s=score_s if row.scored else None,
            compilation=None,
            meta={"stdout": "", "stderr": ""},
            result={**mark, "check": "pass" if row.passed else "fail"},
            system_info={"gpu": job.gpu_type},
        )
        for number, row in enumerate(rows(job.mode, verdict))
    )
    trace = Artifact(name="trace.json", media_type="application/json", data=json.dumps(mark).encode())
    return JobResult(
        verdict=verdict,
        runs=records,
        error=None if verdict is Verdict.ACCEPTED else f"as the script says: {verdict}",
        report=mark,
        build_ns=1_000_000,
        eval_ns=script.work_ms * 1_000_000,
        artifacts=(trace,) if leaves_file(job.mode, verdict) else (),
    )


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A job that is over, as far as its submission's final words depend on it."""

    mode: Mode
    state: JobState
    verdict: Verdict | None
    #: Whether each of its rows passed.
    passed: tuple[bool, ...]
    #: An operator took it out of the ranking.
    invalidated: bool = False


def final_status(jobs: Sequence[Ended]) -> str:
    """KernelBot's word for a submission whose jobs are all over: the gravest of what each job amounts to."""
    words = {_word(job) for job in jobs}
    return next(word for word in ("hacked", "failed", "timed_out", "succeeded") if word in words)


def _word(job: Ended) -> str:
    if job.invalidated:
        return "failed"
    if job.verdict is Verdict.REJECTED:
        return "hacked"
    if job.state is JobState.CANCELLED or job.verdict in (Verdict.INTERNAL_ERROR, Verdict.INVALID):
        return "failed"
    if job.mode is Mode.LEADERBOARD and (job.verdict is not Verdict.ACCEPTED or not all(job.passed)):
        return "failed"
    if job.passed or job.verdict is Verdict.ACCEPTED:
        return "succeeded"
    return "timed_out" if job.verdict is Verdict.TIME_LIMIT else "failed"
