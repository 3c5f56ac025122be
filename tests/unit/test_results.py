"""The reader of a run's flat `result`, against what the judge's rows hold and what any eval program may write."""

from __future__ import annotations

import io
from dataclasses import asdict

from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from runner.base.receipts import canonical
from runner.base.results import cases
from runner.base.units import between, duration, spread
from runner.cli.render_submission import run_block
from runner.cli.view import ShownRun
from runner.evaluation.mode_result import ModeResult
from runner.extras.gateway import charts
from runner.extras.shown import figures, reports
from tasks.harness.judge.report import CaseReport, TimingReport, result_lines
from tasks.harness.judge.stats import Summary


def test_what_a_program_alone_writes_is_read() -> None:
    """From KernelBot's `err` the interval of the mean is computed; the judge's is taken as it is."""
    result = {
        "benchmark-count": "2",
        "benchmark.0.spec": "n: 4",
        "benchmark.0.mean": "1000.5",
        "benchmark.0.err": "10",
        "benchmark.0.runner.mean_ci95": "[985.5, 1035.5]",
        "benchmark.0.sol": "0.42",
        "benchmark.0.sol_limit": "memory",
        "benchmark.1.spec": "n: 8",
        "benchmark.1.mean": "2000",
        "benchmark.1.err": "100",
    }
    first, second = cases(result)
    assert (first.sol, first.sol_limit, second.sol, second.sol_limit) == (0.42, "memory", None, None)
    assert (first.mean_ci95_ns, second.mean_ci95_ns) == ((985.5, 1035.5), (1804.0, 2196.0))
    assert (second.runs, second.best_ns, second.median_ns, second.error, second.remarks) == (None, None, None, None, ())


def test_what_is_out_of_the_ordinary_is_said() -> None:
    """Noise, a trend, samples far out and a case cut short become remarks; their ordinary values do not."""
    ordinary = {"drift": "0.3", "drift_p": "0.2", "outliers": "0.05", "stopped": "interval"}
    odd = {"noisy": "the mean lies between 1 and 2 µs", "drift": "-0.08", "drift_p": "1e-9"}
    odd |= {"outliers": "0.24", "stopped": "wall_time"}
    result = {"benchmark-count": "2", "benchmark.0.spec": "a", "benchmark.1.spec": "b"}
    result |= {f"benchmark.0.runner.{key}": value for key, value in ordinary.items()}
    result |= {f"benchmark.1.runner.{key}": value for key, value in odd.items()}
    first, second = cases(result)
    assert first.remarks == ()
    assert second.remarks == (
        "noisy: the mean lies between 1 and 2 µs",
        "drifts by -8%",
        "24% outliers",
        "cut short by the clock",
    )


def test_a_count_is_not_believed() -> None:
    """A program that announced ten cases and died after one gives one line, and a failed case says why.

    Counts of a hostile program cost neither time nor memory.
    """
    result = {"benchmark-count": "10", "benchmark.0.spec": "n: 4", "benchmark.0.status": "fail", "check": "fail"}
    assert [case.error for case in cases(result)] == ["failed"]
    assert (
        cases({}) == cases({"test-count": "999999999999"}) == cases({"test-count": "-4", "test.0.spec": "n: 1"}) == ()
    )
    assert cases({"test-count": "inf", "test.0.spec": "n: 1"})[0].spec == "n: 1"


_KEYS = st.sampled_from(
    ["test-count", "benchmark-count", "test.0.spec", "test.0.status"]
    + [f"benchmark.0.{key}" for key in ("spec", "mean", "err", "runs", "sol", "report", "runner.mean_ci95")]
    + [f"benchmark.0.runner.{key}" for key in ("interval", "drift", "drift_p", "outliers", "stopped")]
)
_NUMBERS = st.sampled_from(["1e308", "-1e308", "1.7976931348623157e308", "1e-320", "0", "-1", "[1e308, -1e308]", "nan"])


@settings(max_examples=50)
@given(st.dictionaries(_KEYS, st.text() | _NUMBERS))
@example({"benchmark.0.mean": "1", "benchmark.0.err": "1e308"})
def test_no_text_makes_a_reader_raise(result: dict[str, str]) -> None:
    """Whatever a third-party program writes, the command line and the gateway can show it, and a receipt state it."""
    canonical({"cases": [asdict(case) for case in cases(result)]})
    _page(result)
    _report(result)
    figures.roofline(cases(result))
    charts.spans(cases(result))
    for ranking_by in ("geom", "mean", "last"):
        figures.light_of(result, ranking_by)
        figures.interval_of(result, ranking_by)


_TIMES_NS = st.floats(min_value=1.0, max_value=1e12)
_PAIRS_NS = st.tuples(_TIMES_NS, _TIMES_NS).map(lambda pair: (min(pair), max(pair)))
_WORDS = st.text("abc :123", min_size=1, max_size=12).map(str.strip).filter(bool)
_SUMMARIES = st.builds(
    Summary,
    **dict.fromkeys(("best", "p10", "median", "mean", "p90", "worst", "std", "err"), _TIMES_NS),
    runs=st.integers(1, 10_000),
    ci95=_PAIRS_NS,
)
_TIMINGS = st.builds(
    TimingReport,
    summary=_SUMMARIES,
    mean_ci95=_PAIRS_NS,
    outliers=st.floats(0, 1),
    drift=st.none() | st.floats(-1, 1),
    drift_p=st.none() | st.floats(0, 1),
    stopped=st.sampled_from(["interval", "wall_time"]),
    noisy=st.none() | _WORDS,
    assurance=st.sampled_from(["claimed", "measured", "audited"]),
    interval=st.none() | _PAIRS_NS,
    host=st.none() | _WORDS,
)
_TIMED = st.lists(st.builds(CaseReport, spec=_WORDS, timing=_TIMINGS), min_size=1, max_size=3)
_TESTED = st.lists(
    st.builds(CaseReport, spec=_WORDS, status=st.just("pass"), message=st.none() | _WORDS)
    | st.builds(CaseReport, spec=_WORDS, status=st.just("fail"), error=_WORDS),
    min_size=1,
    max_size=3,
)


@settings(max_examples=30)
@given(_TIMED)
def test_all_readers_show_the_times_that_the_judge_wrote(reports: list[CaseReport]) -> None:
    """Mean, its interval, the judge's bounds, extremes and assurance, as the page and the gateway's text have them."""
    result = result_lines("benchmark", reports, count=len(reports), passed=True)
    page, text = _page(result), _report(result)
    for case, written in zip(cases(result), reports, strict=True):
        timing = written.timing
        assert timing is not None
        assert case.passed
        assert (case.spec, case.timing, case.bounds_ns) == (written.spec, timing.assurance, timing.interval)
        assert (case.mean_ns, case.mean_ci95_ns) == (timing.summary.mean, timing.mean_ci95)
        assert (case.best_ns, case.median_ns) == (timing.summary.best, timing.summary.median)
        assert (case.worst_ns, case.runs) == (timing.summary.worst, timing.summary.runs)
        assert spread(case.mean_ns, timing.mean_ci95) in page
        where = "" if timing.interval is None else f", {between(timing.interval)}"
        assert timing.assurance + where in page
        assert f"⏱ {duration(timing.summary.mean)} ⚡ {duration(timing.summary.best)}" in text
    program = ModeResult.of_program(result, asked=len(reports))
    assert [timing.mean_ns for timing in program.timings] == [case.mean_ns for case in cases(result)]


@settings(max_examples=30)
@given(_TESTED, st.integers(0, 2))
def test_all_readers_show_the_tests_that_the_judge_ran(reports: list[CaseReport], unrun: int) -> None:
    """Which passed and why not; a case that was announced and never ran is shown by none of them."""
    passed = all(report.status == "pass" for report in reports)
    result = result_lines("test", reports, count=len(reports) + unrun, passed=passed)
    page, text = _page(result), _report(result)
    told = [(case.spec, case.passed, case.error, case.message) for case in cases(result)]
    assert told == [(each.spec, each.status == "pass", each.error, each.message) for each in reports]
    assert text.count("\n✅ ") == page.count(" pass") == sum(case.passed is True for case in cases(result))
    failure = ModeResult.of_program(result, asked=0).failure
    first = next((case for case in cases(result) if case.passed is False), None)
    assert failure == (None if first is None else f"case {first.index} ({first.spec}): {first.error}")


def _page(result: dict[str, str]) -> str:
    """A run's part of the command line's page, without the line that says how the run ended."""
    page = io.StringIO()
    Console(file=page, width=500).print(run_block(ShownRun(mode="benchmark", passed=True, score_s=None, result=result)))
    return page.getvalue().partition("\n")[2]


def _report(result: dict[str, str]) -> str:
    """The cases of a run in the gateway's text."""
    return "\n".join(reports._cases({"mode": "test", "passed": True, "result": result, "meta": {}}))
