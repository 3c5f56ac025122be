"""The task that takes MXFP4 weights: its layouts, its quantization, and what its inputs are made to show."""

from __future__ import annotations

import pytest
import torch

from tests.unit.problems.bench import Bench
from tests.unit.problems.oracles.mxfp4 import rounded, shuffled_places, shuffled_scale_places

pytestmark = pytest.mark.parametrize("bench", ["mxfp4_mm"], indirect=True)
CASE = {"m": 9, "n": 320, "k": 576, "seed": 7}


def test_inputs_have_the_public_layout(bench: Bench) -> None:
    """Shapes, types and strides that published submissions rely on."""
    data = bench.generate(CASE)
    assert [(tuple(tensor.shape), tensor.dtype, tensor.is_contiguous()) for tensor in data] == [
        ((9, 576), torch.bfloat16, True),
        ((320, 576), torch.bfloat16, True),
        ((320, 288), torch.float4_e2m1fn_x2, True),
        ((320, 288), torch.float4_e2m1fn_x2, True),
        ((512, 24), torch.float8_e8m0fnu, True),
    ]


def test_the_shuffled_values_and_scales_are_those_of_the_weights(bench: Bench) -> None:
    """Byte by byte where the description says.

    With the scales the weights decode to what MXFP4 holds of B; padding is one.
    """
    _, weights, packed, shuffled, shuffled_scales = bench.generate(CASE)
    places = shuffled_places(*packed.shape)
    assert torch.equal(shuffled.view(torch.uint8).flatten()[places], packed.view(torch.uint8))
    places = shuffled_scale_places(320, 576 // 32, shuffled_scales.shape[1])
    flat = shuffled_scales.flatten().view(torch.uint8)
    assert torch.equal(bench.module("formats").dequantize(packed, flat[places]).double(), rounded(weights))
    rest = torch.ones(flat.numel(), dtype=torch.bool)
    rest[places.flatten()] = False
    assert flat[rest].eq(127).all()


def test_no_value_is_halfway(bench: Bench) -> None:
    """Ties would tell right kernels apart: there are many before the nudge, which moves a value by one step at most."""
    formats = bench.module("formats")
    for values in bench.generate(CASE)[:2]:
        rounded(values)
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(64, 512, generator=generator).bfloat16()
    before = formats.quantize(values, formats.ScaleRule.AMD)[1]
    nudged = bench.module("inputs").without_ties(values, before)
    steps = nudged.view(torch.int16).int() - values.view(torch.int16).int()
    assert set(steps.unique().tolist()) == {0, 1}
    with pytest.raises(AssertionError, match="halfway"):
        rounded(values)
    rounded(nudged)
    # The scales are those of before.
    after = formats.quantize(nudged, formats.ScaleRule.AMD)[1]
    assert torch.equal(before.view(torch.uint8), after.view(torch.uint8))


def test_sums_are_exact_in_float32(bench: Bench) -> None:
    """The longest sums of the public cases agree with float64 bit by bit."""
    left, right = (rounded(each) for each in bench.generate({"m": 16, "n": 192, "k": 7168, "seed": 3})[:2])
    assert torch.equal((left.float() @ right.float().T).double(), left @ right.T)
