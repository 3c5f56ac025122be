"""The tensor cores' order of scales against its address formula, byte by byte."""

from __future__ import annotations

import pytest
import torch

from tasks.problems.formats.scales128x4 import cute_view, swizzle, unswizzle

SHAPES = [(128, 4), (256, 12), (1, 1), (129, 5), (200, 10), (72, 8), (384, 448)]


def address(row: int, block: int, tiles_per_row: int) -> int:
    """Where cuBLAS's documentation has the scale of a row and a block."""
    tile = row // 128 * tiles_per_row + block // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4


def numbered(rows: int, blocks: int) -> torch.Tensor:
    """Scales of which neighbours, and neighbouring tiles, differ."""
    return ((torch.arange(rows).unsqueeze(1) * 37 + torch.arange(blocks) * 101) % 251).to(torch.uint8)


@pytest.mark.parametrize(("rows", "blocks"), SHAPES)
def test_every_scale_lies_where_the_formula_says(rows: int, blocks: int) -> None:
    """All of them, and zeros in what is padding."""
    scales = numbered(rows, blocks)
    found = swizzle(scales)
    tiles = (-(-rows // 128), -(-blocks // 4))
    assert found.shape == (*tiles, 32, 4, 4)
    assert found.is_contiguous()
    expected = torch.zeros(tiles[0] * tiles[1] * 512, dtype=torch.uint8)
    places = torch.tensor([[address(row, block, tiles[1]) for block in range(blocks)] for row in range(rows)])
    expected[places] = scales
    assert torch.equal(found.flatten(), expected)


@pytest.mark.parametrize(("rows", "blocks"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.uint8])
def test_the_inverse_undoes_it(rows: int, blocks: int, dtype: torch.dtype) -> None:
    """Of several matrices, of a flat one, of every type of scale, for any strides."""
    scales = torch.stack([numbered(rows, blocks), numbered(rows, blocks).flip(0)]).view(dtype)
    back = unswizzle(swizzle(scales), rows=rows, blocks=blocks)
    assert (back.dtype, back.is_contiguous()) == (dtype, True)
    assert torch.equal(back.view(torch.uint8), scales.view(torch.uint8))
    flat = unswizzle(swizzle(scales[0]).flatten(), rows=rows, blocks=blocks)
    assert torch.equal(flat.view(torch.uint8), scales[0].view(torch.uint8))
    strided = scales.view(torch.uint8).movedim(0, -1).contiguous().movedim(-1, 0)
    assert torch.equal(swizzle(strided), swizzle(scales.view(torch.uint8)))


def test_the_view_of_cute_is_the_same_memory() -> None:
    """Row r, block j of matrix i is at [r % 32, r // 32 % 4, r // 128, j % 4, j // 4, i].

    Tiles of another matrix are refused; the message gives both shapes.
    """
    rows, blocks = 256, 12
    scales = torch.stack([numbered(rows, blocks), numbered(rows, blocks).flip(1)])
    swizzled = swizzle(scales)
    view = cute_view(swizzled)
    assert view.shape == (32, 4, rows // 128, 4, blocks // 4, 2)
    assert view.data_ptr() == swizzled.data_ptr()
    r, j = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
    for i in range(2):
        assert torch.equal(view[r % 32, r // 32 % 4, r // 128, j % 4, j // 4, i], scales[i])
    for shape, message in (
        ((2, 1, 32, 4, 4), r"found a shape of \(2, 1, 32, 4, 4\), expected .*1, 1, 32, 4, 4\) for 128 rows"),
        ((1024,), r"found a shape of \(1024,\), expected"),
    ):
        with pytest.raises(ValueError, match=message):
            unswizzle(torch.zeros(shape, dtype=torch.uint8), rows=128, blocks=4)
