"""Throughput of the number formats on the CPU, beside the torch expressions one would write without them.

`make bench ARGS=formats`. A gigabyte is 10**9 bytes of float32 values, read (quantizing) or written (dequantizing); for
scales, of the scales themselves. Both sides are timed in turn in the same process, best of several rounds; what they
give is compared first.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from tasks.problems.formats import fp8, mxfp4, nvfp4, scales128x4

ROWS, COLUMNS = 4096, 4096
ROUNDS = 7
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_MIDPOINTS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)

Outputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The same work done twice."""

    name: str
    ours: Callable[[], Outputs]
    plain: Callable[[], Outputs]
    nbytes: int


def main() -> None:
    """Print the figures, as rows of a table."""
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}")
    print("| work | ours, GB/s | plain, GB/s | ours over plain |\n|---|---|---|---|")
    for comparison in _comparisons():
        for ours, plain in zip(comparison.ours(), comparison.plain(), strict=True):
            if not torch.equal(ours.view(torch.uint8), plain.view(torch.uint8)):
                raise SystemExit(f"{comparison.name}: both sides should give the same bytes")
        times = [(_seconds(comparison.ours), _seconds(comparison.plain)) for _ in range(ROUNDS)]
        ours_s, plain_s = (min(column) for column in zip(*times, strict=True))
        rates = [comparison.nbytes / seconds / 1e9 for seconds in (ours_s, plain_s)]
        print(f"| {comparison.name} | {rates[0]:.2f} | {rates[1]:.2f} | {plain_s / ours_s:.1f} |", flush=True)


def _seconds(work: Callable[[], Outputs]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _comparisons() -> Iterator[Comparison]:
    generator = torch.Generator().manual_seed(1)
    # With an odd last bit none is a tie, where the plain expressions are not exact.
    values = (torch.randn(ROWS, COLUMNS, generator=generator).view(torch.int32) | 1).view(torch.float32)
    nbytes = values.nbytes
    packed, scales = nvfp4.quantize(values)
    yield Comparison(
        name="NVFP4, quantize",
        ours=lambda: nvfp4.quantize(values),
        plain=lambda: _plain_nvfp4(values),
        nbytes=nbytes,
    )
    yield Comparison(
        name="NVFP4, dequantize",
        ours=lambda: (nvfp4.dequantize(packed, scales),),
        plain=lambda: (_plain_dequantize(packed, scales.float(), nvfp4.BLOCK),),
        nbytes=nbytes,
    )
    mx_packed, mx_scales = mxfp4.quantize(values)
    yield Comparison(
        name="MXFP4, quantize",
        ours=lambda: mxfp4.quantize(values),
        plain=lambda: _plain_mxfp4(values),
        nbytes=nbytes,
    )
    yield Comparison(
        name="MXFP4, dequantize",
        ours=lambda: (mxfp4.dequantize(mx_packed, mx_scales),),
        plain=lambda: (_plain_dequantize(mx_packed, mx_scales.float(), mxfp4.BLOCK),),
        nbytes=nbytes,
    )
    e4m3 = torch.float8_e4m3fn
    codes, tile_scales = fp8.quantize_tiles(values, e4m3)
    yield Comparison(
        name="FP8 e4m3fn, encode",
        ours=lambda: (fp8.encode(values, e4m3),),
        plain=lambda: (values.clamp(-448, 448).to(e4m3),),
        nbytes=nbytes,
    )
    yield Comparison(
        name="FP8 e4m3fn, quantize 1 by 128",
        ours=lambda: fp8.quantize_tiles(values, e4m3),
        plain=lambda: _plain_tiles(values),
        nbytes=nbytes,
    )
    yield Comparison(
        name="FP8 e4m3fn, dequantize 1 by 128",
        ours=lambda: (fp8.dequantize_tiles(codes, tile_scales, e4m3),),
        plain=lambda: (codes.float() * tile_scales.repeat_interleave(128, dim=1),),
        nbytes=nbytes,
    )
    wide_scales = scales.repeat(1, 16)
    yield Comparison(
        name="scales, swizzle 128x4",
        ours=lambda: (scales128x4.swizzle(wide_scales),),
        plain=lambda: (_plain_swizzle(wide_scales),),
        nbytes=wide_scales.nbytes,
    )


def _plain_codes(quotients: torch.Tensor) -> torch.Tensor:
    codes = torch.bucketize(quotients.abs(), torch.tensor(_MIDPOINTS)) + 8 * torch.signbit(quotients)
    return (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)


def _plain_nvfp4(values: torch.Tensor) -> Outputs:
    blocks = values.view(ROWS, -1, 16)
    scales = (blocks.abs().amax(dim=-1) / 6).to(torch.float8_e4m3fn)
    return _plain_codes(blocks / scales.float().unsqueeze(-1)).view(ROWS, -1), scales


def _plain_mxfp4(values: torch.Tensor) -> Outputs:
    blocks = values.view(ROWS, -1, 32)
    exponents = blocks.abs().amax(dim=-1).log2().floor() - 2
    scales = (exponents + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
    return _plain_codes(blocks / exponents.exp2().unsqueeze(-1)).view(ROWS, -1), scales


def _plain_dequantize(packed: torch.Tensor, scales: torch.Tensor, block: int) -> torch.Tensor:
    codes = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(1).long()
    return torch.tensor(_VALUES)[codes] * scales.repeat_interleave(block, dim=1)


def _plain_tiles(values: torch.Tensor) -> Outputs:
    tiles = values.view(ROWS, -1, 128)
    scales = tiles.abs().amax(dim=-1) / 448
    return (tiles / scales.unsqueeze(-1)).to(torch.float8_e4m3fn).view(ROWS, COLUMNS), scales


def _plain_swizzle(scales: torch.Tensor) -> torch.Tensor:
    raw = scales.view(torch.uint8)
    rows, blocks = raw.shape
    r, j = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
    swizzled = torch.empty(rows // 128, blocks // 4, 32, 4, 4, dtype=torch.uint8)
    swizzled[r // 128, j // 4, r % 32, r % 128 // 32, j % 4] = raw
    return swizzled.view(scales.dtype)
