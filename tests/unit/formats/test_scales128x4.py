"""The tensor cores' order of scales against its address formula, byte by byte."""

from __future__ import annotations

import pytest
import torch

from tasks.problems.formats.scales128x4 import cute_order

SHAPES = [(128, 4), (256, 12), (1, 1), (129, 5), (200, 10), (72, 8), (384, 448)]


def address(row: int, block: int, tiles_per_row: int) -> int:
    """Where cuBLAS's documentation has the scale of a row and a block."""
    tile = row // 128 * tiles_per_row + block // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4


def numbered(rows: int, blocks: int) -> torch.Tensor:
    """Scales of which neighbours, and neighbouring tiles, differ."""
    return ((torch.arange(rows).unsqueeze(1) * 37 + torch.arange(blocks) * 101) % 251).to(torch.uint8)


@pytest.mark.parametrize(("rows", "blocks"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint8])
def test_every_scale_lies_where_the_formula_says(rows: int, blocks: int, dtype: torch.dtype) -> None:
    """Matrix after matrix, with zeros in what is padding; by CuTe's indices, too, whatever the strides were."""
    scales = torch.stack([numbered(rows, blocks), numbered(rows, blocks).flip(1)], dim=2)
    found = cute_order(scales.view(dtype))
    tiles = (-(-rows // 128), -(-blocks // 4))
    assert (found.dtype, found.shape) == (dtype, (32, 4, tiles[0], 4, tiles[1], 2))
    row, block = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
    places = torch.tensor([[address(r, b, tiles[1]) for b in range(blocks)] for r in range(rows)])
    raw = found.view(torch.uint8)
    memory = raw.permute(5, 2, 4, 0, 1, 3)
    assert memory.is_contiguous()
    for index in range(2):
        expected = torch.zeros(tiles[0] * tiles[1] * 512, dtype=torch.uint8)
        expected[places] = scales[..., index]
        assert torch.equal(memory[index].flatten(), expected)
        indexed = raw[row % 32, row // 32 % 4, row // 128, block % 4, block // 4, index]
        assert torch.equal(indexed, scales[..., index])
    assert torch.equal(cute_order(scales.contiguous()), cute_order(scales.transpose(0, 1).contiguous().transpose(0, 1)))
