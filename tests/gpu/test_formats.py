"""Number formats give the same bytes on an accelerator as on the CPU, where tests hold them to their definitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tasks.problems.formats import mxfp4, nvfp4, scales128x4

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")

E4M3FN = torch.float8_e4m3fn
Outputs = tuple[torch.Tensor, ...]


def patterns() -> torch.Tensor:
    """Every finite bfloat16, in rows of 128, and as many normal numbers."""
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    normal = torch.randn(1 << 16, generator=torch.Generator().manual_seed(1))
    return torch.cat([every.nan_to_num(0.0, 1.0, -1.0), normal]).view(-1, 128)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "work",
    [
        *(lambda values, rule=rule: mxfp4.quantize(values, rule) for rule in mxfp4.ScaleRule),
        lambda values: (mxfp4.dequantize(*mxfp4.quantize(values)),),
        lambda values: (nvfp4.dequantize(mxfp4.quantize(values)[0], torch.full_like(values[:, ::16], 1.5).to(E4M3FN)),),
        lambda values: (nvfp4.decode_e2m1(nvfp4.unpack_e2m1(mxfp4.quantize(values)[0])),),
        lambda values: (scales128x4.cute_order(values.to(E4M3FN).unsqueeze(-1)),),
    ],
)
def test_the_bytes_are_those_of_the_cpu(work: Callable[[torch.Tensor], Outputs], dtype: torch.dtype) -> None:
    """Codes, scales and values alike."""
    values = patterns().to(dtype)
    for expected, found in zip(work(values), work(values.cuda()), strict=True):
        assert torch.equal(found.cpu().reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))
