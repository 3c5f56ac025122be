"""NVFP4 against its definition: every code, every tie, both ends of the range."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.formats.nvfp4 import (
    BLOCK,
    decode_e2m1,
    decode_e4m3fn,
    dequantize,
    encode_e2m1,
    encode_e4m3fn,
    pack_e2m1,
    quantize,
    unpack_e2m1,
)

ALL_BYTES = torch.arange(256, dtype=torch.uint8)


def e2m1_value(code: int) -> float:
    """The value of a code by the format's definition: bias 1, a subnormal at exponent 0."""
    sign = -1.0 if code & 8 else 1.0
    exponent, mantissa = code >> 1 & 3, code & 1
    return sign * (mantissa / 2 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1))


VALUES = [e2m1_value(code) for code in range(16)]


def nearest_code(value: float) -> int:
    """The code that rounding to nearest even with saturation gives, by exact arithmetic over all candidates."""
    if math.isnan(value):
        return 7
    sign = 8 if math.copysign(1.0, value) < 0 else 0
    if math.isinf(value):
        return sign | 7
    magnitude = Fraction(abs(value))
    return sign | min(range(8), key=lambda code: (abs(Fraction(VALUES[code]) - magnitude), code & 1))


def test_all_sixteen_codes_decode() -> None:
    """Every 4-bit code, the sign of zero included; the upper half of the byte is ignored."""
    decoded = decode_e2m1(ALL_BYTES)
    assert decoded.dtype == torch.float32
    expected = [VALUES[byte & 15] for byte in range(256)]
    assert decoded.tolist() == expected
    assert torch.signbit(decoded).tolist() == [math.copysign(1.0, value) < 0 for value in expected]


def test_every_value_encodes_to_its_code() -> None:
    """Encoding inverts decoding, for both zeros too."""
    assert encode_e2m1(decode_e2m1(torch.arange(16, dtype=torch.uint8))).tolist() == list(range(16))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_ties_go_to_the_even_code(dtype: torch.dtype) -> None:
    """Each midpoint, and the nearest numbers of the dtype on both sides of it."""
    points = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=dtype)
    # nextafter knows no 16-bit types: step one unit in the last place through the bits.
    bits = points.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    around = torch.cat([points, (bits - 1).view(dtype), (bits + 1).view(dtype)])
    values = torch.cat([around, -around])
    assert encode_e2m1(values).tolist() == [nearest_code(value) for value in values.tolist()]
    assert encode_e2m1(points).tolist() == [0, 2, 2, 4, 4, 6, 6]


def test_out_of_range_saturates() -> None:
    """Large numbers and infinities become 6, NaN becomes +6 whatever its sign, as CUDA's conversion has it."""
    values = torch.tensor([6.5, 1e30, math.inf, -7.0, -math.inf, math.nan, -math.nan])
    assert encode_e2m1(values).tolist() == [7, 7, 7, 15, 15, 7, 7]


@given(st.lists(st.floats(width=32), min_size=1, max_size=32))
def test_any_number_encodes_to_the_nearest_code(numbers: list[float]) -> None:
    """Against exact arithmetic."""
    assert encode_e2m1(torch.tensor(numbers)).tolist() == [nearest_code(number) for number in numbers]


@given(st.lists(st.floats(min_value=-8, max_value=8), min_size=1, max_size=32))
def test_float64_is_not_rounded_twice(numbers: list[float]) -> None:
    """A double just above a tie must not become the tie on the way."""
    assert encode_e2m1(torch.tensor(numbers, dtype=torch.float64)).tolist() == [
        nearest_code(value) for value in numbers
    ]
    assert encode_e2m1(torch.tensor([0.25 + 2**-50], dtype=torch.float64)).tolist() == [1]


def test_shapes_and_strides_are_kept() -> None:
    """Encoding takes any view."""
    values = torch.randn(4, 6).t()
    assert torch.equal(encode_e2m1(values), encode_e2m1(values.contiguous()))
    assert encode_e2m1(values).shape == (6, 4)


def test_the_low_half_of_a_byte_is_the_earlier_element() -> None:
    """All 256 bytes unpack and pack again, along any dimension and from torch's own packed type."""
    codes = unpack_e2m1(ALL_BYTES)
    assert codes.tolist() == [half for byte in range(256) for half in (byte & 15, byte >> 4)]
    assert torch.equal(pack_e2m1(codes), ALL_BYTES)
    table = ALL_BYTES.reshape(16, 16)
    assert torch.equal(unpack_e2m1(table, dim=0), unpack_e2m1(table.t().contiguous()).t())
    assert torch.equal(pack_e2m1(unpack_e2m1(table, dim=0), dim=0), table)
    assert torch.equal(unpack_e2m1(table.view(torch.float4_e2m1fn_x2)), unpack_e2m1(table))


def test_an_odd_number_of_codes_is_refused() -> None:
    """Half a byte cannot be packed."""
    with pytest.raises(ValueError, match="found 3 codes along dimension -1, expected an even number to pack"):
        pack_e2m1(torch.zeros(2, 3, dtype=torch.uint8))


def e4m3fn_value(code: int) -> float:
    """The value of a code by the format's definition: bias 7, no infinities, one NaN per sign."""
    sign = -1.0 if code & 128 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    if (exponent, mantissa) == (15, 7):
        return math.nan
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def test_all_scale_codes_decode() -> None:
    """All 256 codes, by definition and as torch reads its own type."""
    decoded = decode_e4m3fn(ALL_BYTES)
    expected = torch.tensor([e4m3fn_value(code) for code in range(256)])
    assert torch.equal(decoded.nan_to_num(nan=1e9), expected.nan_to_num(nan=1e9))
    assert torch.equal(torch.signbit(decoded)[:127], torch.signbit(expected)[:127])
    native = ALL_BYTES.view(torch.float8_e4m3fn)
    assert torch.equal(decode_e4m3fn(native).nan_to_num(nan=1e9), native.float().nan_to_num(nan=1e9))


def test_every_scale_encodes_to_its_code() -> None:
    """Encoding inverts decoding for all finite codes."""
    finite = ALL_BYTES[(ALL_BYTES & 0x7F) != 0x7F]
    assert torch.equal(encode_e4m3fn(decode_e4m3fn(finite)).view(torch.uint8), finite)


def test_scales_round_to_even_and_saturate() -> None:
    """The midpoint of each pair of neighbours goes to the even one; beyond 448 is 448."""
    positive = decode_e4m3fn(ALL_BYTES[:127])
    midpoints = (positive[:-1] + positive[1:]) / 2
    expected = [code if code % 2 == 0 else code + 1 for code in range(126)]
    assert encode_e4m3fn(midpoints).view(torch.uint8).tolist() == expected
    large = torch.tensor([449.0, 470.0, 1e30, math.inf, -1e30])
    assert encode_e4m3fn(large).float().tolist() == [448.0, 448.0, 448.0, 448.0, -448.0]
    assert encode_e4m3fn(torch.tensor([math.nan])).float().isnan().all()


def test_all_products_of_value_and_scale_are_exact() -> None:
    """Dequantizing every code with every finite scale equals exact arithmetic."""
    scales = ALL_BYTES[(ALL_BYTES & 0x7F) != 0x7F]
    packed = pack_e2m1(torch.arange(16, dtype=torch.uint8)).repeat(len(scales), 1)
    decoded = dequantize(packed, scales.unsqueeze(1))
    for row, scale in zip(decoded.tolist(), scales.tolist(), strict=True):
        assert row == [float(Fraction(value) * Fraction(e4m3fn_value(scale))) for value in VALUES]


def test_each_block_has_its_own_scale() -> None:
    """Sixteen values, then the next scale."""
    packed = pack_e2m1(torch.full((2, 4 * BLOCK), 2, dtype=torch.uint8))
    scales = torch.tensor([[1.0, 2.0, 0.5, 4.0], [8.0, 0.0, 1.0, 3.0]]).to(torch.float8_e4m3fn)
    assert torch.equal(dequantize(packed, scales), scales.float().repeat_interleave(BLOCK, dim=1))


def test_scales_that_do_not_fit_are_refused() -> None:
    """The message gives both shapes."""
    with pytest.raises(ValueError, match=r"found scales of shape \(2, 3\), expected \(2, 2\): one per 16 values"):
        dequantize(torch.zeros(2, 16, dtype=torch.uint8), torch.zeros(2, 3, dtype=torch.uint8))


def test_a_ragged_length_is_refused() -> None:
    """Blocks are whole."""
    with pytest.raises(ValueError, match="found 24 values in the last dimension, expected a multiple of 16"):
        quantize(torch.zeros(24))


def test_quantizing_representable_values_is_exact() -> None:
    """What came from the format goes back into it unchanged, if each block uses its full range."""
    generator = torch.Generator().manual_seed(5)
    codes = torch.randint(0, 16, (64, 4, BLOCK), dtype=torch.uint8, generator=generator)
    codes[..., 3] = 7  # A six: the block's largest magnitude is then 6 times its scale.
    scales = torch.randint(1, 126, (64, 4), dtype=torch.uint8, generator=generator)
    values = dequantize(pack_e2m1(codes.flatten(1)), scales)
    packed, found = quantize(values)
    assert torch.equal(found.view(torch.uint8), scales)
    assert torch.equal(dequantize(packed, found), values)


@pytest.mark.parametrize("magnitude", [1e-6, 1e-3, 1.0, 100.0, 2000.0])
def test_quantization_errs_by_half_a_step_at_most(magnitude: float) -> None:
    """Within the range of the scales, the error is half the widest step plus the scale's own rounding."""
    values = torch.randn(128, 8 * BLOCK, generator=torch.Generator().manual_seed(6)) * magnitude
    packed, scales = quantize(values)
    blocks = values.reshape(128, 8, BLOCK)
    errors = (dequantize(packed, scales).reshape(128, 8, BLOCK) - blocks).abs().amax(dim=-1)
    largest = blocks.abs().amax(dim=-1)
    # Steps near 6 are 2 wide: 1/6 of the largest value; a scale may be 1/16 off, or half its smallest step of 2**-9,
    # or saturated at 448.
    slack = largest * (1 / 6 + 1 / 16) + 6 * 2.0**-10 + (largest - 448 * 6).clamp(min=0)
    assert bool((errors <= slack).all())


def test_zeros_stay_zeros() -> None:
    """A block of zeros has scale 0 and no NaN."""
    packed, scales = quantize(torch.zeros(2, BLOCK))
    assert not scales.float().any()
    assert not dequantize(packed, scales).any()
