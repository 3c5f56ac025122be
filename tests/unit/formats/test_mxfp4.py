"""MXFP4: blocks against exact arithmetic; codes and scales alone are tested with NVFP4 and FP8, of the same text."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from tasks.problems.formats.mxfp4 import BLOCK, ScaleRule, decode_e8m0, dequantize, pack_e2m1, quantize, unpack_e2m1
from tests.unit.formats.scalar import E2M1, WIDE, same

ALL_BYTES = torch.arange(256, dtype=torch.uint8)


def shared_exponent(largest: float, rule: ScaleRule) -> int:
    """A block's exponent by the words of its rule."""
    number = Fraction(largest)
    floor = next(e for e in range(-1080, 1030) if Fraction(2) ** (e + 1) > number)
    if rule is ScaleRule.NVIDIA:
        return floor - 2 if number <= 6 * Fraction(2) ** (floor - 2) else floor - 1
    # 1.75 is where one bit of mantissa rounds up to 2.
    return floor - 1 if rule is ScaleRule.AMD and number >= Fraction(7, 4) * Fraction(2) ** floor else floor - 2


@pytest.mark.parametrize("rule", ScaleRule)
@pytest.mark.parametrize("dtype", WIDE)
def test_blocks_quantize_as_defined(dtype: torch.dtype, rule: ScaleRule) -> None:
    """Scale and values of each block, whatever its magnitude, the points where the rules part among them."""
    generator = torch.Generator().manual_seed(3)
    spread = (-12, 12) if dtype is torch.float16 else (-100, 100)
    magnitudes = 2.0 ** torch.randint(*spread, (60, 1), generator=generator).double()
    values = torch.randn(60, BLOCK, generator=generator, dtype=torch.float64) * magnitudes
    edges = torch.tensor([1.0, 1.25, 1.5, 1.5078125, 1.7421875, 1.75, 1.875, 1.9921875])
    values[: len(edges)] = values[: len(edges)].clamp(-0.5, 0.5) / magnitudes[: len(edges)]
    values[: len(edges)] = values[: len(edges)].clamp(-1, 1)
    values[: len(edges), 5] = -edges.double()
    given = values.to(dtype)
    packed, scales = quantize(given, rule)
    assert (packed.dtype, packed.shape) == (torch.uint8, (60, BLOCK // 2))
    assert (scales.dtype, scales.shape) == (torch.float8_e8m0fnu, (60, 1))
    decoded = dequantize(packed, scales)
    for row, numbers in enumerate(given.tolist()):
        scale = 2.0 ** shared_exponent(max(map(abs, numbers)), rule)
        assert scales[row].double().item() == scale
        assert same(decoded[row].tolist(), [E2M1.nearest(number / scale) * scale for number in numbers])


def test_float64_is_not_rounded_twice() -> None:
    """A value next to a tie, and a largest magnitude next to where a rule steps on."""
    values = torch.zeros(2, BLOCK, dtype=torch.float64)
    values[:, 0] = 6.0
    values[0, 1], values[1, 1] = 0.25 + 2**-50, 0.25
    assert unpack_e2m1(quantize(values)[0])[:, 1].tolist() == [1, 0]
    values[:, 0] = torch.tensor([6.0 + 2**-45, 6.0], dtype=torch.float64)
    assert quantize(values, ScaleRule.NVIDIA)[1].flatten().tolist() == [2, 1]


def test_the_ends_of_the_range() -> None:
    """The least scale for what is too small and for zeros; the largest numbers of float32 stay within a step."""
    for tiny in (0.0, 2.0**-149, 2.0**-140):
        packed, scales = quantize(torch.full((BLOCK,), tiny))
        assert scales.view(torch.uint8).tolist() == [0]
        assert not dequantize(packed, scales).any()
    least = quantize(torch.full((BLOCK,), 2.0**-127))
    assert dequantize(*least).tolist() == [2.0**-127] * BLOCK
    large = torch.full((BLOCK,), torch.finfo(torch.float32).max)
    for rule, expected in ((ScaleRule.OCP, 1.5 * 2.0**127), (ScaleRule.NVIDIA, math.inf), (ScaleRule.AMD, math.inf)):
        # 4 times 2 ** 126 is 2 ** 128.
        assert dequantize(*quantize(large, rule)).tolist() == [expected] * BLOCK


def test_all_products_of_value_and_scale_are_exact() -> None:
    """Every code with every scale, infinite above float32's range, NaN with the scale NaN."""
    packed = pack_e2m1(torch.arange(32, dtype=torch.uint8) % 16).repeat(256, 1)
    decoded = dequantize(packed, ALL_BYTES.unsqueeze(1))
    for code, row in enumerate(decoded[:, :16].tolist()):
        if code == 255:
            assert all(map(math.isnan, row))
            continue
        products = [E2M1.value(value) * 2.0 ** (code - 127) for value in range(16)]
        limit = torch.finfo(torch.float32).max
        assert same(row, [math.copysign(math.inf, p) if abs(p) > limit else p for p in products])
    assert torch.equal(decode_e8m0(ALL_BYTES)[:255], torch.tensor([2.0 ** (code - 127) for code in range(255)]))


def test_a_nan_spoils_its_block() -> None:
    """The block's scale is NaN, its neighbour's is not."""
    values = torch.ones(2 * BLOCK)
    values[3] = math.nan
    packed, scales = quantize(values)
    assert scales.view(torch.uint8).tolist() == [255, 125]
    assert dequantize(packed, scales).isnan().tolist() == [True] * BLOCK + [False] * BLOCK


def test_what_does_not_fit_is_refused() -> None:
    """The messages give found and expected."""
    with pytest.raises(ValueError, match="found 48 values in the last dimension, expected a multiple of 32"):
        quantize(torch.zeros(48))
    with pytest.raises(ValueError, match=r"found scales of shape \(2, 3\), expected \(2, 2\): one per 32 values"):
        dequantize(torch.zeros(2, 32, dtype=torch.uint8), torch.zeros(2, 3, dtype=torch.uint8))
