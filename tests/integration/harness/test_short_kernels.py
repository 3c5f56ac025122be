"""Kernels whose time is known: an honest worker is believed, one that claims a tenth less gains nothing.

From which time on every forgery is noticed on a quiet machine is measured by `make bench ARGS=forging`, and worked out
from given spans in tests/unit/harness/test_audit.py; here stands what must hold on any machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.benchmarks._judging import FORGED, HONEST, cases_of, judge, request_of, spin_case

SHORT_NS = (20_000, 100_000)
#: Most forgeries of so short kernels are noticed, and all of so long ones.
MOST_NS, LONG_NS = 50_000, 500_000
#: Of which it must be most.
CASES = 5
_BUSY = "import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True:\n    pass\n"


@pytest.fixture
def busy_core() -> Iterator[None]:
    """Another process on the first core, which is one of the worker's."""
    program = _BUSY.format(core=min(os.sched_getaffinity(0)))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.kill()


@pytest.mark.alone
@pytest.mark.usefixtures("busy_core")
def test_an_honest_worker_is_not_suspected_beside_a_busy_core(processes: ForkedJudges) -> None:
    """Its mean is at least what it claims, which is never less than the truth."""
    step = judge(processes, request_of(HONEST, [spin_case(spin_ns) for spin_ns in SHORT_NS]))
    for spin_ns, case in zip(SHORT_NS, cases_of(step), strict=True):
        assert case.details["timing"] in ("audited", "measured"), case
        assert case.number("mean") >= spin_ns


@pytest.mark.alone
def test_a_worker_that_claims_a_tenth_less_gains_nothing(processes: ForkedJudges) -> None:
    """Its claims do not count: what is reported is the judge's estimate, close to the truth or above it."""
    spins_ns = (LONG_NS, *[MOST_NS] * CASES)
    request = request_of(FORGED.format(part=0.9), [spin_case(spin_ns) for spin_ns in spins_ns])
    long, *short = cases_of(judge(processes, request))
    assert long.details["claimed_median_ns"] < 0.92 * LONG_NS or long.details["delayed_ns"] > 0
    assert long.number("median") >= 0.94 * LONG_NS, long
    assert sum(case.number("median") >= 0.94 * MOST_NS for case in short) > CASES / 2, short
