"""Inputs of the NVFP4 tasks; a file that only the judge has (`private` in runner.yml).

Self-contained. Random where any value will do, and otherwise such that what is easily got wrong shows: all sixteen
codes occur; scales run from the least subnormal number to 256, in opposite directions in the two factors of a product,
so that a scale of the next block, or of a wrong row, is wrong by powers of two; and every sum is exact.

Exact, because a product is a multiple of 1/64 (two codes in halves, two scales in quarters, powers of two that cancel)
and at most 144: of 16,384 of them, the standard deviation of the sum is 1,552, and all that are positive add up to less
than 2**18, to where float32 counts 1/64. Whatever the order of summation, float32 rounds nothing, and a tolerance need
not allow for it. Nor does TF32: a value times its scale has six significant bits.
"""

from __future__ import annotations

import torch

#: Values that share a scale.
BLOCK = 16
#: Powers of two by which scales differ from block to block; 0 to 8 quarters of each are e4m3fn numbers.
_LEAST = -7
_GREATEST = 7


def device() -> str:
    """Where inputs are made: the accelerator, or the CPU on hosts without one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def seeded(seed: int) -> torch.Generator:
    """A generator on that device."""
    return torch.Generator(device=device()).manual_seed(seed)


def exponents(k: int, batches: int, generator: torch.Generator, *, total: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Powers of two for the scales of the two factors of a product, block by block.

    Args:
        k: values per row.
        batches: how many products.
        generator: advanced by one draw.
        total: what the two exponents of a block add up to, -14 to 14.

    Returns:
        Two of shape (batches, 1, k / 16), integers.
    """
    low, high = max(_LEAST, total - _GREATEST), min(_GREATEST, total - _LEAST)
    shape = (batches, 1, k // BLOCK)
    first = torch.randint(low, high + 1, shape, device=generator.device, generator=generator)
    return first, total - first


def matrix(
    rows: int, k: int, powers: torch.Tensor, generator: torch.Generator, *, edge: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed values and their scales, `k` contiguous.

    Args:
        rows: of each matrix.
        k: values per row, a multiple of 64.
        powers: of shape (batches, 1, k / 16), from `exponents`.
        generator: advanced by two draws, or three.
        edge: not 0 leaves each row one block whose scale is not zero.

    Returns:
        torch.float4_e2m1fn_x2 of shape (rows, k / 2, batches), and torch.float8_e4m3fn of shape
        (rows, k / 16, batches).
    """
    batches = powers.shape[0]
    # Any byte is two e2m1 values.
    raw = torch.randint(
        0, 256, (batches, rows, k // 2), dtype=torch.uint8, device=generator.device, generator=generator
    )
    quarters = torch.randint(0, 9, (batches, rows, k // BLOCK), device=generator.device, generator=generator)
    if edge:
        kept = torch.randint(0, k // BLOCK, (batches, rows, 1), device=generator.device, generator=generator)
        quarters *= torch.arange(k // BLOCK, device=generator.device) == kept
    scales = torch.ldexp(quarters / 4, powers).to(torch.float8_e4m3fn)
    return raw.permute(1, 2, 0).view(torch.float4_e2m1fn_x2), scales.permute(1, 2, 0)


def unwritten(rows: int, columns: int, batches: int, generator: torch.Generator) -> torch.Tensor:
    """An output of shape (rows, columns, batches), columns contiguous, of NaN: unwritten elements cannot pass."""
    return torch.full((batches, rows, columns), float("nan"), dtype=torch.float16, device=generator.device).permute(
        1, 2, 0
    )
