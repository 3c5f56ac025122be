"""Number formats give the same bytes on an accelerator as on the CPU, where tests hold them to their definitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tasks.problems.formats import fp8, mxfp4, nvfp4, scales128x4

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")

Outputs = tuple[torch.Tensor, ...]


def patterns() -> torch.Tensor:
    """Every finite bfloat16, in rows of 128, and as many normal numbers."""
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    normal = torch.randn(1 << 16, generator=torch.Generator().manual_seed(1))
    return torch.cat([every.nan_to_num(0.0, 1.0, -1.0), normal]).view(-1, 128)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "work",
    [
        nvfp4.quantize,
        nvfp4.quantize_two_level,
        lambda values: (nvfp4.dequantize(*nvfp4.quantize(values)),),
        *(lambda values, rule=rule: mxfp4.quantize(values, rule) for rule in mxfp4.ScaleRule),
        lambda values: (mxfp4.dequantize(*mxfp4.quantize(values)),),
        *(lambda values, dtype=dtype: (fp8.encode(values, dtype, saturate=False),) for dtype in fp8.FORMATS),
        *(lambda values, dtype=dtype: fp8.quantize_tiles(values, dtype, tile=(8, 32)) for dtype in fp8.FORMATS),
        *(lambda values, dtype=dtype: fp8.quantize_mx(values, dtype) for dtype in fp8.FORMATS),
        lambda values: (fp8.encode_e8m0(values), fp8.encode_e8m0(values, round_up=True)),
        lambda values: (scales128x4.swizzle(values.to(torch.float8_e4m3fn)),),
    ],
)
def test_the_bytes_are_those_of_the_cpu(work: Callable[[torch.Tensor], Outputs], dtype: torch.dtype) -> None:
    """Codes, scales and values alike."""
    values = patterns().to(dtype)
    for expected, found in zip(work(values), work(values.cuda()), strict=True):
        assert torch.equal(found.cpu().reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))
