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


def cute_order(scales: torch.Tensor) -> torch.Tensor:
    """Put scales in the order in which the tensor cores read them.

    Args:
        scales: any one-byte dtype of shape (rows, blocks, l). Partial tiles are padded with zero bytes.

    Returns:
        Of the same dtype, with the dimensions in the order of CuTe's layout, as the public NVFP4 problems hand it over:
        (32, 4, tiles of rows, 4, tiles of blocks, l). Row `r`, block `j` of matrix `i` is at
        [r % 32, r // 32 % 4, r // 128, j % 4, j // 4, i]; each matrix lies in memory as above.
    """
    rows, blocks, batches = scales.shape
    counts = (-(-rows // TILE_ROWS), -(-blocks // TILE_BLOCKS))
    padding = (0, counts[1] * TILE_BLOCKS - blocks, 0, counts[0] * TILE_ROWS - rows)
    padded = torch.nn.functional.pad(scales.permute(2, 0, 1).view(torch.uint8), padding)
    tiles = padded.reshape(batches, counts[0], 4, 32, counts[1], TILE_BLOCKS)
    # (l, row tile, r / 32, r % 32, block tile, j % 4) -> (l, row tile, block tile, r % 32, r / 32, j % 4)
    ordered = tiles.permute(0, 1, 4, 3, 2, 5).contiguous().view(scales.dtype)
    return ordered.permute(3, 4, 1, 5, 2, 0)
