"""FP8: e4m3fn, e4m3fnuz, e5m2, e5m2fnuz and e8m0, and blocks of them; vectorised torch, self-contained.

A task lists this one file among its own (`{"name": "formats.py", "source": "../formats/fp8.py"}`), so it imports
nothing but torch and the standard library. Called by references, checks and tests; never timed. Code shared with the
other files of this folder is the same text there; a test compares them.

e4m3fn and e5m2 are those of the OCP 8-bit Floating Point specification 1.0: e5m2 has infinities, e4m3fn has none and
a NaN of each sign. The "fnuz" forms (arXiv 2206.02915, as of AMD's MI300) have exponents with a bias greater by one,
one NaN, 0x80, and neither infinities nor a negative zero. e8m0 is that of the OCP Microscaling Formats specification
1.0, section 5.4.1: powers of two, one NaN, 255, no zero and no sign. All values are float32 numbers: decoding is exact.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import torch

#: Values that share an e8m0 scale in the MX formats, along the innermost dimension.
MX_BLOCK = 32


@dataclass(frozen=True, kw_only=True)
class Format:
    """What encoding must know of an 8-bit format with a sign."""

    largest_value: float
    mantissa_bits: int
    #: Halfway between the largest value and what would come next …
    limit: float
    #: … and whether that rounds up: a tie goes to even.
    limit_overflows: bool
    #: Code of what is too large, where it is not saturated; the sign bit is added, which 0x80 has.
    overflow: int


FORMATS: dict[torch.dtype, Format] = {
    torch.float8_e4m3fn: Format(
        largest_value=448.0, mantissa_bits=3, limit=464.0, limit_overflows=False, overflow=0x7F
    ),
    torch.float8_e4m3fnuz: Format(
        largest_value=240.0, mantissa_bits=3, limit=248.0, limit_overflows=True, overflow=0x80
    ),
    torch.float8_e5m2: Format(
        largest_value=57344.0, mantissa_bits=2, limit=61440.0, limit_overflows=True, overflow=0x7C
    ),
    torch.float8_e5m2fnuz: Format(
        largest_value=57344.0, mantissa_bits=2, limit=61440.0, limit_overflows=True, overflow=0x80
    ),
}


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


def decode(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values of 8-bit codes.

    Args:
        codes: of that dtype, or uint8 with the same bits, of any shape.
        dtype: a key of FORMATS.

    Returns:
        float32 of the same shape, on the same device.
    """
    return codes.view(dtype).to(torch.float32)


def encode(values: torch.Tensor, dtype: torch.dtype, *, saturate: bool = True) -> torch.Tensor:
    """Nearest values of an 8-bit format: ties to even, NaN stays NaN.

    Args:
        values: any floating-point dtype and shape.
        dtype: a key of FORMATS.
        saturate: what is too large, infinities too, becomes the largest value of its sign; otherwise an infinity where
            the format has them, else NaN.

    Returns:
        Of that dtype and the same shape.
    """
    kind = FORMATS[dtype]
    wide = to_float32(values)
    # Clamped first: on large values torch's own conversions differ from format to format and version to version.
    codes = wide.clamp(-kind.largest_value, kind.largest_value).to(dtype)
    if saturate:
        return codes
    over = wide.abs() >= kind.limit if kind.limit_overflows else wide.abs() > kind.limit
    signs = torch.signbit(wide).to(torch.uint8) << 7
    return torch.where(over, signs | kind.overflow, codes.view(torch.uint8)).view(dtype)


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


def quantize_tiles(
    values: torch.Tensor, dtype: torch.dtype, *, tile: tuple[int, int] = (1, 128)
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize the tiles of matrices, each with a float32 scale: its largest magnitude / the format's largest value.

    The steps, in float32, are those of DeepSeek-V3 (arXiv 2412.19437, section 3.3.2): tiles of 1 by 128 for
    activations, of 128 by 128 for weights. A tile of zeros, or of less than the least scale, has scale 1.

    Args:
        values: finite floating point of shape (..., rows, k); float64 is rounded to float32 first.
        dtype: a key of FORMATS.
        tile: rows and columns that share a scale.

    Returns:
        The codes, of that dtype and the same shape, and the scales, float32 of shape
        (..., rows / tile rows, k / tile columns).

    Raises:
        ValueError: a tile does not divide the matrix.
    """
    kind = FORMATS[dtype]
    tiles = _tiles(values.to(torch.float32), tile)
    scales = tiles.abs().amax(dim=-1).amax(dim=-2) / _scalar(kind.largest_value, tiles)
    # Of zeros, and of numbers so small that there is no such scale.
    scales = torch.where(scales > 0, scales, 1.0)
    quotients = tiles / scales[..., None, :, None]
    codes = quotients.clamp_(-kind.largest_value, kind.largest_value).to(dtype)
    return codes.reshape(values.shape), scales


def dequantize_tiles(
    codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype, *, tile: tuple[int, int] = (1, 128)
) -> torch.Tensor:
    """Values of codes, each times its tile's scale, rounded once to float32.

    Args:
        codes: of that dtype, or uint8 with the same bits, of shape (..., rows, k).
        scales: float32 of shape (..., rows / tile rows, k / tile columns).
        dtype: a key of FORMATS.
        tile: rows and columns that share a scale.

    Returns:
        float32 of shape (..., rows, k).

    Raises:
        ValueError: the shapes do not fit.
    """
    tiles = _tiles(decode(codes, dtype), tile)
    expected = (*tiles.shape[:-3], tiles.shape[-2])
    if scales.shape != expected:
        raise ValueError(f"found scales of shape {tuple(scales.shape)}, expected {expected}: one per tile of {tile}")
    return tiles.mul_(scales[..., None, :, None]).reshape(codes.shape)


def quantize_mx(
    values: torch.Tensor, dtype: torch.dtype, rule: ScaleRule = ScaleRule.OCP
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize to MXFP8 along the last dimension: per block of 32 a power of two, and the values divided by it.

    Args:
        values: finite floating point of shape (..., k), k a multiple of 32; a block with a NaN gets the scale NaN.
        dtype: torch.float8_e4m3fn or torch.float8_e5m2, which the specification has, or another key of FORMATS.
        rule: how the scales are chosen.

    Returns:
        The codes, of that dtype and the same shape, and the scales, torch.float8_e8m0fnu of shape (..., k / 32).

    Raises:
        ValueError: k is no multiple of 32.
    """
    kind = FORMATS[dtype]
    wide = values if values.dtype == torch.float64 else values.to(torch.float32)
    blocks = _blocks(wide, MX_BLOCK)
    largest = blocks.abs().amax(dim=-1)
    scales = shared_scales(largest, rule, largest_value=kind.largest_value, mantissa_bits=kind.mantissa_bits)
    # A product with a power of two is exact, or too small for any code but that of zero.
    return encode(blocks * inverse_e8m0(scales).unsqueeze(-1), dtype).reshape(values.shape), scales


def dequantize_mx(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values of MXFP8 codes along the last dimension, each times its block's scale.

    Exact, except that products beyond float32's range become infinities, or lose bits below its least normal number.

    Args:
        codes: of that dtype, or uint8 with the same bits, of shape (..., k), k a multiple of 32.
        scales: torch.float8_e8m0fnu, or uint8 with the same bits, of shape (..., k / 32).
        dtype: a key of FORMATS.

    Returns:
        float32 of shape (..., k).

    Raises:
        ValueError: the shapes do not fit.
    """
    blocks = _blocks(decode(codes, dtype), MX_BLOCK)
    if blocks.shape[:-1] != scales.shape:
        raise ValueError(
            f"found scales of shape {tuple(scales.shape)}, expected {tuple(blocks.shape[:-1])}: "
            f"one per {MX_BLOCK} values"
        )
    return blocks.mul_(decode_e8m0(scales).unsqueeze(-1)).flatten(-2)


def _tiles(values: torch.Tensor, tile: tuple[int, int]) -> torch.Tensor:
    # (..., rows, k) -> (..., rows / tile rows, tile rows, k / tile columns, tile columns)
    rows, columns = values.shape[-2:]
    if rows % tile[0] or columns % tile[1]:
        raise ValueError(f"found a matrix of {rows} by {columns}, expected multiples of {tile[0]} by {tile[1]}")
    return values.reshape(*values.shape[:-2], rows // tile[0], tile[0], columns // tile[1], tile[1])


def _e8m0(codes: torch.Tensor, invalid: torch.Tensor) -> torch.Tensor:
    return codes.clamp(0, 254).masked_fill_(invalid, 255).to(torch.uint8).view(torch.float8_e8m0fnu)


def _blocks(values: torch.Tensor, size: int) -> torch.Tensor:
    if values.shape[-1] % size:
        raise ValueError(f"found {values.shape[-1]} values in the last dimension, expected a multiple of {size}")
    return values.reshape(*values.shape[:-1], -1, size)


def _scalar(value: float, like: torch.Tensor) -> torch.Tensor:
    # Not a Python number: where one divides, CUDA multiplies by its reciprocal, and where one is divided, torch always
    # does; both round twice.
    return torch.full((), value, dtype=like.dtype, device=like.device)
