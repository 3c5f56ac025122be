"""The tasks that take NVFP4 matrices: what their inputs are."""

from __future__ import annotations

import pytest
import torch

from tests.unit.problems.bench import Bench


@pytest.mark.parametrize("bench", ["nvfp4_gemv"], indirect=True)
def test_the_permuted_scales_are_the_scales(bench: Bench) -> None:
    """Row r, block j lies where the description says, and in memory a tile of 128 rows by 4 blocks is contiguous."""
    data = bench.generate({"m": 256, "k": 192, "l": 2, "seed": 7})
    for plain, permuted in ((data[2], data[4]), (data[3], data[5])):
        rows, blocks, batches = plain.shape
        assert permuted.shape == (32, 4, rows // 128, 4, blocks // 4, batches)
        r, j = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
        found = permuted.view(torch.uint8)[r % 32, r // 32 % 4, r // 128, j % 4, j // 4]
        assert torch.equal(found, plain.view(torch.uint8))
        assert permuted.stride()[:2] + permuted.stride()[3:4] == (16, 4, 1)


@pytest.mark.parametrize("bench", ["nvfp4_gemv"], indirect=True)
def test_gemv_inputs_have_the_public_layout(bench: Bench) -> None:
    """Shapes, types and strides that submissions to the public board rely on."""
    m, k, batches = 128, 256, 2
    data = bench.generate({"m": m, "k": k, "l": batches, "seed": 7})
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    assert [(tuple(tensor.shape), tensor.dtype) for tensor in data] == [
        ((m, k // 2, batches), fp4),
        ((128, k // 2, batches), fp4),
        ((m, k // 16, batches), fp8),
        ((128, k // 16, batches), fp8),
        ((32, 4, m // 128, 4, k // 64, batches), fp8),
        ((32, 4, 1, 4, k // 64, batches), fp8),
        ((m, 1, batches), torch.float16),
    ]
    assert data[0].stride() == (k // 2, 1, m * k // 2)
    assert data[2].stride() == (k // 16, 1, m * k // 16)
    assert data[0].view(torch.uint8).unique().numel() == 256
