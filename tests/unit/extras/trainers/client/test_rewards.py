"""Rewards are what their authors' formulas say, and None where nothing can be said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from runner.base.errors import NotFoundError
from runner.extras.trainers.client.rewards import REWARDS, discounted, named, normalised, reward

RIGHT = {"verdict": "accepted", "correct": True, "compiled": True}
FAST = {**RIGHT, "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1}
NOISE = {**RIGHT, "speedup": 1.04, "speedup_low": 0.98, "speedup_high": 1.09}
SLOW = {**RIGHT, "speedup": 0.5, "speedup_low": 0.45, "speedup_high": 0.55}
WRONG = {"verdict": "wrong_answer", "correct": False, "compiled": True}
BROKEN = {"verdict": "compile_error", "compiled": False}
CRASHED = {"verdict": "runtime_error", "compiled": True}
LIBRARY = {**FAST, "flags": ["no_custom_kernel"]}
MEASURED = {**FAST, "kernel_use": {"custom": 2, "total": 3, "share": 0.6}}
DECOY = {**FAST, "kernel_use": {"custom": 0, "total": 3, "share": 0.0}}
OVER_COMPILED = {**FAST, "baselines": {"compile": {"speedup": 1.4, "speedup_low": 1.3, "speedup_high": 1.5}}}
FOUR = {**FAST, "speedup": 4.0, "speedup_low": 3.9, "speedup_high": 4.1}


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("correct@1", FAST, 1.0),
        ("correct@1", {**FAST, "verdict": "rejected"}, 0.0),
        ("kernelbook@1", FAST, 2.0),
        ("kernelbook@1", NOISE, 1.0),
        ("kevin@1", FAST, 2.3),
        ("kevin@1", LIBRARY, 0.0),
        ("kevin@2", FAST, 2.3),
        ("kevin@2", {**FAST, "flags": ["custom:triton", "torch_functional"]}, 0.0),
        ("tinker@1", FAST, 1.3),
        ("tinker@1", SLOW, 0.3),
        ("tinker@1", {**FAST, "speedup": 50.0, "speedup_low": 49.0, "speedup_high": 51.0}, 10.0),
        ("drkernel@1", FAST, 1.5),
        ("drkernel@1", FOUR, 2.0),
        ("drkernel@1", MEASURED, 1.8),
        ("drkernel@1", DECOY, 0.0),
        ("kernelgym-weighted@1", FAST, 1.0),
        ("kernelgym-weighted@1", NOISE, 0.5),
        ("kernelgym-stepped@1", CRASHED, -1.0),
        ("kernelgym-stepped@1", DECOY, -1.0),
        ("kernelgym-stepped@1", BROKEN, -0.5),
        ("kernelgym-stepped@1", SLOW, -0.1),
        ("kernelgym-stepped@1", NOISE, 0.2),
        ("kernelgym-stepped@1", FAST, 0.8),
        ("kernelgym-stepped@1", FOUR, 1.0),
        ("cuda-agent@1", NOISE, 1.0),
        ("cuda-agent@1", FAST, 2.0),
        ("cuda-agent@1", {**FAST, "speedup_compile": 1.2}, 3.0),
        ("cuda-agent@2", OVER_COMPILED, 3.0),
        ("cuda-agent@2", {**FAST, "baselines": {"compile": {**NOISE, "speedup": 1.2}}}, 2.0),
        ("cuda-l1@1", FAST, 1.5),
        ("cuda-l1@1", SLOW, 0.5),
        ("openenv@1", BROKEN, 0.0),
        ("openenv@1", NOISE, 0.4),
        ("openenv@1", FAST, 0.85),
        ("openenv@1", FOUR, 1.0),
        ("sol@1", {**FAST, "sol_ns": 100.0, "reference_ns": 300.0, "candidate_ns": 200.0}, 1 / 1.5),
        ("sol@1", {**FAST, "sol_ns": 100.0, "reference_ns": 300.0, "candidate_ns": 100.0}, 1.0),
        ("fast_1@1", NOISE, 0.0),
        ("fast_0@1", SLOW, 1.0),
        ("fast_0.5@1", SLOW, 0.0),
        ("fast_3.5", FOUR, 1.0),
    ],
)
def test_a_reward_is_what_its_formula_says(name: str, facts: dict[str, Any], expected: float) -> None:
    """By name and version."""
    found = reward(name, facts)
    assert found is not None
    assert math.isclose(found, expected, abs_tol=1e-12)


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_a_wrong_candidate_has_nothing_unless_the_formula_says_so(name: str) -> None:
    """Two formulas punish it, one pays for what was built."""
    own = {"cuda-agent@1": -1.0, "cuda-agent@2": -1.0, "kernelgym-stepped@1": -0.3, "openenv@1": 0.1}
    assert reward(name, WRONG) == own.get(name, 0.0)


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_what_is_not_the_candidates_fault_has_no_reward(name: str) -> None:
    """An outage, a cancelled item, a reference that cannot be used: None, never a number."""
    for verdict in ("internal_error", "cancelled", None):
        assert reward(name, {"verdict": verdict}) is None
    assert reward(name, {"verdict": "invalid", "stage": "reference"}) is None
    # Its own text was refused.
    assert reward(name, {"verdict": "invalid", "stage": "compile"}) is not None


@pytest.mark.parametrize("name", sorted(set(REWARDS) - {"correct@1", "fast_0@1"}))
def test_a_speed_up_that_was_not_measured_is_not_guessed(name: str) -> None:
    """A correct candidate without a time has no reward that needs one."""
    assert reward(name, {"verdict": "accepted", "correct": True, "speedup": None}) is None


def test_an_unknown_name_is_refused() -> None:
    """With the names that there are."""
    with pytest.raises(NotFoundError, match=r"kevin@1"):
        named("kevni@1")
    with pytest.raises(NotFoundError):
        named("kevin@3")


def test_a_baseline_that_was_not_timed_is_not_guessed() -> None:
    """Where it would decide; a candidate that is slower than the eager one needs none."""
    assert reward("cuda-agent@2", FAST) is None
    assert reward("cuda-agent@2", SLOW) == 1.0


def test_turns_and_groups() -> None:
    """What Kevin-32B and CUDA-L1 do with rewards."""
    assert discounted([1.0, 0.0, 2.0]) == pytest.approx([1.0 + 0.4 * 0.8, 0.8, 2.0])
    # As in NeMo-RL #431: a fault of ours is no reward of 0, and says nothing of the turns before it.
    assert discounted([1.0, None, 0.0, 2.0]) == [None, None, 0.8, 2.0]
    assert normalised([1.0, None, 3.0]) == [-1.0, None, 1.0]
    assert normalised([2.0, 2.0]) == [0.0, 0.0]
    assert normalised([None]) == [None]


@pytest.mark.parametrize("count", range(1, 17))
@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1.1, 2.3, 1e-9, 1e9 / 7, -0.3])
def test_equal_rewards_are_normalised_to_nothing(value: float, count: int) -> None:
    """Though a mean of so many may be rounded to another number than each of them is."""
    assert normalised([value] * count) == [0.0] * count


def test_a_name_without_a_version_means_the_only_one() -> None:
    """Of several none is chosen silently: an update would change what is trained on."""
    assert reward("kernelbook", FAST) == reward("kernelbook@1", FAST)
    with pytest.raises(NotFoundError, match=r"reward 'kevin' has 2 versions; name one of kevin@1, kevin@2"):
        reward("kevin", FAST)
