"""The order in which tensor cores read block scales: tiles of 128 rows by 4 blocks; vectorised torch, self-contained.

A task lists this one file among its own (`{"name": "scales128x4.py", "source": "../formats/scales128x4.py"}`), so it
imports nothing but torch. Called by references, checks and tests; never timed.

The layout is that of cuBLAS ("1D Block Scaling Factors Layout" in its documentation), of CUTLASS
(`Sm1xxBlockScaledBasicChunk`) and of cuDNN ("F8_128x4"), for 16 or 32 values per scale alike: the scale of row `r` and
block `j` in a matrix of `blocks` per row, both padded to whole tiles, lies at byte

    ((r // 128) * (blocks // 4) + j // 4) * 512 + (r % 32) * 16 + (r % 128) // 32 * 4 + j % 4
"""

from __future__ import annotations

import torch

TILE_ROWS = 128
TILE_BLOCKS = 4
#: How a tile lies in memory: row modulo 32, then row / 32, then block.
_TILE = (32, 4, TILE_BLOCKS)


def swizzle(scales: torch.Tensor) -> torch.Tensor:
    """Put scales in the order in which the tensor cores read them.

    Args:
        scales: any one-byte dtype of shape (..., rows, blocks). Partial tiles are padded with zero bytes.

    Returns:
        Contiguous, of the same dtype and shape (..., tiles of rows, tiles of blocks, 32, 4, 4). `flatten` makes it what
        cuBLAS takes, and `torch._scaled_mm`.
    """
    rows, blocks = scales.shape[-2:]
    counts = (-(-rows // TILE_ROWS), -(-blocks // TILE_BLOCKS))
    padding = (0, counts[1] * TILE_BLOCKS - blocks, 0, counts[0] * TILE_ROWS - rows)
    padded = torch.nn.functional.pad(scales.view(torch.uint8), padding)
    tiles = padded.reshape(*scales.shape[:-2], counts[0], 4, 32, counts[1], TILE_BLOCKS)
    # (..., row tile, r / 32, r % 32, block tile, j % 4) -> (..., row tile, block tile, r % 32, r / 32, j % 4)
    return tiles.movedim(-2, -4).transpose(-3, -2).contiguous().view(scales.dtype)


def unswizzle(swizzled: torch.Tensor, *, rows: int, blocks: int) -> torch.Tensor:
    """The inverse of `swizzle`.

    Args:
        swizzled: of shape (..., tiles of rows, tiles of blocks, 32, 4, 4), or flat: then of one matrix.
        rows: of the matrix, without padding.
        blocks: per row, without padding.

    Returns:
        Contiguous, of the same dtype and shape (..., rows, blocks).

    Raises:
        ValueError: the tiles are not those of such a matrix.
    """
    counts = (-(-rows // TILE_ROWS), -(-blocks // TILE_BLOCKS))
    raw = swizzled.view(torch.uint8)
    if raw.dim() == 1 and raw.numel() == counts[0] * counts[1] * TILE_ROWS * TILE_BLOCKS:
        raw = raw.view(*counts, *_TILE)
    if tuple(raw.shape[-5:]) != (*counts, *_TILE):
        raise ValueError(
            f"found a shape of {tuple(swizzled.shape)}, expected (..., {', '.join(map(str, (*counts, *_TILE)))}) "
            f"for {rows} rows of {blocks} scales"
        )
    tiles = raw.transpose(-3, -2).movedim(-4, -2)
    return tiles.flatten(-5, -3).flatten(-2)[..., :rows, :blocks].contiguous().view(swizzled.dtype)


def cute_view(swizzled: torch.Tensor) -> torch.Tensor:
    """The same memory with the dimensions in the order of CuTe's layout, as the public NVFP4 problems hand it over.

    Args:
        swizzled: of shape (l, tiles of rows, tiles of blocks, 32, 4, 4).

    Returns:
        A view of shape (32, 4, tiles of rows, 4, tiles of blocks, l): row `r`, block `j` of matrix `i` is at
        [r % 32, r // 32 % 4, r // 128, j % 4, j // 4, i].
    """
    return swizzled.permute(3, 4, 1, 5, 2, 0)


def cute_order(scales: torch.Tensor) -> torch.Tensor:
    """Scales of shape (rows, blocks, l) in the tensor cores' order, of the shape that `cute_view` has."""
    return cute_view(swizzle(scales.permute(2, 0, 1)))
