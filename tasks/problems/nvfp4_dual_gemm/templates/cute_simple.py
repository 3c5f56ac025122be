import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from task import input_t, output_t

# One thread per output, reading bytes and looking values up: right on any GPU, and a place to start from. The fast way
# is TMA and block-scaled tcgen05 instructions, which read the permuted scales as they are, with a's tile kept for both
# products and silu in the epilogue.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
THREADS = 128


@cute.kernel
def dual_gemm_kernel(
    a: cute.Tensor,
    b1: cute.Tensor,
    b2: cute.Tensor,
    sfa: cute.Tensor,
    sfb1: cute.Tensor,
    sfb2: cute.Tensor,
    e2m1: cute.Tensor,
    e4m3: cute.Tensor,
    c: cute.Tensor,
):
    thread, _, _ = cute.arch.thread_idx()
    tile, row, batch = cute.arch.block_idx()
    column = tile * THREADS + thread
    gate = cutlass.Float32(0.0)
    up = cutlass.Float32(0.0)
    for block in cutlass.range(sfa.shape[1]):
        gate_partial = cutlass.Float32(0.0)
        up_partial = cutlass.Float32(0.0)
        for i in cutlass.range_constexpr(8):
            left = cutlass.Int32(a[row, block * 8 + i, batch])
            low, high = e2m1[left & 15], e2m1[left >> 4]
            right1 = cutlass.Int32(b1[column, block * 8 + i, batch])
            right2 = cutlass.Int32(b2[column, block * 8 + i, batch])
            gate_partial += low * e2m1[right1 & 15] + high * e2m1[right1 >> 4]
            up_partial += low * e2m1[right2 & 15] + high * e2m1[right2 >> 4]
        factor = e4m3[cutlass.Int32(sfa[row, block, batch])]
        gate += gate_partial * factor * e4m3[cutlass.Int32(sfb1[column, block, batch])]
        up += up_partial * factor * e4m3[cutlass.Int32(sfb2[column, block, batch])]
    result = gate / (1.0 + cute.math.exp(-gate)) * up
    c[row, column, batch] = result.to(cutlass.Float16)


@cute.jit
def dual_gemm(
    a: cute.Tensor,
    b1: cute.Tensor,
    b2: cute.Tensor,
    sfa: cute.Tensor,
    sfb1: cute.Tensor,
    sfb2: cute.Tensor,
    e2m1: cute.Tensor,
    e4m3: cute.Tensor,
    c: cute.Tensor,
):
    m, n, batches = c.shape
    dual_gemm_kernel(a, b1, b2, sfa, sfb1, sfb2, e2m1, e4m3, c).launch(
        grid=(n // THREADS, m, batches), block=(THREADS, 1, 1)
    )


@functools.cache
def tables(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    # Once for all calls: a copy of Python numbers to a device waits for all that it still has to do.
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    return torch.tensor(E2M1, device=device), codes.view(torch.float8_e4m3fn).float()


compiled = {}


def custom_kernel(data: input_t) -> output_t:
    c = data[-1]
    arguments = [from_dlpack(each) for each in (*(each.view(torch.uint8) for each in data[:6]), *tables(c.device), c)]
    key = (data[0].shape, data[1].shape)
    if key not in compiled:
        compiled[key] = cute.compile(dual_gemm, *arguments)
    compiled[key](*arguments)
    return c
