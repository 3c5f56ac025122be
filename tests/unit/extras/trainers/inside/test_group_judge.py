"""When a group's workers are up, and what a result says of times."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from runner.extras.trainers.client import rewards
from runner.extras.trainers.inside.judge.evaluation import GroupJudge, _Attempt
from runner.extras.trainers.inside.judge.group import Result
from runner.extras.trainers.inside.judge.speedup import Row, speedup_of
from tasks.harness.judge.audit import Sample


@pytest.mark.parametrize("has_control", [False, True])
def test_a_new_worker_is_up_before_the_reference_is_timed(*, has_control: bool) -> None:
    """On a core that both share, calls of the reference beside its start came out half as fast."""
    orders: list[str] = []

    def open_flags(**_: object) -> bool:
        orders.append("flags")
        return True

    client: Any = SimpleNamespace(
        open_flags=open_flags,
        warm_up=lambda **_: orders.append("warm up"),
        run=lambda *_, **__: orders.append("answers"),
    )
    judge: Any = SimpleNamespace(
        _for_reference=None,
        _started=lambda _: client,
        control=object() if has_control else None,
        _measured=None,
        _request=SimpleNamespace(memory_bytes=1),
    )
    assert GroupJudge._connect(judge, "candidate") is client
    assert orders == [*(["flags", "warm up"] if has_control else []), "answers"]


def _row(times_us: Sequence[float]) -> Row:
    """Calls in which both sides waited for a core for all but 100 µs."""
    samples = [
        Sample(claim_ns=100_000, outside_ns=round(time * 1e3) + 10_000, delayed_ns=round(time * 1e3) - 100_000)
        for time in times_us
    ]
    return Row(samples=samples, controls_ns=[[10_000.0] * 12])


@pytest.mark.parametrize(("times_us", "is_known"), [([100.0] * 20, True), ([100.0, 90_000.0] * 10, False)])
def test_a_speed_up_that_could_be_anything_is_none(times_us: Sequence[float], *, is_known: bool) -> None:
    """Of an accepted candidate on a crowded host no time is told, and rewards of it are None, not those of a copy."""
    attempt: Any = SimpleNamespace(
        _result=Result(id=1, verdict="accepted"), _group=SimpleNamespace(tolerance=0.1, is_marked=True)
    )
    row = _row(times_us)
    assert _Attempt._tell(attempt, speedup_of(row, row, tolerance=0.1), row, {"compile": row})
    facts = vars(attempt._result)
    shown = (
        "speedup",
        "speedup_device",
        "reference_ns",
        "candidate_ns",
        "timing",
        "reference_stats",
        "candidate_stats",
    )
    assert {facts[name] is not None for name in shown} == {is_known}
    assert bool(facts["baselines"]) is is_known
    assert facts["speedup_low"] <= 1.0 <= facts["speedup_high"]
    assert ("its times are noise, the speed-up lies between 0.00" in facts["message"]) is not is_known
    assert rewards.reward("correct@1", facts) == 1.0
    for name in ("kevin@1", "kernelbook@1", "sol@1", "cuda-agent@2"):
        assert (rewards.reward(name, {**facts, "sol_ns": 1.0}) is not None) is is_known
