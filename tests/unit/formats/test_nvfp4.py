"""NVFP4 against its definition: every code, every scale, every product."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from tasks.problems.formats.nvfp4 import decode_e2m1, decode_e4m3fn, decode_pairs, dequantize, unpack_e2m1
from tests.unit.formats.scalar import E2M1, E4M3FN, same

ALL_BYTES = torch.arange(256, dtype=torch.uint8)
VALUES = [E2M1.value(code) for code in range(16)]


def test_all_sixteen_codes_decode() -> None:
    """Every 4-bit code, the sign of zero included; the upper half of the byte is ignored."""
    decoded = decode_e2m1(ALL_BYTES)
    assert decoded.dtype == torch.float32
    assert same(decoded.tolist(), [VALUES[byte & 15] for byte in range(256)])


def test_pairs_decode_as_their_codes_do() -> None:
    """The low half of a byte is the earlier element; any shape, any strides, torch's own packed type."""
    assert unpack_e2m1(ALL_BYTES).tolist() == [half for byte in range(256) for half in (byte & 15, byte >> 4)]
    table = ALL_BYTES.reshape(16, 16)
    assert torch.equal(unpack_e2m1(table.view(torch.float4_e2m1fn_x2)), unpack_e2m1(table))
    assert same(decode_pairs(table).flatten().tolist(), decode_e2m1(unpack_e2m1(ALL_BYTES)).tolist())
    assert torch.equal(decode_pairs(table.t()), decode_e2m1(unpack_e2m1(table.t())))
    assert torch.equal(decode_pairs(table.view(torch.float4_e2m1fn_x2)), decode_pairs(table))
    assert decode_pairs(ALL_BYTES[:0]).shape == (0,)


def test_all_scale_codes_decode() -> None:
    """All 256 codes, by definition, and of torch's own type."""
    expected = [E4M3FN.value(code) for code in range(256)]
    assert same(decode_e4m3fn(ALL_BYTES).tolist(), expected)
    assert same(decode_e4m3fn(ALL_BYTES.view(torch.float8_e4m3fn)).tolist(), decode_e4m3fn(ALL_BYTES).tolist())


def test_all_products_of_value_and_scale_are_exact() -> None:
    """Dequantizing every code with every finite scale equals exact arithmetic."""
    scales = ALL_BYTES[(ALL_BYTES & 0x7F) != 0x7F]
    packed = ALL_BYTES[0x10::0x22].repeat(len(scales), 1)
    decoded = dequantize(packed, scales.unsqueeze(1))
    for row, scale in zip(decoded.tolist(), scales.tolist(), strict=True):
        assert row == [float(Fraction(value) * Fraction(E4M3FN.value(scale))) for value in VALUES]


def test_scales_that_do_not_fit_are_refused() -> None:
    """The message gives both shapes."""
    with pytest.raises(ValueError, match=r"found scales of shape \(2, 3\), expected \(2, 2\): one per 16 values"):
        dequantize(torch.zeros(2, 16, dtype=torch.uint8), torch.zeros(2, 3, dtype=torch.uint8))
