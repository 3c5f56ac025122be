"""FP8 against its definitions, number by number, and against torch's own conversions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from tasks.problems.formats.fp8 import (
    FORMATS,
    MX_BLOCK,
    ScaleRule,
    decode,
    decode_e8m0,
    dequantize_mx,
    dequantize_tiles,
    encode,
    encode_e8m0,
    inverse_e8m0,
    quantize_mx,
    quantize_tiles,
    shared_scales,
)
from tests.unit.formats.scalar import SPECS, WIDE, around, every_pattern, same, sweep

ALL_BYTES = torch.arange(256, dtype=torch.uint8)
formats = pytest.mark.parametrize("dtype", SPECS, ids=lambda dtype: str(dtype).removeprefix("torch.float8_"))
wides = pytest.mark.parametrize("wide", WIDE, ids=lambda dtype: str(dtype).removeprefix("torch."))


def nearest(values: torch.Tensor, dtype: torch.dtype, *, saturate: bool = True) -> list[float]:
    """What each number should become."""
    return [SPECS[dtype].nearest(value, saturate=saturate) for value in values.tolist()]


@formats
def test_all_codes_decode(dtype: torch.dtype) -> None:
    """All 256, by definition and as torch reads its own type; encoding inverts decoding for every code but NaN's."""
    decoded = decode(ALL_BYTES, dtype)
    assert decoded.dtype == torch.float32
    assert same(decoded.tolist(), [SPECS[dtype].value(code) for code in range(256)])
    assert same(decode(ALL_BYTES.view(dtype), dtype).tolist(), ALL_BYTES.view(dtype).double().tolist())
    numbers = ~decoded.isnan()
    assert torch.equal(encode(decoded, dtype, saturate=False).view(torch.uint8)[numbers], ALL_BYTES[numbers])
    assert encode(decoded[~numbers], dtype).float().isnan().all()


def test_the_exceptions_are_where_the_tables_have_them() -> None:
    """NaNs, infinities, zeros, the least and the largest numbers, code by code."""
    nans = {dtype: [code for code in range(256) if math.isnan(SPECS[dtype].value(code))] for dtype in SPECS}
    assert nans == {
        torch.float8_e4m3fn: [0x7F, 0xFF],
        torch.float8_e4m3fnuz: [0x80],
        torch.float8_e5m2: [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF],
        torch.float8_e5m2fnuz: [0x80],
    }
    largest = {dtype: (FORMATS[dtype].largest_value, torch.finfo(dtype).max) for dtype in SPECS}
    assert set(largest.values()) == {(448.0, 448.0), (240.0, 240.0), (57344.0, 57344.0)}
    assert [decode(torch.tensor([code], dtype=torch.uint8), dtype).item() for dtype, code in (
        (torch.float8_e4m3fn, 0x7E), (torch.float8_e4m3fn, 0x01), (torch.float8_e4m3fn, 0x08),
        (torch.float8_e4m3fnuz, 0x7F), (torch.float8_e4m3fnuz, 0x01), (torch.float8_e4m3fnuz, 0x08),
        (torch.float8_e5m2, 0x7B), (torch.float8_e5m2, 0x01), (torch.float8_e5m2, 0xFC),
        (torch.float8_e5m2fnuz, 0x7F), (torch.float8_e5m2fnuz, 0x01),
    )] == [
        448.0, 2.0**-9, 2.0**-6, 240.0, 2.0**-10, 2.0**-7, 57344.0, 2.0**-16, -math.inf, 57344.0, 2.0**-17,
    ]  # fmt: skip


@formats
@wides
def test_every_tie_goes_to_even(dtype: torch.dtype, wide: torch.dtype) -> None:
    """Each midpoint, the nearest numbers of the wide type on both sides of it, and each value and its neighbours."""
    spec = SPECS[dtype]
    points = [*spec.midpoints, *(spec.value(code) for code in spec.finite)]
    values = around(points, wide)
    # The midpoints of e5m2fnuz reach below float16's least number.
    assert values.numel() >= 6 * (len(points) - 8)
    for saturate in (True, False):
        assert same(
            encode(values, dtype, saturate=saturate).double().tolist(), nearest(values, dtype, saturate=saturate)
        )


@formats
@pytest.mark.parametrize(("wide", "step"), [(torch.float32, 400_009), (torch.float64, 1_746_151_017_111_111)])
def test_numbers_of_all_magnitudes_encode(dtype: torch.dtype, wide: torch.dtype, step: int) -> None:
    """Bit patterns at even distances, saturated and not."""
    for values in sweep(wide, step):
        for saturate in (True, False):
            found = encode(values, dtype, saturate=saturate).double().tolist()
            assert same(found, nearest(values, dtype, saturate=saturate))


@formats
def test_too_large_is_saturated_or_not(dtype: torch.dtype) -> None:
    """Infinities, the largest float32, and the midpoint to the first number that is too large."""
    kind = FORMATS[dtype]
    values = torch.tensor([math.inf, -math.inf, 3e38, -3e38, kind.largest_value])
    expected = [kind.largest_value, -kind.largest_value, kind.largest_value, -kind.largest_value, kind.largest_value]
    assert encode(values, dtype).tolist() == expected
    over = encode(values[:4], dtype, saturate=False).view(torch.uint8).tolist()
    assert (
        over
        == {
            torch.float8_e4m3fn: [0x7F, 0xFF, 0x7F, 0xFF],
            torch.float8_e4m3fnuz: [0x80] * 4,
            torch.float8_e5m2: [0x7C, 0xFC, 0x7C, 0xFC],
            torch.float8_e5m2fnuz: [0x80] * 4,
        }[dtype]
    )
    limit = encode(torch.tensor([kind.limit]), dtype, saturate=False).float().item()
    assert (limit == kind.largest_value) is not kind.limit_overflows


def test_all_powers_of_two_decode() -> None:
    """All 256 codes of e8m0, by definition and as torch reads its own type; encoding inverts decoding both ways."""
    decoded = decode_e8m0(ALL_BYTES)
    assert same(decoded.tolist(), [2.0 ** (code - 127) for code in range(255)] + [math.nan])
    assert same(decode_e8m0(ALL_BYTES.view(torch.float8_e8m0fnu)).tolist(), decoded.tolist())
    for round_up in (False, True):
        assert torch.equal(encode_e8m0(decoded, round_up=round_up).view(torch.uint8), ALL_BYTES)
    assert (decoded * inverse_e8m0(ALL_BYTES))[:255].double().eq(1).all()
    assert inverse_e8m0(ALL_BYTES)[255].isnan()


def power_of_two(number: float, *, round_up: bool) -> float:
    """The power of two at or next to a magnitude, within what e8m0 has."""
    if math.isnan(number):
        return math.nan
    if number == 0 or math.isinf(number):
        return 2.0**-127 if number == 0 else 2.0**127
    fraction, exponent = math.frexp(abs(number))
    exponent -= 1 if fraction == 0.5 or not round_up else 0
    return 2.0 ** min(max(exponent, -127), 127)


@pytest.mark.parametrize("round_up", [False, True], ids=["down", "up"])
@wides
def test_scales_round_to_a_power_of_two(wide: torch.dtype, round_up: bool) -> None:
    """Every 16-bit pattern, or a sweep; zero, subnormals, infinities, negative numbers and float32's extremes."""
    bits = (
        every_pattern(wide)
        if wide.itemsize == 2
        else next(sweep(wide, {4: 262_147, 8: 1_125_899_906_842_679}[wide.itemsize]))
    )
    edges = torch.tensor([2.0**-127, 2.0**-127 * 1.5, 2.0**-128, 2.0**-126 * 1.5, 0.0, -0.0, -3.0, 3.4e38, math.inf])
    values = torch.cat([bits, edges.to(wide)])
    found = encode_e8m0(values, round_up=round_up).double().tolist()
    assert same(found, [power_of_two(number, round_up=round_up) for number in values.tolist()])


def shared(largest: float, rule: ScaleRule, spec_largest: float, mantissa_bits: int) -> float:
    """A block's scale by the words of its rule, in exact arithmetic."""
    if math.isnan(largest):
        return math.nan
    top = math.frexp(spec_largest)[1] - 1
    if largest == 0:
        return 2.0**-127
    number = Fraction(largest)
    exponent = math.frexp(largest)[1] - 1
    if rule is ScaleRule.NVIDIA:
        exponent = next(
            e for e in (exponent - top, exponent - top + 1) if number <= Fraction(spec_largest) * Fraction(2) ** e
        )
        return 2.0 ** min(max(exponent, -127), 127)
    if rule is ScaleRule.AMD:
        ulp = Fraction(2) ** (exponent - mantissa_bits)
        # Away from zero at a tie: only that the next power of two is reached matters, and it has an even mantissa.
        exponent += (number + ulp / 2) // ulp * ulp >= Fraction(2) ** (exponent + 1)
    return 2.0 ** min(max(exponent - top, -127), 127)


@pytest.mark.parametrize("rule", ScaleRule)
@formats
def test_a_shared_scale_is_what_its_rule_says(dtype: torch.dtype, rule: ScaleRule) -> None:
    """Over all magnitudes, at the points where the rules part, and next to them."""
    kind = FORMATS[dtype]
    edges = torch.tensor([1.0, 1.5, 1.75, 1.875, 1.9375, 1.96875, 1.99])
    edges = torch.cat([edges * 2.0**exponent for exponent in (-126, -1, 0, 3, 8, 127)])
    edges = torch.cat(
        [edges, torch.nextafter(edges, torch.tensor(0.0)), torch.nextafter(edges, torch.tensor(math.inf))]
    )
    values = torch.cat([edges, next(sweep(torch.float32, 2_000_003)).abs()])
    values = values[values.isfinite() | values.isnan()]
    found = shared_scales(values, rule, largest_value=kind.largest_value, mantissa_bits=kind.mantissa_bits)
    expected = [shared(number, rule, kind.largest_value, kind.mantissa_bits) for number in values.tolist()]
    assert same(found.double().tolist(), expected)


@formats
@pytest.mark.parametrize("rule", ScaleRule)
def test_mx_blocks_quantize_as_defined(dtype: torch.dtype, rule: ScaleRule) -> None:
    """Each block against exact arithmetic, in float32 and float64; dequantizing is exact."""
    generator = torch.Generator().manual_seed(11)
    magnitudes = 2.0 ** torch.randint(-30, 30, (40, 1), generator=generator)
    values = torch.randn(40, 2 * MX_BLOCK, generator=generator, dtype=torch.float64) * magnitudes
    for given_values in (values, values.float()):
        codes, scales = quantize_mx(given_values, dtype, rule)
        assert (codes.dtype, codes.shape) == (dtype, values.shape)
        assert (scales.dtype, scales.shape) == (torch.float8_e8m0fnu, (40, 2))
        decoded = dequantize_mx(codes, scales, dtype)
        for row, block in ((row, block) for row in range(40) for block in range(2)):
            span = slice(block * MX_BLOCK, (block + 1) * MX_BLOCK)
            numbers = given_values[row, span].tolist()
            kind = FORMATS[dtype]
            scale = shared(max(map(abs, numbers)), rule, kind.largest_value, kind.mantissa_bits)
            assert scales[row, block].double().item() == scale
            expected = [SPECS[dtype].nearest(number / scale) * scale for number in numbers]
            assert decoded[row, span].tolist() == expected


@formats
@pytest.mark.parametrize("tile", [(1, 128), (128, 128), (1, 32), (4, 8)])
def test_tiles_quantize_with_their_own_scale(dtype: torch.dtype, tile: tuple[int, int]) -> None:
    """Each tile's largest magnitude becomes the format's; scale and codes are those of the stated steps in float32."""
    generator = torch.Generator().manual_seed(12)
    rows, columns = 2 * tile[0], 3 * tile[1]
    values = torch.randn(2, rows, columns, generator=generator) * 10
    codes, scales = quantize_tiles(values, dtype, tile=tile)
    assert scales.shape == (2, 2, 3)
    wide = scales.repeat_interleave(tile[0], dim=-2).repeat_interleave(tile[1], dim=-1)
    some = slice(None, None, 7 if values.numel() < 10_000 else 131)
    assert same(codes.double().flatten()[some].tolist(), nearest((values / wide).flatten()[some], dtype))
    assert torch.equal(dequantize_tiles(codes, scales, dtype, tile=tile), decode(codes, dtype) * wide)
    for i, r, c in ((0, 0, 0), (1, 1, 2)):
        block = values[i, r * tile[0] : (r + 1) * tile[0], c * tile[1] : (c + 1) * tile[1]]
        assert scales[i, r, c] == block.abs().max() / FORMATS[dtype].largest_value


def test_zeros_stay_zeros_and_a_nan_spoils_its_block() -> None:
    """A tile or block of zeros has a finite scale and no NaN; a NaN's block has the scale NaN, its neighbour not."""
    codes, scales = quantize_tiles(torch.zeros(1, 128), torch.float8_e4m3fnuz)
    assert (scales.tolist(), codes.float().abs().max().item()) == ([[1.0]], 0.0)
    codes, scales = quantize_tiles(torch.full((1, 128), 2.0**-149), torch.float8_e4m3fnuz)
    assert (scales.tolist(), codes.float().abs().max().item()) == ([[1.0]], 0.0)
    codes, scales = quantize_mx(torch.zeros(1, MX_BLOCK), torch.float8_e5m2)
    assert not dequantize_mx(codes, scales, torch.float8_e5m2).any()
    values = torch.ones(2 * MX_BLOCK)
    values[3] = math.nan
    codes, scales = quantize_mx(values, torch.float8_e4m3fn)
    assert scales.view(torch.uint8)[0] == 255
    decoded = dequantize_mx(codes, scales, torch.float8_e4m3fn)
    assert decoded[:MX_BLOCK].isnan().all()
    assert decoded[MX_BLOCK:].tolist() == [1.0] * MX_BLOCK


def test_what_does_not_fit_is_refused() -> None:
    """The messages give found and expected."""
    with pytest.raises(ValueError, match="found a matrix of 3 by 128, expected multiples of 2 by 64"):
        quantize_tiles(torch.zeros(3, 128), torch.float8_e5m2, tile=(2, 64))
    with pytest.raises(
        ValueError, match=r"found scales of shape \(2, 2\), expected \(2, 1\): one per tile of \(1, 128\)"
    ):
        dequantize_tiles(torch.zeros(2, 128, dtype=torch.uint8), torch.zeros(2, 2), torch.float8_e5m2)
    with pytest.raises(ValueError, match="found 24 values in the last dimension, expected a multiple of 32"):
        quantize_mx(torch.zeros(24), torch.float8_e5m2)
    with pytest.raises(ValueError, match=r"found scales of shape \(3,\), expected \(2,\): one per 32 values"):
        dequantize_mx(torch.zeros(64, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8), torch.float8_e5m2)
