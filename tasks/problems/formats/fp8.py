"""FP8: e4m3fn, e4m3fnuz, e5m2 and e5m2fnuz; vectorised torch, self-contained.

A task lists this one file among its own (`{"name": "formats.py", "source": "../formats/fp8.py"}`), so it imports
nothing but torch. Called by references, checks and tests; never timed. Code shared with the other files of this folder
is the same text there; a test compares them.

e4m3fn and e5m2 are those of the OCP 8-bit Floating Point specification 1.0: e5m2 has infinities, e4m3fn has none and
a NaN of each sign. The "fnuz" forms (arXiv 2206.02915, as of AMD's MI300) have exponents with a bias greater by one,
one NaN, 0x80, and neither infinities nor a negative zero. All values are float32 numbers: decoding is exact.
"""

from __future__ import annotations

import torch


def decode(codes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values of 8-bit codes.

    Args:
        codes: of that dtype, or uint8 with the same bits, of any shape.
        dtype: one of the four.

    Returns:
        float32 of the same shape, on the same device.
    """
    return codes.view(dtype).to(torch.float32)


def encode(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Nearest values of an 8-bit format: ties to even, too large ones to the largest of their sign, NaN stays NaN.

    Args:
        values: any floating-point dtype and shape.
        dtype: one of the four.

    Returns:
        Of that dtype and the same shape.
    """
    largest = torch.finfo(dtype).max
    # Clamped first: on large values torch's own conversions differ from format to format and version to version.
    return to_float32(values).clamp(-largest, largest).to(dtype)


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
