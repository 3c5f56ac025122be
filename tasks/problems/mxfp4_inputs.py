"""Inputs of the MXFP4 tasks; a file that only the judge has (`private` in runner.yml). Self-contained."""

from __future__ import annotations

import torch

#: Magnitudes halfway between two e2m1 values.
_TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)


def without_ties(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The next number away from zero, where a value divided by its scale is halfway.

    There kernels in use part: some take the even value, some the greater. The scales stay: AITER's rule rounds a
    largest magnitude to two significant bits, and it grows within that step.

    Args:
        values: bfloat16 of shape (rows, k).
        scales: those of `values`, torch.float8_e8m0fnu of shape (rows, k / 32).
    """
    blocks = values.float().view(*scales.shape, -1)
    magnitudes = (blocks / scales.float().unsqueeze(-1)).flatten(-2).abs()
    ties = torch.isin(magnitudes, torch.tensor(_TIES, device=values.device))
    return (values.view(torch.int16) + ties.to(torch.int16)).view(values.dtype)


def shuffle_values(packed: torch.Tensor) -> torch.Tensor:
    """Tiles of 16 rows by 16 bytes, two of them side by side together; (rows, k / 2)."""
    rows, width = packed.shape
    tiles = packed.view(rows // 16, 16, width // 32, 2, 16)
    return tiles.permute(0, 2, 3, 1, 4).contiguous().view(rows, width)


def shuffle_scales(scales: torch.Tensor) -> torch.Tensor:
    """Tiles of 32 rows by 8 blocks; padded with 127, which is 1, to multiples of 256 rows and 8 blocks."""
    rows, blocks = scales.shape
    raw = scales.view(torch.uint8)
    padded = torch.nn.functional.pad(raw, (0, -blocks % 8, 0, -rows % 256), value=127)
    tiles = padded.view(-1, 2, 16, padded.shape[1] // 8, 2, 4)
    return tiles.permute(0, 3, 5, 2, 4, 1).contiguous().view(padded.shape).view(scales.dtype)
