"""NVFP4 against its definition: every pair of codes, every scale."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from tasks.problems.formats.nvfp4 import decode_e4m3fn, decode_pairs, dequantize
from tests.unit.formats.scalar import ALL_BYTES, E2M1, E4M3FN, same

VALUES = [E2M1.value(code) for code in range(16)]


def test_all_pairs_decode() -> None:
    """All 256 bytes, the low half first, the signs of zeros too; any shape, any strides, torch's own packed type."""
    table = ALL_BYTES.reshape(16, 16)
    decoded = decode_pairs(table)
    assert (decoded.dtype, decoded.shape) == (torch.float32, (16, 32))
    assert same(decoded.flatten().tolist(), [VALUES[half] for byte in range(256) for half in (byte & 15, byte >> 4)])
    assert torch.equal(decode_pairs(table.t()), decode_pairs(table.t().contiguous()))
    assert torch.equal(decode_pairs(table.view(torch.float4_e2m1fn_x2)), decoded)
    assert decode_pairs(ALL_BYTES[:0]).shape == (0,)


def test_all_scale_codes_decode() -> None:
    """All 256 codes, by definition and as torch reads its own type."""
    decoded = decode_e4m3fn(ALL_BYTES)
    assert same(decoded.tolist(), [E4M3FN.value(code) for code in range(256)])
    native = ALL_BYTES.view(torch.float8_e4m3fn)
    assert same(decode_e4m3fn(native).tolist(), native.float().tolist())


def test_all_products_of_value_and_scale_are_exact() -> None:
    """Dequantizing every code with every finite scale equals exact arithmetic."""
    scales = ALL_BYTES[(ALL_BYTES & 0x7F) != 0x7F]
    packed = torch.tensor([code | (code + 1) << 4 for code in range(0, 16, 2)], dtype=torch.uint8)
    decoded = dequantize(packed.repeat(len(scales), 1), scales.unsqueeze(1))
    for row, scale in zip(decoded.tolist(), scales.tolist(), strict=True):
        assert row == [float(Fraction(value) * Fraction(E4M3FN.value(scale))) for value in VALUES]


def test_what_does_not_fit_is_refused() -> None:
    """The messages give found and expected."""
    with pytest.raises(ValueError, match=r"found scales of shape \(2, 3\), expected \(2, 2\): one per 16 values"):
        dequantize(torch.zeros(2, 16, dtype=torch.uint8), torch.zeros(2, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="found 24 values in the last dimension, expected a multiple of 16"):
        dequantize(torch.zeros(12, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8))
