"""Results for the tests of the spool, ordinary ones and any that the types allow."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from runner.base.model import Artifact, JobResult, RunRecord, SubmissionJob, Verdict
from tests.unit import samples

#: Every code point, lone surrogates and NUL too: a submission can print them all.
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
ANY_OBJECT = st.dictionaries(ANY_TEXT, ANY_JSON, max_size=4)
#: A bigint, which nanoseconds are.
_NS = st.integers(min_value=0, max_value=2**63 - 1)


@st.composite
def runs(draw: st.DrawFn) -> RunRecord:
    """Any row of results."""
    passed = draw(st.booleans())
    mode = draw(st.just("leaderboard") | ANY_TEXT)
    scored = passed and mode == "leaderboard" and draw(st.booleans())
    return RunRecord(
        mode=mode,
        start_offset_ns=draw(_NS),
        end_offset_ns=draw(_NS),
        passed=passed,
        score_s=draw(st.floats()) if scored else None,
        compilation=draw(st.none() | ANY_OBJECT),
        meta=draw(ANY_OBJECT),
        result=draw(st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=4)),
        system_info=draw(ANY_OBJECT),
    )


@st.composite
def results(draw: st.DrawFn) -> JobResult:
    """Any result."""
    verdict = draw(st.sampled_from(Verdict))
    artifacts = st.builds(Artifact, name=ANY_TEXT, media_type=ANY_TEXT, data=st.binary(max_size=200))
    return JobResult(
        verdict=verdict,
        runs=tuple(draw(st.lists(runs(), max_size=3))),
        error=None if verdict is Verdict.ACCEPTED else draw(ANY_TEXT.filter(bool)),
        report=draw(ANY_OBJECT),
        build_ns=draw(_NS),
        eval_ns=draw(_NS),
        artifacts=tuple(draw(st.lists(artifacts, max_size=3))),
    )


def job(job_id: int = 7, attempt: int = 2, *, code: bytes = b"the source of a stranger") -> SubmissionJob:
    """A claimed job that holds what must not get onto the disk."""
    values: dict[str, Any] = vars(samples.job(secret=True, code=code))
    task = {"files": {"reference.py": "the answer"}}
    return SubmissionJob(**{**values, "id": job_id, "attempt": attempt, "task": task})


def result(*artifacts: bytes, **report: object) -> JobResult:
    """An accepted result."""
    return JobResult(
        verdict=Verdict.ACCEPTED,
        runs=(),
        error=None,
        report=report,
        build_ns=1,
        eval_ns=2,
        artifacts=tuple(
            Artifact(name=f"trace-{number}", media_type="application/gzip", data=data)
            for number, data in enumerate(artifacts)
        ),
    )
