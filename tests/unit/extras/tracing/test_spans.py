"""Which spans a job has: pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from runner.base.model import Mode, Verdict
from runner.extras.tracing.spans import Span, spans_of
from runner.store.records import EndedJob

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def second(number: float) -> datetime:
    """A moment."""
    return AT + timedelta(seconds=number)


JOB = EndedJob(
    job_id=7,
    attempt=2,
    submission_id=5,
    leaderboard="vectoradd",
    batch_id=None,
    submitted_at=AT,
    traceparent=f"00-{TRACE}-{PARENT}-01",
    host="node1",
    slot="cpu0",
    gpu_type="CPU",
    mode=Mode.LEADERBOARD,
    secret=True,
    verdict=Verdict.ACCEPTED,
    failures=1,
    created_at=second(1),
    started_at=second(3),
    finished_at=second(9),
    phases_ns={"build": 0, "wait": 0, "container": 500_000_000, "import": 1_000_000_000, "eval": 4_000_000_000},
)


def seconds(span: Span) -> tuple[float, float]:
    """Start and end, from AT on."""
    return tuple((at_ns - int(AT.timestamp()) * 10**9) / 1e9 for at_ns in (span.start_ns, span.end_ns))  # type: ignore[return-value]


def test_a_job_is_a_tree_below_the_span_of_the_frontend() -> None:
    """Submission, job, queue, attempt, phases."""
    spans = {span.name: span for span in spans_of(JOB)}
    assert {name: seconds(span) for name, span in spans.items()} == {
        "submit": (0, 0),
        "job": (1, 9),
        "queue": (1, 3),
        "attempt": (3, 9),
        "container": (3, 3.5),
        "import": (3.5, 4.5),
        "eval": (4.5, 8.5),
        "commit": (8.5, 9),
    }
    names = {span.span_id: name for name, span in spans.items()}
    assert {name: names.get(span.parent_id or 0) for name, span in spans.items()} == {
        "submit": None,
        "job": "submit",
        "queue": "job",
        "attempt": "job",
        **dict.fromkeys(("container", "import", "eval", "commit"), "attempt"),
    }
    assert spans["submit"].parent_id == int(PARENT, 16)
    assert {span.trace_id for span in spans.values()} == {int(TRACE, 16)}
    assert spans["job"].attributes["kernel_runner.verdict"] == "accepted"
    assert spans["job"].attributes["host.name"] == "node1"
    assert "kernel_runner.batch.id" not in spans["job"].attributes


def test_ids_are_those_of_what_a_span_stands_for() -> None:
    """Equal jobs have equal ids; another attempt shares only trace and submission."""
    assert spans_of(JOB) == spans_of(replace(JOB))
    other = spans_of(replace(JOB, attempt=3))
    shared = {span.span_id for span in spans_of(JOB)} & {span.span_id for span in other}
    assert shared == {spans_of(JOB)[0].span_id}


def test_jobs_of_a_submission_without_a_context_share_a_trace() -> None:
    """Public and secret; another submission has another trace."""
    public = spans_of(replace(JOB, traceparent=None, job_id=6, secret=False))
    secret = spans_of(replace(JOB, traceparent=None))
    assert {span.trace_id for span in (*public, *secret)} == {public[0].trace_id}
    assert public[0] == secret[0]
    assert public[0].parent_id is None
    assert spans_of(replace(JOB, traceparent=None, submission_id=6))[0].trace_id != public[0].trace_id


def test_what_the_frontend_does_not_record_is_not_sent() -> None:
    """The flag `sampled` is not set."""
    assert spans_of(replace(JOB, traceparent=f"00-{TRACE}-{PARENT}-00")) == []


def test_only_a_fault_of_the_system_is_an_error() -> None:
    """A wrong answer is none."""
    assert not any(span.error for span in spans_of(replace(JOB, verdict=Verdict.WRONG_ANSWER)))
    errors = {span.name: span.error for span in spans_of(replace(JOB, verdict=Verdict.INTERNAL_ERROR)) if span.error}
    assert errors == {"job": "internal_error"}


def test_phases_never_leave_the_attempt() -> None:
    """The host's clock may say more than the database's."""
    long = replace(JOB, phases_ns={"container": 5_000_000_000, "eval": 60_000_000_000})
    spans = {span.name: seconds(span) for span in spans_of(long)}
    assert spans["container"] == (3.0, 8.0)
    assert spans["eval"] == (8.0, 9.0)
    assert spans["commit"] == (9.0, 9.0)
    assert {span.name for span in spans_of(replace(JOB, phases_ns=None))} == {"submit", "job", "queue", "attempt"}


def test_a_group_belongs_to_its_batch() -> None:
    """It has no submission, and no leaderboard. The parts of its candidates are one phase."""
    group = replace(JOB, submission_id=None, leaderboard=None, batch_id=4, traceparent=None, mode=Mode.BENCHMARK)
    phases = {"container": 10**9, "import": 10**9, "reference": 5 * 10**8, "correctness": 10**9, "timing": 2 * 10**9}
    spans = {span.name: seconds(span) for span in spans_of(replace(group, phases_ns={**phases, "removal": 25 * 10**7}))}
    assert (spans["reference"], spans["eval"], spans["removal"]) == ((5.0, 5.5), (5.5, 8.5), (8.5, 8.75))
    assert spans["commit"] == (8.75, 9.0)
    job = spans_of(group)[1]
    assert job.attributes["kernel_runner.mode"] == "group"
    assert job.attributes["kernel_runner.batch.id"] == 4
    assert "kernel_runner.submission.id" not in job.attributes
