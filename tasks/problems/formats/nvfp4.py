"""NVFP4: packed e2m1 values with one e4m3fn scale per block of 16; vectorised torch, self-contained.

A task lists this one file among its own (`{"name": "formats.py", "source": "../formats/nvfp4.py"}`), so it imports
nothing but torch and the standard library. Called by references, checks and tests; never timed. Code shared with the
other files of this folder is the same text there; a test compares them.

The formats are those of the OCP Microscaling Formats specification 1.0, section 5.3.3 (e2m1), and the OCP 8-bit
Floating Point specification 1.0 (e4m3, in its finite-only "fn" form). Every e2m1 value is a float32, and so is every
e4m3fn value: decoding is exact.
"""

from __future__ import annotations

import functools

import torch

#: Values that share a scale, along the innermost dimension.
BLOCK = 16

#: Value of each 4-bit code: sign, two exponent bits with bias 1, one mantissa bit.
_E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def decode_e2m1(codes: torch.Tensor) -> torch.Tensor:
    """Values of 4-bit codes.

    Args:
        codes: uint8 of any shape, one code per element in the low four bits; the high four are ignored.

    Returns:
        float32 of the same shape, on the same device.
    """
    return _e2m1_values(codes.device)[(codes & 0xF).to(torch.int32)]


def unpack_e2m1(packed: torch.Tensor) -> torch.Tensor:
    """Codes of packed pairs along the last dimension; the low four bits of a byte are the earlier element.

    Args:
        packed: uint8 or torch.float4_e2m1fn_x2 of shape (..., k / 2).

    Returns:
        uint8 of shape (..., k), one code per element.
    """
    raw = packed.view(torch.uint8)
    return torch.stack((raw & 0xF, raw >> 4), dim=-1).flatten(-2)


def decode_pairs(packed: torch.Tensor) -> torch.Tensor:
    """Values of packed pairs along the last dimension; the low four bits of a byte are the earlier element.

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
    blocks = _blocks(decode_pairs(packed), BLOCK)
    if blocks.shape[:-1] != scales.shape:
        raise ValueError(
            f"found scales of shape {tuple(scales.shape)}, expected {tuple(blocks.shape[:-1])}: one per {BLOCK} values"
        )
    return blocks.mul_(decode_e4m3fn(scales).unsqueeze(-1)).flatten(-2)


def _blocks(values: torch.Tensor, size: int) -> torch.Tensor:
    if values.shape[-1] % size:
        raise ValueError(f"found {values.shape[-1]} values in the last dimension, expected a multiple of {size}")
    return values.reshape(*values.shape[:-1], -1, size)


@functools.cache
def _e2m1_values(device: torch.device) -> torch.Tensor:
    """The values of all codes, made once: copying Python numbers to a device waits for all its earlier work."""
    return torch.tensor(_E2M1_VALUES, dtype=torch.float32, device=device)
