"""NVFP4 against its definition: every code, every tie, both ends of the range."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from tasks.problems.formats.nvfp4 import (
    BLOCK,
    decode_e2m1,
    decode_e4m3fn,
    decode_pairs,
    dequantize,
    encode_e2m1,
    encode_e4m3fn,
    pack_e2m1,
    quantize,
    quantize_two_level,
    unpack_e2m1,
)
from tests.unit.formats.scalar import E2M1, E4M3FN, WIDE, around, same, sweep

ALL_BYTES = torch.arange(256, dtype=torch.uint8)


VALUES = [E2M1.value(code) for code in range(16)]


def nearest_code(value: float) -> int:
    """The code of the nearest number; NaN becomes +6, as CUDA's conversion has it."""
    number = 6.0 if math.isnan(value) else E2M1.nearest(value)
    return VALUES.index(abs(number)) + 8 * (math.copysign(1.0, number) < 0)


def test_all_sixteen_codes_decode() -> None:
    """Every 4-bit code, the sign of zero included; the upper half of the byte is ignored."""
    decoded = decode_e2m1(ALL_BYTES)
    assert decoded.dtype == torch.float32
    expected = [VALUES[byte & 15] for byte in range(256)]
    assert decoded.tolist() == expected
    assert torch.signbit(decoded).tolist() == [math.copysign(1.0, value) < 0 for value in expected]


@pytest.mark.parametrize("dtype", WIDE)
def test_ties_go_to_the_even_code(dtype: torch.dtype) -> None:
    """Each midpoint, and the nearest numbers of the dtype on both sides of it."""
    points = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=dtype)
    values = around(points.tolist(), dtype)
    assert encode_e2m1(values).tolist() == [nearest_code(value) for value in values.tolist()]
    assert encode_e2m1(points).tolist() == [0, 2, 2, 4, 4, 6, 6]


@pytest.mark.parametrize(("dtype", "step"), [(torch.float32, 400_009), (torch.float64, 1_746_151_017_111_111)])
def test_numbers_of_all_magnitudes_encode(dtype: torch.dtype, step: int) -> None:
    """Bit patterns at even distances."""
    for values in sweep(dtype, step):
        assert encode_e2m1(values).tolist() == [nearest_code(value) for value in values.tolist()]


def test_the_low_half_of_a_byte_is_the_earlier_element() -> None:
    """All 256 bytes unpack and pack again, along any dimension and from torch's own packed type."""
    codes = unpack_e2m1(ALL_BYTES)
    assert codes.tolist() == [half for byte in range(256) for half in (byte & 15, byte >> 4)]
    assert torch.equal(pack_e2m1(codes), ALL_BYTES)
    table = ALL_BYTES.reshape(16, 16)
    assert torch.equal(unpack_e2m1(table, dim=0), unpack_e2m1(table.t().contiguous()).t())
    assert torch.equal(pack_e2m1(unpack_e2m1(table, dim=0), dim=0), table)
    assert torch.equal(unpack_e2m1(table.view(torch.float4_e2m1fn_x2)), unpack_e2m1(table))


def test_pairs_decode_as_their_codes_do() -> None:
    """All 256 bytes, the signs of zeros too; any shape, any strides, torch's own packed type."""
    table = ALL_BYTES.reshape(16, 16)
    assert same(decode_pairs(table).flatten().tolist(), decode_e2m1(unpack_e2m1(ALL_BYTES)).tolist())
    assert torch.equal(decode_pairs(table.t()), decode_e2m1(unpack_e2m1(table.t())))
    assert torch.equal(decode_pairs(table.view(torch.float4_e2m1fn_x2)), decode_pairs(table))
    assert decode_pairs(ALL_BYTES[:0]).shape == (0,)


def test_what_does_not_fit_is_refused() -> None:
    """Half a byte cannot be packed, and blocks are whole. The messages give found and expected."""
    with pytest.raises(ValueError, match="found 3 codes along dimension -1, expected an even number to pack"):
        pack_e2m1(torch.zeros(2, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"found scales of shape \(2, 3\), expected \(2, 2\): one per 16 values"):
        dequantize(torch.zeros(2, 16, dtype=torch.uint8), torch.zeros(2, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="found 24 values in the last dimension, expected a multiple of 16"):
        quantize(torch.zeros(24))


def test_all_scale_codes_decode() -> None:
    """All 256 codes, by definition and as torch reads its own type."""
    decoded = decode_e4m3fn(ALL_BYTES)
    expected = torch.tensor([E4M3FN.value(code) for code in range(256)])
    assert torch.equal(decoded.nan_to_num(nan=1e9), expected.nan_to_num(nan=1e9))
    assert torch.equal(torch.signbit(decoded)[:127], torch.signbit(expected)[:127])
    native = ALL_BYTES.view(torch.float8_e4m3fn)
    assert torch.equal(decode_e4m3fn(native).nan_to_num(nan=1e9), native.float().nan_to_num(nan=1e9))


def test_scales_round_to_even_and_saturate() -> None:
    """The midpoint of each pair of neighbours goes to the even one; beyond 448 is 448."""
    positive = decode_e4m3fn(ALL_BYTES[:127])
    midpoints = (positive[:-1] + positive[1:]) / 2
    expected = [code if code % 2 == 0 else code + 1 for code in range(126)]
    assert encode_e4m3fn(midpoints).view(torch.uint8).tolist() == expected
    large = torch.tensor([449.0, 470.0, 1e30, math.inf, -1e30])
    assert encode_e4m3fn(large).float().tolist() == [448.0, 448.0, 448.0, 448.0, -448.0]
    assert encode_e4m3fn(torch.tensor([math.nan])).float().isnan().all()
    close = torch.tensor([1.0625 + 2**-40, 1.1875 - 2**-40], dtype=torch.float64)
    assert encode_e4m3fn(close).float().tolist() == [1.125, 1.125]


def test_all_products_of_value_and_scale_are_exact() -> None:
    """Dequantizing every code with every finite scale equals exact arithmetic."""
    scales = ALL_BYTES[(ALL_BYTES & 0x7F) != 0x7F]
    packed = pack_e2m1(torch.arange(16, dtype=torch.uint8)).repeat(len(scales), 1)
    decoded = dequantize(packed, scales.unsqueeze(1))
    for row, scale in zip(decoded.tolist(), scales.tolist(), strict=True):
        assert row == [float(Fraction(value) * Fraction(E4M3FN.value(scale))) for value in VALUES]


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


def half_even(quotient: Fraction) -> int:
    """The code of an exact quotient."""
    magnitude = abs(quotient)
    code = min(range(8), key=lambda code: (abs(Fraction(VALUES[code]) - magnitude), code & 1))
    return code + 8 * (quotient < 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_quantizing_rounds_the_exact_quotient(dtype: torch.dtype) -> None:
    """No quotient of a value and a scale becomes a tie by being rounded first: values at and next to each tie."""
    scales = [E4M3FN.value(code) for code in (1, 7, 8, 15, 16, 87, 93, 119, 126)]
    for scale in scales:
        ties = around([tie * scale for tie in E2M1.midpoints], dtype)
        values = torch.zeros(len(ties), BLOCK, dtype=dtype)
        values[:, 0], values[:, 1] = ties, 6 * scale
        codes = unpack_e2m1(quantize(values)[0])[:, 0]
        expected = [half_even(Fraction(tie) / Fraction(scale)) for tie in ties.tolist()]
        assert [code % 8 for code in codes.tolist()] == [code % 8 for code in expected]


def test_two_levels_follow_their_steps() -> None:
    """The tensor's scale maps its largest magnitude to 6 · 448, whatever the magnitudes; block by block in float32."""
    generator = torch.Generator().manual_seed(8)
    for magnitude in (1e-20, 1e-4, 1.0, 1e6, 1e30):
        values = torch.randn(16, 4 * BLOCK, generator=generator) * magnitude
        packed, scales, tensor_scale = quantize_two_level(values)
        assert (tensor_scale.dtype, tensor_scale.shape) == (torch.float32, ())
        largest = np.float32(values.abs().max().item())
        encode = np.float32(2688.0) / largest
        assert tensor_scale.item() == np.float32(1) / encode
        assert scales.float().max().item() == 448.0
        for row in range(16):
            for block in range(4):
                numbers = values[row, block * BLOCK : (block + 1) * BLOCK].numpy()
                wanted = E4M3FN.nearest(float(np.abs(numbers).max() / np.float32(6) * encode))
                assert scales[row, block].float().item() == wanted
                factor = np.float32(1) / (np.float32(wanted) * (np.float32(1) / encode))
                codes = unpack_e2m1(packed[row])[block * BLOCK : (block + 1) * BLOCK].tolist()
                assert codes == [nearest_code(float(number * factor)) for number in numbers]
        decoded = dequantize(packed, scales, tensor_scale)
        assert torch.equal(decoded, dequantize(packed, scales) * tensor_scale)
        # Half the widest step (1 of 6) and the rounding of the scale (1/16): of the block's largest magnitude.
        bound = values.reshape(16, 4, BLOCK).abs().amax(dim=-1) * (1 / 6 + 1 / 16) + 6 * 2.0**-10 * tensor_scale
        assert bool(((decoded - values).reshape(16, 4, BLOCK).abs().amax(dim=-1) <= bound).all())


def test_zeros_stay_zeros() -> None:
    """A block of zeros has scale 0 and no NaN."""
    packed, scales = quantize(torch.zeros(2, BLOCK))
    assert not scales.float().any()
    assert not dequantize(packed, scales).any()
