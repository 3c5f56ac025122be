"""What KernelGYM's clients are answered."""

from __future__ import annotations

from typing import Any

import pytest

from runner.extras.trainers.client import Result
from runner.extras.trainers.client.kernelgym import answer_of

RIGHT = {"verdict": "accepted", "correct": True, "compiled": True, "message": "its times are noise"}
TIMED = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1}
NOISE = {"speedup": None, "speedup_low": 0.01, "speedup_high": 90.0}


@pytest.mark.parametrize(
    ("facts", "status", "code", "speedup"),
    [
        ({**RIGHT, **TIMED}, "completed", None, 2.0),
        # Nobody asked for times.
        (RIGHT, "completed", None, 0.0),
        ({**RIGHT, **NOISE}, "failed", "SYSTEM_ERROR", 0.0),
        ({"verdict": "time_limit"}, "timeout", "TIMEOUT_ERROR", 0.0),
        ({"verdict": "wrong_answer"}, "completed", "CORRECTNESS_ERROR", 0.0),
        ({"verdict": "internal_error"}, "failed", "SYSTEM_ERROR", 0.0),
        ({"verdict": None}, "failed", "SYSTEM_ERROR", 0.0),
    ],
)
def test_times_that_are_noise_are_no_bad_kernel(
    facts: dict[str, Any], status: str, code: str | None, speedup: float
) -> None:
    """A speed-up of 0 would be the reward of one: the answer is that of an outage."""
    answer = answer_of(Result(key="a", state="done", verdict=facts["verdict"], facts=facts))
    assert (answer["status"], answer["error_code"], answer["speedup"]) == (status, code, speedup)
    assert (answer["error_message"] is None) is (code is None)
