"""The spans of a job that has ended: pure.

Ids are digests of what a span stands for, so a span that is sent twice is the same span. Times are the database's. Only
the phases inside an attempt were measured on the host: they are laid out one after the other from the claim on.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from runner.base.model import Verdict
from runner.store.records import EndedJob

#: Phases of a report in the order in which they pass, as docs/operations.md names them. `eval` is also what a group's
#: report says of the parts of its candidates.
PHASES: Final = ("build", "wait", "container", "import", "reference", "eval", "removal")
#: W3C Trace Context, version 00: trace, span, flags.
TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Attribute = str | int | bool


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stretch of time in a trace. Times are nanoseconds since 1970."""

    name: str
    trace_id: int
    span_id: int
    #: None: the trace begins with it.
    parent_id: int | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    #: Why it ended badly, through a fault of the system.
    error: str | None = None


def spans_of(job: EndedJob) -> Sequence[Span]:
    """The spans of a job: its submission, the job, its wait in the queue, the attempt and its phases.

    Empty where the frontend's trace context says that the trace is not recorded.
    """
    context = None if job.traceparent is None else TRACEPARENT.fullmatch(job.traceparent)
    if context is not None and not int(context[3], 16) & _SAMPLED:
        return []
    what = f"submission {job.submission_id}" if job.batch_id is None else f"batch {job.batch_id}"
    origin = f"{what} {job.submitted_at.isoformat()}"
    trace_id = _digest(origin, 16) if context is None else int(context[1], 16)
    about = {name: value for name, value in _about(job).items() if value is not None}
    created_ns, started_ns, finished_ns = map(_ns, (job.created_at, job.started_at, job.finished_at))
    submitted_ns = _ns(job.submitted_at)
    made = [
        Span(
            name="submit",
            trace_id=trace_id,
            span_id=_digest(origin, 8),
            parent_id=None if context is None else int(context[2], 16),
            start_ns=submitted_ns,
            end_ns=submitted_ns,
            attributes={name: about[name] for name in _OF_SUBMISSION if name in about},
        )
    ]

    def add(name: str, parent: Span, start_ns: int, end_ns: int, **more: Attribute) -> Span:
        span_id = _digest(f"{origin} job {job.job_id} attempt {job.attempt} {name}", 8)
        span = Span(
            name=name, trace_id=trace_id, span_id=span_id, parent_id=parent.span_id, start_ns=start_ns, end_ns=end_ns,
            attributes=more, error=_error(job) if name == "job" else None,
        )  # fmt: skip
        made.append(span)
        return span

    whole = add("job", made[0], created_ns, finished_ns, **about)
    add("queue", whole, created_ns, started_ns)
    attempt = add("attempt", whole, started_ns, finished_ns)
    ends = [started_ns]
    phases_ns: Counter[str] = Counter()
    for name, taken_ns in (job.phases_ns or {}).items():
        phases_ns[name if name in PHASES else "eval"] += taken_ns
    named = [name for name in PHASES if phases_ns[name]]
    for name in named:
        ends.append(min(ends[-1] + phases_ns[name], finished_ns))
    for name, (start_ns, end_ns) in zip(named, pairwise(ends), strict=True):
        add(name, attempt, start_ns, end_ns)
    if named:
        add("commit", attempt, ends[-1], finished_ns)
    return made


_OF_SUBMISSION: Final = ("kernel_runner.submission.id", "kernel_runner.batch.id", "kernel_runner.leaderboard")


def _about(job: EndedJob) -> Mapping[str, Attribute | None]:
    return {
        "kernel_runner.submission.id": job.submission_id,
        "kernel_runner.batch.id": job.batch_id,
        "kernel_runner.leaderboard": job.leaderboard,
        "kernel_runner.job.id": job.job_id,
        "kernel_runner.job.attempt": job.attempt,
        "kernel_runner.job.failures": job.failures,
        "kernel_runner.gpu_type": job.gpu_type,
        "kernel_runner.mode": "group" if job.batch_id is not None else job.mode.value,
        "kernel_runner.secret": job.secret,
        "kernel_runner.verdict": job.verdict.value,
        "kernel_runner.slot": job.slot,
        "host.name": job.host,
    }


def _error(job: EndedJob) -> str | None:
    """A wrong answer is no error of the system."""
    return "internal_error" if job.verdict is Verdict.INTERNAL_ERROR else None


def _ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _digest(text: str, size: int) -> int:
    """An id of so many bytes; zero would be none."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "big") or 1
