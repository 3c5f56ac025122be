"""Which weights a candidate takes by name, and shifted ones."""

from __future__ import annotations

import torch

from runner.extras.trainers.inside.judge.weights import describe_match, is_full, matching, shifted

_STATE = {"a.weight": torch.ones(2, 3), "a.bias": torch.zeros(2)}
_W, _B = ("a.weight", (2, 3), "torch.float32"), ("a.bias", (2,), "torch.float32")


def test_names_shapes_and_dtypes_must_be_equal() -> None:
    """Names shapes and dtypes must be equal."""
    assert matching(_STATE, [_W, _B]) == ["a.weight", "a.bias"]
    assert matching(_STATE, [("a.weight", (3, 2), "torch.float32"), ("a.bias", (2,), "torch.float64")]) == []


def test_how_weights_come_is_told() -> None:
    """How weights come is told."""
    cases = {(_W, _B): "state_dict", (_W,): "both", (): "seed", (_W, _B, ("more", (1,), "torch.float32")): "both"}
    for found, expected in cases.items():
        assert describe_match(_STATE, found, matching(_STATE, found)) == expected
        assert is_full(_STATE, found, matching(_STATE, found)) == (expected == "state_dict")
    assert describe_match({}, [], []) == "none"
    assert describe_match({}, [_W], []) == "seed"


def test_parameters_and_running_statistics_are_shifted_and_nothing_else() -> None:
    """Parameters and running statistics are shifted and nothing else."""
    norm = torch.nn.BatchNorm1d(50)
    norm.register_buffer("mask", torch.ones(50))
    state = {name: item.clone() for name, item in norm.state_dict().items()}
    found = shifted(state, frozenset({"weight", "bias"}), torch.Generator().manual_seed(1))
    moved = {name for name, item in found.items() if not torch.equal(item, state[name])}
    assert moved == {"weight", "bias", "running_mean", "running_var"}
    assert float(found["running_var"].min()) > 0


def test_a_shift_has_the_size_of_the_weights() -> None:
    """A shift has the size of the weights."""
    state = {"w": torch.randn(1000) * 1e-3}
    found = shifted(state, frozenset({"w"}), torch.Generator().manual_seed(1))
    assert 0.5e-4 < float((found["w"] - state["w"]).std()) < 5e-4
