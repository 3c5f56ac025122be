"""MXFP4: packed e2m1 values with one e8m0 scale per block of 32; vectorised torch, self-contained.

A task lists this one file among its own (`{"name": "formats.py", "source": "../formats/mxfp4.py"}`), so it imports
nothing but torch and the standard library. Called by references, checks and tests; never timed. Code shared with the
other files of this folder is the same text there; a test compares them.

The formats are those of the OCP Microscaling Formats specification 1.0, sections 5.3.3 (e2m1), 5.4.1 (e8m0) and 6.3
(conversion). Every e2m1 value and every e8m0 scale is a float32: decoding is exact.
"""

from __future__ import annotations

import enum
import functools
import math

import torch

#: Values that share a scale, along the innermost dimension.
BLOCK = 32
E2M1_MAX = 6.0
_E2M1_MANTISSA_BITS = 1

#: Value of each 4-bit code: sign, two exponent bits with bias 1, one mantissa bit.
_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
#: Midpoints between neighbouring magnitudes; a tie goes to the even code, so at these to the lower …
_TIES_DOWN = (0.25, 1.25, 2.5, 5.0)
#: … and at these to the upper neighbour.
_TIES_UP = (0.75, 1.75, 3.5)


class ScaleRule(enum.Enum):
    """How the largest magnitude in a block becomes the power of two that the block shares."""

    #: OCP Microscaling Formats 1.0, section 6.3: the largest power of two not above it, divided by that of the
    #: element's format. What then is above the format's largest value is saturated.
    OCP = "floor"
    #: cuBLAS, cuDNN and Transformer Engine: the least power of two under which nothing is saturated, the quotient by
    #: the format's largest value rounded up ("Recipes for Pre-training LLMs with MXFP8", arXiv 2506.08027).
    NVIDIA = "up"
    #: AMD's Quark and AITER ("even"): as OCP, after the magnitude was rounded to the format's mantissa; where that
    #: reaches the next power of two, the shared one does, too.
    AMD = "even"


def decode_e2m1(codes: torch.Tensor) -> torch.Tensor:
    """Values of 4-bit codes.

    Args:
        codes: uint8 of any shape, one code per element in the low four bits; the high four are ignored.

    Returns:
        float32 of the same shape, on the same device.
    """
    return _e2m1_values(codes.device)[(codes & 0xF).to(torch.int32)]


def encode_e2m1(values: torch.Tensor) -> torch.Tensor:
    """Nearest 4-bit codes: ties to the even code, magnitudes above 6 and infinities to ±6, NaN to +6.

    The treatment of NaN is that of CUDA's `cvt.rn.satfinite.e2m1x2.f32`.

    Args:
        values: any floating-point dtype and shape; each is compared as it is, so nothing is rounded twice.

    Returns:
        uint8 of the same shape, one code per element in the low four bits.
    """
    magnitudes = values.abs()
    # The code is the number of midpoints below, counted from the top: every comparison with NaN is false.
    codes = torch.full_like(magnitudes, 7, dtype=torch.uint8)
    for tie in _TIES_DOWN:
        codes -= (magnitudes <= tie).view(torch.uint8)
    for tie in _TIES_UP:
        codes -= (magnitudes < tie).view(torch.uint8)
    negative = torch.signbit(values) & ~torch.isnan(values)
    return codes.add_(negative.view(torch.uint8), alpha=8)


def unpack_e2m1(packed: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """Codes of packed pairs; the low four bits of a byte are the earlier element.

    Args:
        packed: uint8 or torch.float4_e2m1fn_x2.
        dim: the dimension along which the pairs lie.

    Returns:
        uint8 with dimension `dim` twice as long, one code per element.
    """
    raw = packed.view(torch.uint8).movedim(dim, -1)
    pairs = torch.stack((raw & 0xF, raw >> 4), dim=-1)
    return pairs.flatten(-2).movedim(-1, dim)


def pack_e2m1(codes: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """The inverse of `unpack_e2m1`, as uint8 (`.view(torch.float4_e2m1fn_x2)` makes it torch's packed dtype).

    Raises:
        ValueError: an odd number of codes along `dim`.
    """
    last = codes.movedim(dim, -1)
    if last.shape[-1] % 2:
        raise ValueError(f"found {last.shape[-1]} codes along dimension {dim}, expected an even number to pack")
    return ((last[..., 0::2] & 0xF) | (last[..., 1::2] << 4)).movedim(-1, dim)


def decode_pairs(packed: torch.Tensor) -> torch.Tensor:
    """Values of packed pairs along the last dimension: `decode_e2m1(unpack_e2m1(packed))`, several times as fast.

    Args:
        packed: uint8 or torch.float4_e2m1fn_x2 of shape (..., k / 2).

    Returns:
        float32 of shape (..., k).
    """
    values = _e2m1_values(packed.device)
    # Both values of each byte as one 8-byte item: a single look-up per byte.
    pairs = torch.stack((values.repeat(16), values.repeat_interleave(16)), dim=-1).view(torch.int64).flatten()
    raw = packed.view(torch.uint8)
    decoded = torch.index_select(pairs, 0, raw.reshape(-1).to(torch.int32))
    return decoded.view(torch.float32).reshape(*raw.shape[:-1], 2 * raw.shape[-1])


def decode_e8m0(scales: torch.Tensor) -> torch.Tensor:
    """Values of e8m0 scales: 2 ** (code - 127), and NaN for 255; the least, 2 ** -127, is a subnormal float32.

    Args:
        scales: torch.float8_e8m0fnu, or uint8 with the same bits, of any shape.

    Returns:
        float32 of the same shape, on the same device.
    """
    return scales.view(torch.float8_e8m0fnu).to(torch.float32)


def encode_e8m0(values: torch.Tensor, *, round_up: bool = False) -> torch.Tensor:
    """Powers of two at or below the magnitudes, or at or above them: what CUDA's `cvt.{rz,rp}.satfinite.ue8m0x2` does.

    There is no zero: what is less than 2 ** -127 becomes that, and what is more than 2 ** 127, infinities too, that.

    Args:
        values: any floating-point dtype and shape; signs are ignored, NaN stays NaN.
        round_up: to the next power of two above instead of the one below.

    Returns:
        torch.float8_e8m0fnu of the same shape.
    """
    bits = to_float32(values).abs().view(torch.int32)
    # A float32 without its fraction is an e8m0; only among the subnormals is 2 ** -127 not where the fraction ends.
    codes = torch.where(bits <= 0x400000, 0, (bits + 0x7FFFFF) >> 23) if round_up else bits >> 23
    return _e8m0(codes, torch.isnan(values))


def inverse_e8m0(scales: torch.Tensor) -> torch.Tensor:
    """1 / `decode_e8m0(scales)`, exactly: e8m0 has the inverse of each of its numbers."""
    return decode_e8m0(254 - scales.view(torch.uint8))


def to_float32(values: torch.Tensor) -> torch.Tensor:
    """float32 of which a narrower rounding is the narrower rounding of the values themselves.

    A float64 between two float32 becomes the one with an odd last bit ("round to odd"): it can neither turn into a tie
    of a narrower format nor cross one, as it could if it were rounded to nearest. The `double` conversions of CUDA's
    cuda_fp8.hpp go the same way. Narrower types are float32 values already.

    Args:
        values: any floating-point dtype and shape.

    Returns:
        float32 of the same shape.
    """
    nearest = values.to(torch.float32)
    if values.dtype != torch.float64:
        return nearest
    # The bits of a float are ordered as its magnitude is: one less is the neighbour towards zero.
    towards_zero = nearest.view(torch.int32) - (nearest.abs() > values.abs()).to(torch.int32)
    return torch.where(nearest == values, nearest.view(torch.int32), towards_zero | 1).view(torch.float32)


def shared_scales(largest: torch.Tensor, rule: ScaleRule, *, largest_value: float, mantissa_bits: int) -> torch.Tensor:
    """The scales of blocks, clamped to the powers of two that e8m0 has.

    Args:
        largest: the largest magnitude in each block, any floating-point dtype and shape.
        rule: how it becomes a power of two.
        largest_value: of the element's format.
        mantissa_bits: of the element's format.

    Returns:
        torch.float8_e8m0fnu of the same shape; NaN where there was a NaN.
    """
    fraction, exponent = math.frexp(largest_value)
    # Added to the bits of a float32, each carries into the exponent exactly where the rule steps to the next one.
    carry = {
        ScaleRule.OCP: 0,
        ScaleRule.NVIDIA: 0x7FFFFF - int((2 * fraction - 1) * (1 << 23)),
        ScaleRule.AMD: 1 << (22 - mantissa_bits),
    }[rule]
    bits = to_float32(largest).view(torch.int32)
    return _e8m0(((bits + carry) >> 23) - (exponent - 1), torch.isnan(largest))


def quantize(values: torch.Tensor, rule: ScaleRule = ScaleRule.OCP) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize along the last dimension: per block a power of two, and the values divided by it as e2m1.

    Args:
        values: finite floating point of shape (..., k), k a multiple of 32; a block with a NaN gets the scale NaN.
        rule: how the scales are chosen.

    Returns:
        The packed values, uint8 of shape (..., k / 2), and the scales, torch.float8_e8m0fnu of shape (..., k / 32).

    Raises:
        ValueError: k is no multiple of 32.
    """
    wide = values if values.dtype == torch.float64 else values.to(torch.float32)
    blocks = _blocks(wide, BLOCK)
    largest = blocks.abs().amax(dim=-1)
    scales = shared_scales(largest, rule, largest_value=E2M1_MAX, mantissa_bits=_E2M1_MANTISSA_BITS)
    # A product with a power of two is exact, or too small for any code but that of zero.
    codes = encode_e2m1(blocks * inverse_e8m0(scales).unsqueeze(-1))
    return pack_e2m1(codes.flatten(-2)), scales


def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Values of packed e2m1 along the last dimension, each times its block's scale.

    Exact, except that products above the largest float32 (only scales above 2 ** 125 have any) become infinities.

    Args:
        packed: uint8 or torch.float4_e2m1fn_x2 of shape (..., k / 2), k a multiple of 32.
        scales: torch.float8_e8m0fnu, or uint8 with the same bits, of shape (..., k / 32).

    Returns:
        float32 of shape (..., k).

    Raises:
        ValueError: the shapes do not fit.
    """
    blocks = _blocks(decode_pairs(packed), BLOCK)
    if blocks.shape[:-1] != scales.shape:
        raise ValueError(
            f"found scales of shape {tuple(scales.shape)}, expected {tuple(blocks.shape[:-1])}: one per {BLOCK} values"
        )
    return blocks.mul_(decode_e8m0(scales).unsqueeze(-1)).flatten(-2)


def _e8m0(codes: torch.Tensor, invalid: torch.Tensor) -> torch.Tensor:
    return codes.clamp(0, 254).masked_fill_(invalid, 255).to(torch.uint8).view(torch.float8_e8m0fnu)


def _blocks(values: torch.Tensor, size: int) -> torch.Tensor:
    if values.shape[-1] % size:
        raise ValueError(f"found {values.shape[-1]} values in the last dimension, expected a multiple of {size}")
    return values.reshape(*values.shape[:-1], -1, size)


@functools.cache
def _e2m1_values(device: torch.device) -> torch.Tensor:
    """The values of all codes, made once: copying Python numbers to a device waits for all its earlier work."""
    return torch.tensor(_E2M1_VALUES, dtype=torch.float32, device=device)
