"""Claims that are lowered, all or some, whatever the size of the inputs: none of them ranks.

The kernel's time is known: it looks at a clock until its time is over. How much a forged time gains with short kernels
is measured by `make bench ARGS=forging` and worked out from given spans in tests/unit/harness/test_audit.py; here
stands what must hold on any machine.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from statistics import fmean

import pytest

from sandbox.protocol import StepResult
from tasks.harness.judge.stopping import Timing
from tasks.harness.local import evaluate, lines_of
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.benchmarks._judging import ROWS_REFERENCE, cases_of, request_of, rows_of, spin_case
from tests.benchmarks.forging import FORGERIES

#: Bytes of input, and a kernel's time in ns that is much longer than what a hand-over differs by.
CASES = ((4 << 10, 500_000), (256 << 10, 1_000_000), (3 << 20, 3_000_000), (16 << 20, 10_000_000))
TIMING = Timing(min_runs=20, max_runs=20)


def _step(processes: ForkedJudges, part: str | None, *, without: tuple[str, ...] = ()) -> StepResult:
    """The benchmark step of a submission that claims so much of its time; None: all of it."""
    source = rows_of(part)
    cases = [spin_case(spin_ns, size=nbytes // 4) for nbytes, spin_ns in CASES]
    request = request_of(source, cases, reference=ROWS_REFERENCE, timing=TIMING)
    (step,) = evaluate(request, start=partial(processes.start, without=without)).steps
    return step


@pytest.mark.alone
@pytest.mark.parametrize("name", FORGERIES)
def test_a_lowered_claim_does_not_rank(processes: ForkedJudges, name: str) -> None:
    """The mean that is reported is at least nine tenths of the truth, or the submission is rejected."""
    step = _step(processes, FORGERIES[name])

    assert step.judged is not None
    assert step.judged.verdict in ("accepted", "rejected"), step.judged
    if step.judged.verdict == "rejected":
        assert "on the judge's clock" in (step.judged.message or "")
        return
    for case, (_, spin_ns) in zip(cases_of(step), CASES, strict=True):
        assert case.number("mean") >= 0.9 * spin_ns, case


@pytest.mark.alone
@pytest.mark.parametrize("name", ["all x 0.02", "all x 0.5"])
def test_it_would_rank_if_claims_were_believed(processes: ForkedJudges, name: str) -> None:
    """Without the judge's clock the same submissions gain what they claim: the test above can fail."""
    step = _step(processes, FORGERIES[name], without=("clock",))

    assert step.judged is not None
    assert step.judged.verdict == "accepted", step.judged
    gains = [case.number("mean") / spin_ns for case, (_, spin_ns) in zip(cases_of(step), CASES, strict=True)]
    assert min(gains) < 0.9, gains


@pytest.mark.alone
def test_true_claims_are_never_rejected_and_never_lowered(processes: ForkedJudges) -> None:
    """At every size the honest time is reported, and each says what it is worth."""
    step = _step(processes, None)

    assert step.judged is not None
    assert step.judged.verdict == "accepted", step.judged
    for index, (case, (_, spin_ns)) in enumerate(zip(cases_of(step), CASES, strict=True)):
        assert case.number("mean") >= spin_ns, case
        assert lines_of(step)[f"benchmark.{index}.runner.timing"] in ("audited", "measured")
        assert case.details["controls"] >= 6 or case.details["timing"] == "measured", case


def test_forgeries_differ() -> None:
    """Each lowers some claim of a hundred, and their means are what their names say."""
    means = {}
    for name, part in FORGERIES.items():
        parts = [eval(part, {"call": call, "random": __import__("random").Random(1)}) for call in range(100)]  # noqa: S307 ours
        assert min(parts) < 1
        means[name] = fmean(parts)
    assert means["1 in 4 x 0.33"] == pytest.approx(0.8325)
    assert means["9 in 10 x 0.7"] == pytest.approx(0.73)
    assert len(list(groupby(sorted(means.values())))) == len(means)
