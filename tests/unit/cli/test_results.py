"""Reading the flat result mapping of any eval program."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.cli.results import checked_cases, timed_cases


def test_tests_are_read_with_their_messages() -> None:
    """`error` explains a failure, `message` may accompany a pass."""
    result = {
        "test-count": "3",
        "test.0.spec": "n: 4",
        "test.0.status": "pass",
        "test.0.message": "max error 0",
        "test.1.spec": "n: 8",
        "test.1.status": "fail",
        "test.1.error": "mismatch at 3",
        "test.2.spec": "n: 16",
        "check": "fail",
    }
    first, second, third = checked_cases(result)
    assert (first.spec, first.passed, first.message) == ("n: 4", True, "max error 0")
    assert (second.passed, second.message) == (False, "mismatch at 3")
    assert (third.passed, third.message) == (None, None)


def test_benchmarks_are_read_in_nanoseconds() -> None:
    """The judge's interval of the mean is taken as it is; from KernelBot's `err` it is computed."""
    result = {
        "benchmark-count": "2",
        "benchmark.0.spec": "n: 4",
        "benchmark.0.runs": "17",
        "benchmark.0.mean": "1000.5",
        "benchmark.0.err": "10",
        "benchmark.0.median": "980.5",
        "benchmark.0.ci95": "[970, 990]",
        "benchmark.0.runner.mean_ci95": "[985.5, 1035.5]",
        "benchmark.0.best": "900",
        "benchmark.0.worst": "1200",
        "benchmark.0.sol": "0.42",
        "benchmark.0.sol_limit": "memory",
        "benchmark.1.spec": "n: 8",
        "benchmark.1.mean": "2000",
        "benchmark.1.err": "100",
    }
    first, second = timed_cases(result)
    assert (first.runs, first.mean_ns, first.ci95_ns, first.best_ns, first.worst_ns) == (17, 1000.5, 25.0, 900, 1200)
    assert (first.sol, first.sol_limit, second.sol, second.sol_limit) == (0.42, "memory", None, None)
    assert second.ci95_ns == 196.0
    assert (first.median_ns, second.median_ns, first.remarks, second.remarks) == (980.5, None, (), ())
    assert (second.runs, second.best_ns, second.error) == (None, None, None)


def test_what_is_out_of_the_ordinary_is_said() -> None:
    """Noise, a trend, samples far out and a case cut short become remarks; their ordinary values do not."""
    ordinary = {"drift": "0.3", "drift_p": "0.2", "outliers": "0.05", "stopped": "interval"}
    odd = {"noisy": "the mean lies between 1 and 2 µs", "drift": "-0.08", "drift_p": "1e-9"}
    odd |= {"outliers": "0.24", "stopped": "wall_time"}
    result = {"benchmark-count": "2", "benchmark.0.spec": "a", "benchmark.1.spec": "b"}
    result |= {f"benchmark.0.runner.{key}": value for key, value in ordinary.items()}
    result |= {f"benchmark.1.runner.{key}": value for key, value in odd.items()}
    first, second = timed_cases(result)
    assert first.remarks == ()
    assert second.remarks == (
        "noisy: the mean lies between 1 and 2 µs",
        "drifts by -8%",
        "24% outliers",
        "cut short by the clock",
    )


def test_a_run_that_stopped_early_shows_only_what_is_there() -> None:
    """A program that announced ten cases and died after one gives one line, and a failed case says why."""
    result = {"benchmark-count": "10", "benchmark.0.spec": "n: 4", "benchmark.0.status": "fail", "check": "fail"}
    (only,) = timed_cases(result)
    assert only.error == "failed"
    assert timed_cases({}) == ()


def test_a_lying_count_is_not_believed() -> None:
    """Counts of a hostile program cost neither time nor memory."""
    assert checked_cases({"test-count": "999999999999"}) == ()
    assert checked_cases({"test-count": "-4", "test.0.spec": "n: 1"}) == ()
    assert checked_cases({"test-count": "inf", "test.0.spec": "n: 1"})[0].spec == "n: 1"


_KEYS = st.sampled_from(
    [
        "test-count",
        "benchmark-count",
        "test.0.spec",
        "test.0.status",
        "benchmark.0.mean",
        "benchmark.0.runs",
        "benchmark.0.spec",
    ]
)


@given(st.dictionaries(_KEYS, st.text()))
def test_no_text_makes_it_raise(result: dict[str, str]) -> None:
    """Whatever a third-party program writes, the command line can show it."""
    checked_cases(result)
    timed_cases(result)
