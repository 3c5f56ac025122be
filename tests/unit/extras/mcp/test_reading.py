"""What the tools make of the gateway's JSON."""

from __future__ import annotations

from runner.extras.mcp import reading


def timed(submission_id: int, mean_ns: float) -> reading.TimedRun:
    """A submission with one timed case."""
    case = {"mean_ns": mean_ns, "mean_ci95_ns": [0.99 * mean_ns, 1.01 * mean_ns]}
    return reading.TimedRun(submission_id=submission_id, gpu_type="CPU", mode="benchmark", cases={"n: 1": case})


def test_a_kernel_that_is_thousands_of_times_faster() -> None:
    """Its ratio has digits."""
    compared = reading.comparison(timed(1, 1234.0), timed(2, 1e7))
    said = "Of 1 cases: faster in 1. Over all it takes 0.000123 times the other's time (geometric mean)."
    assert (compared.cases[0].times_other, compared.summary) == (0.0001234, said)
