"""NVFP4: packed e2m1 values with one e4m3fn scale per block of 16; vectorised torch, self-contained.

A task lists this one file among its own (`{"name": "formats.py", "source": "../formats/nvfp4.py"}`), so it imports
nothing but torch. Called by references, checks and tests; never timed. Code shared with the other files of this folder
is the same text there; a test compares them.

The formats are those of the OCP Microscaling Formats specification 1.0, section 5.3.3 (e2m1), and the OCP 8-bit
Floating Point specification 1.0 (e4m3, in its finite-only "fn" form). Every e2m1 value is a float32, and so is every
e4m3fn value: decoding is exact.
"""

from __future__ import annotations

import functools

import torch

#: Values that share a scale, along the innermost dimension.
BLOCK = 16
E2M1_MAX = 6.0
E4M3FN_MAX = 448.0

#: Value of each 4-bit code: sign, two exponent bits with bias 1, one mantissa bit.
_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
#: Midpoints between neighbouring magnitudes; a tie goes to the even code, so at these to the lower …
_TIES_DOWN = (0.25, 1.25, 2.5, 5.0)
#: … and at these to the upper neighbour.
_TIES_UP = (0.75, 1.75, 3.5)


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


def decode_e4m3fn(scales: torch.Tensor) -> torch.Tensor:
    """Values of e4m3fn scales.

    Args:
        scales: torch.float8_e4m3fn, or uint8 with the same bits, of any shape.

    Returns:
        float32 of the same shape, on the same device.
    """
    return scales.view(torch.float8_e4m3fn).to(torch.float32)


def encode_e4m3fn(values: torch.Tensor) -> torch.Tensor:
    """Nearest e4m3fn values: ties to even, magnitudes above 448 and infinities to ±448, NaN stays NaN.

    Args:
        values: any floating-point dtype and shape.

    Returns:
        torch.float8_e4m3fn of the same shape.
    """
    # Torch's own conversion has made NaN of large values in some versions and 448 in others.
    return to_float32(values).clamp(-E4M3FN_MAX, E4M3FN_MAX).to(torch.float8_e4m3fn)


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


def quantize(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize along the last dimension: per block, the scale is the largest magnitude / 6, rounded to e4m3fn.

    Args:
        values: finite floating point of shape (..., k), k a multiple of 16.

    Returns:
        The packed values, uint8 of shape (..., k / 2), and the scales, torch.float8_e4m3fn of shape (..., k / 16).

    Raises:
        ValueError: k is no multiple of 16.
    """
    wide = values if values.dtype == torch.float64 else values.to(torch.float32)
    blocks = _blocks(wide, BLOCK)
    scales = encode_e4m3fn(blocks.abs().amax(dim=-1) / _scalar(E2M1_MAX, wide))
    divisors = decode_e4m3fn(scales).to(wide.dtype).unsqueeze(-1)
    # A block too small for the smallest scale has scale 0 and decodes to zeros whatever its codes are. The quotient
    # becomes a tie only where it is one: a tie times a scale has 7 significant bits, and its neighbours among the wide
    # numbers are farther from it than half a step of the quotient.
    codes = encode_e2m1((blocks / divisors).masked_fill_(divisors == 0, 0.0))
    return pack_e2m1(codes.flatten(-2)), scales


def quantize_two_level(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantize with a float32 scale for the whole tensor beside the e4m3fn scales of the blocks.

    The steps, in float32, are those of NVIDIA's "Pretraining Large Language Models with NVFP4" (arXiv 2509.25149) as
    Transformer Engine carries them out: the tensor's scale maps its largest magnitude to 6 · 448, a block's scale is
    its largest magnitude / 6 under that scale, and the values are multiplied by the reciprocal of both.

    Args:
        values: finite floating point of shape (..., k), k a multiple of 16; float64 is rounded to float32 first.

    Returns:
        The packed values, uint8 of shape (..., k / 2); the scales of the blocks, torch.float8_e4m3fn of shape
        (..., k / 16); the scale of the tensor, float32 without dimensions, which `dequantize` multiplies by.

    Raises:
        ValueError: k is no multiple of 16.
    """
    blocks = _blocks(values.to(torch.float32), BLOCK)
    largest = blocks.abs().amax(dim=-1)
    # Of zeros alone, any finite scale will do; of the smallest numbers, the quotient is infinite.
    encode = (_scalar(E2M1_MAX * E4M3FN_MAX, largest) / largest.max()).clamp(max=torch.finfo(torch.float32).max)
    decode = encode.reciprocal()
    scales = encode_e4m3fn(largest / _scalar(E2M1_MAX, largest) * encode)
    factors = (decode_e4m3fn(scales) * decode).reciprocal().clamp(max=torch.finfo(torch.float32).max)
    codes = encode_e2m1(blocks * factors.unsqueeze(-1))
    return pack_e2m1(codes.flatten(-2)), scales, decode


def dequantize(
    packed: torch.Tensor, scales: torch.Tensor, tensor_scale: torch.Tensor | float | None = None
) -> torch.Tensor:
    """Values of packed e2m1 along the last dimension, each times its block's scale.

    Exact without a scale of the tensor: a product of an e2m1 and an e4m3fn value has at most six significant bits. The
    product with that scale is rounded once, to float32.

    Args:
        packed: uint8 or torch.float4_e2m1fn_x2 of shape (..., k / 2), k a multiple of 16.
        scales: torch.float8_e4m3fn, or uint8 with the same bits, of shape (..., k / 16).
        tensor_scale: the scale of the whole tensor, if there is one.

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
    values = blocks.mul_(decode_e4m3fn(scales).unsqueeze(-1)).flatten(-2)
    return values if tensor_scale is None else values.mul_(tensor_scale)


def _blocks(values: torch.Tensor, size: int) -> torch.Tensor:
    if values.shape[-1] % size:
        raise ValueError(f"found {values.shape[-1]} values in the last dimension, expected a multiple of {size}")
    return values.reshape(*values.shape[:-1], -1, size)


def _scalar(value: float, like: torch.Tensor) -> torch.Tensor:
    # Not a Python number: where one divides, CUDA multiplies by its reciprocal, and where one is divided, torch always
    # does; both round twice.
    return torch.full((), value, dtype=like.dtype, device=like.device)


@functools.cache
def _e2m1_values(device: torch.device) -> torch.Tensor:
    """The values of all codes, made once: copying Python numbers to a device waits for all its earlier work."""
    return torch.tensor(_E2M1_VALUES, dtype=torch.float32, device=device)
