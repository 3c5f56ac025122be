"""The tasks that take NVFP4 matrices: what their inputs are, and what they are made to show."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.problems.bench import Bench
from tests.unit.problems.oracles.nvfp4 import wide

FP4, FP8, HALF = torch.float4_e2m1fn_x2, torch.float8_e4m3fn, torch.float16
ONE = pytest.mark.parametrize("bench", ["nvfp4_gemv", "nvfp4_gemm", "nvfp4_dual_gemm"], indirect=True)
ALL = pytest.mark.parametrize(
    "bench", ["nvfp4_gemv", "nvfp4_gemm", "nvfp4_dual_gemm", "nvfp4_group_gemm"], indirect=True
)

#: A case that is large enough for every code and every exponent to occur.
CASES: dict[str, dict[str, Any]] = {
    "nvfp4_gemv": {"m": 256, "k": 512, "l": 2, "seed": 7},
    "nvfp4_gemm": {"m": 128, "n": 256, "k": 512, "l": 2, "seed": 7},
    "nvfp4_dual_gemm": {"m": 128, "n": 256, "k": 512, "l": 2, "seed": 7},
    "nvfp4_group_gemm": {"m": [128, 72], "n": [256, 128], "k": [128, 512], "g": 2, "seed": 7},
}
#: How many matrices, in the order in which a task's tuple has them; their scales and permuted scales follow.
MATRICES = {"nvfp4_gemv": 2, "nvfp4_gemm": 2, "nvfp4_dual_gemm": 3}


def operands(bench: Bench, data: Any) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:  # noqa: ANN401 any task's
    """Each matrix of a task's data, its scales, and the permuted scales."""
    if bench.folder.name == "nvfp4_group_gemm":
        return [
            (matrix, plain, permuted)
            for tensors, plains, permuteds, _ in zip(*data, strict=True)
            for matrix, plain, permuted in zip(tensors[:2], plains, permuteds, strict=True)
        ]
    count = MATRICES[bench.folder.name]
    return list(zip(data[:count], data[count : 2 * count], data[2 * count : 3 * count], strict=True))


@ALL
def test_the_permuted_scales_are_the_scales(bench: Bench) -> None:
    """Row r, block j lies where the description says; in memory a tile of 128 rows by 4 blocks is contiguous."""
    for _, plain, permuted in operands(bench, bench.generate(CASES[bench.folder.name])):
        rows, blocks, batches = plain.shape
        assert permuted.shape == (32, 4, -(-rows // 128), 4, blocks // 4, batches)
        r, j = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
        found = permuted.view(torch.uint8)[r % 32, r // 32 % 4, r // 128, j % 4, j // 4]
        assert torch.equal(found, plain.view(torch.uint8))
        assert permuted.stride()[:2] + permuted.stride()[3:4] == (16, 4, 1)
        assert permuted.stride()[2] == blocks // 4 * permuted.stride()[4] == blocks // 4 * 512
        # Rows beyond the last are zeros.
        assert permuted.float().count_nonzero() == plain.float().count_nonzero()


@ONE
def test_inputs_have_the_public_layout(bench: Bench) -> None:
    """Shapes, types and strides that submissions to the public board rely on; an output that was never written."""
    case = CASES[bench.folder.name]
    m, k, batches = case["m"], case["k"], case["l"]
    n = case.get("n", 128)
    rows = [m, *[n] * (MATRICES[bench.folder.name] - 1)]
    data = bench.generate(case)
    assert [(tuple(tensor.shape), tensor.dtype) for tensor in data] == [
        *(((each, k // 2, batches), FP4) for each in rows),
        *(((each, k // 16, batches), FP8) for each in rows),
        *(((32, 4, each // 128, 4, k // 64, batches), FP8) for each in rows),
        ((m, case.get("n", 1), batches), HALF),
    ]
    for each, packed, scales in zip(rows, data, data[len(rows) :], strict=False):
        assert packed.stride() == (k // 2, 1, each * k // 2)
        assert scales.stride() == (k // 16, 1, each * k // 16)
    columns = data[-1].shape[1]
    assert data[-1].stride() == (columns, 1, m * columns)
    assert data[-1].isnan().all()


@pytest.mark.parametrize("bench", ["nvfp4_group_gemm"], indirect=True)
def test_problems_of_a_group_have_the_public_layout(bench: Bench) -> None:
    """Four lists with a tuple per problem, as published submissions unpack them."""
    case = CASES["nvfp4_group_gemm"]
    tensors, scales, permuted, sizes = bench.generate(case)
    assert sizes == [(128, 256, 128, 1), (72, 128, 512, 1)]
    for (m, n, k, _), (a, b, c), (sfa, sfb), reordered in zip(sizes, tensors, scales, permuted, strict=True):
        assert [(tuple(tensor.shape), tensor.dtype) for tensor in (a, b, c, sfa, sfb, *reordered)] == [
            ((m, k // 2, 1), FP4),
            ((n, k // 2, 1), FP4),
            ((m, n, 1), HALF),
            ((m, k // 16, 1), FP8),
            ((n, k // 16, 1), FP8),
            ((32, 4, -(-m // 128), 4, k // 64, 1), FP8),
            ((32, 4, -(-n // 128), 4, k // 64, 1), FP8),
        ]
        assert (a.stride(), c.stride()) == ((k // 2, 1, m * k // 2), (n, 1, m * n))
        assert c.isnan().all()
    with pytest.raises(ValueError, match="found 2 problems in m, n and k, expected g = 3"):
        bench.generate({**case, "g": 3})


@pytest.mark.parametrize(
    ("bench", "case"),
    [
        ("nvfp4_gemv", {"m": 64, "k": 16384, "l": 1, "seed": 3}),
        ("nvfp4_gemm", {"m": 128, "n": 128, "k": 16384, "l": 1, "seed": 3}),
        ("nvfp4_dual_gemm", {"m": 128, "n": 128, "k": 7168, "l": 1, "seed": 3}),
        ("nvfp4_group_gemm", {"m": [40], "n": [128], "k": [7168], "g": 1, "seed": 3}),
    ],
    indirect=["bench"],
)
def test_sums_are_exact_in_float32(bench: Bench, case: dict[str, Any]) -> None:
    """The longest sums: factors have six bits, and partial sums, whatever the order, stay below 2**24 of their unit."""
    (a, sfa, _), *others = operands(bench, bench.generate(case))
    left = wide(a, sfa)[..., 0]
    for b, sfb, _ in others:
        right = wide(b, sfb)[..., 0]
        for factor in (left, right):
            fraction, _ = torch.frexp(factor)
            assert torch.equal(fraction * 64, (fraction * 64).round())
        products = left[:8, None] * right[None, :8]
        unit = products[products != 0].abs().min()
        assert torch.equal(products / unit, (products / unit).round())
        # No partial sum is more than those of all that is positive, or of all that is negative.
        assert max(products.clamp(min=0).sum(dim=-1).max(), -products.clamp(max=0).sum(dim=-1).min()) < 2**24 * unit
        assert torch.equal((left.float() @ right.float().T).double(), left @ right.T)
