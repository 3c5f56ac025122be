"""NVFP4: packed e2m1 values with one e4m3fn scale per block of 16; vectorised torch, self-contained.

A task lists this one file among its own (`{"name": "formats.py", "source": "../formats/nvfp4.py"}`), so it imports
nothing but torch. Called by references, checks and tests; never timed.

The formats are those of the OCP Microscaling Formats specification 1.0, section 5.3.3 (e2m1), and the OCP 8-bit
Floating Point specification 1.0 (e4m3, in its finite-only "fn" form). Every e2m1 value is a float32, and so is every
e4m3fn value: decoding is exact.
"""

from __future__ import annotations

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


def _e4m3fn_value(code: int) -> float:
    """The value of an 8-bit code: sign, four exponent bits with bias 7, three mantissa bits; 0x7f and 0xff are NaN."""
    exponent, mantissa = (code >> 3) & 0xF, code & 0x7
    if code & 0x7F == 0x7F:
        return float("nan")
    magnitude = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -magnitude if code & 0x80 else magnitude


_E4M3FN_VALUES = tuple(_e4m3fn_value(code) for code in range(256))


def decode_e2m1(codes: torch.Tensor) -> torch.Tensor:
    """Values of 4-bit codes.

    Args:
        codes: uint8 of any shape, one code per element in the low four bits; the high four are ignored.

    Returns:
        float32 of the same shape, on the same device.
    """
    table = torch.tensor(_E2M1_VALUES, dtype=torch.float32, device=codes.device)
    return table[(codes & 0xF).to(torch.int32)]


def encode_e2m1(values: torch.Tensor) -> torch.Tensor:
    """Nearest 4-bit codes: ties to the even code, magnitudes above 6 and infinities to ±6, NaN to +6.

    The treatment of NaN is that of CUDA's `cvt.rn.satfinite.e2m1x2.f32`.

    Args:
        values: any floating-point dtype and shape.

    Returns:
        uint8 of the same shape, one code per element in the low four bits.
    """
    # Narrower formats are float32 values; float64 must not be rounded twice.
    wide = values if values.dtype == torch.float64 else values.to(torch.float32)
    magnitudes = wide.abs().contiguous()
    down = torch.tensor(_TIES_DOWN, dtype=wide.dtype, device=wide.device)
    up = torch.tensor(_TIES_UP, dtype=wide.dtype, device=wide.device)
    codes = torch.bucketize(magnitudes, down) + torch.bucketize(magnitudes, up, right=True)
    signs = torch.signbit(wide) & ~torch.isnan(wide)
    return torch.where(torch.isnan(wide), 7, codes + 8 * signs.to(codes.dtype)).to(torch.uint8)


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


def decode_e4m3fn(scales: torch.Tensor) -> torch.Tensor:
    """Values of e4m3fn scales.

    Args:
        scales: torch.float8_e4m3fn, or uint8 with the same bits, of any shape.

    Returns:
        float32 of the same shape, on the same device.
    """
    table = torch.tensor(_E4M3FN_VALUES, dtype=torch.float32, device=scales.device)
    return table[scales.view(torch.uint8).to(torch.int32)]


def encode_e4m3fn(values: torch.Tensor) -> torch.Tensor:
    """Nearest e4m3fn values: ties to even, magnitudes above 448 and infinities to ±448, NaN stays NaN.

    Args:
        values: float32, float16 or bfloat16 of any shape.

    Returns:
        torch.float8_e4m3fn of the same shape.
    """
    # Torch's own conversion has made NaN of large values in some versions and 448 in others.
    return values.clamp(-E4M3FN_MAX, E4M3FN_MAX).to(torch.float8_e4m3fn)


def quantize(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize along the last dimension: per block, the scale is the largest magnitude / 6, rounded to e4m3fn.

    Args:
        values: finite float32, float16 or bfloat16 of shape (..., k), k a multiple of 16.

    Returns:
        The packed values, uint8 of shape (..., k / 2), and the scales, torch.float8_e4m3fn of shape (..., k / 16).

    Raises:
        ValueError: k is no multiple of 16.
    """
    blocks = _blocks(values.to(torch.float32), BLOCK)
    scales = encode_e4m3fn(blocks.abs().amax(dim=-1) / E2M1_MAX)
    divisors = decode_e4m3fn(scales).unsqueeze(-1)
    # A block too small for the smallest scale has scale 0 and decodes to zeros whatever its codes are.
    codes = encode_e2m1(torch.where(divisors > 0, blocks / divisors, 0.0))
    return pack_e2m1(codes.flatten(-2)), scales


def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Values of packed e2m1 along the last dimension, each times its block's scale.

    Exact: a product of an e2m1 and an e4m3fn value has at most six significant bits.

    Args:
        packed: uint8 or torch.float4_e2m1fn_x2 of shape (..., k / 2), k a multiple of 16.
        scales: torch.float8_e4m3fn, or uint8 with the same bits, of shape (..., k / 16).

    Returns:
        float32 of shape (..., k).

    Raises:
        ValueError: the shapes do not fit.
    """
    blocks = _blocks(decode_e2m1(unpack_e2m1(packed)), BLOCK)
    if blocks.shape[:-1] != scales.shape:
        raise ValueError(
            f"found scales of shape {tuple(scales.shape)}, expected {tuple(blocks.shape[:-1])}: one per {BLOCK} values"
        )
    return (blocks * decode_e4m3fn(scales).unsqueeze(-1)).flatten(-2)


def _blocks(values: torch.Tensor, size: int) -> torch.Tensor:
    if values.shape[-1] % size:
        raise ValueError(f"found {values.shape[-1]} values in the last dimension, expected a multiple of {size}")
    return values.reshape(*values.shape[:-1], -1, size)
