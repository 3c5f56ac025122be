import functools

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from task import input_t, output_t

# One thread per output, reading bytes and looking values up: right on any GPU, and a place to start from. The fast way
# is one launch for all problems, with TMA and block-scaled tcgen05 instructions, which read the reordered scales as they
# are.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
THREADS = 128


@cute.kernel
def gemm_kernel(
    a: cute.Tensor,
    b: cute.Tensor,
    sfa: cute.Tensor,
    sfb: cute.Tensor,
    e2m1: cute.Tensor,
    e4m3: cute.Tensor,
    c: cute.Tensor,
):
    thread, _, _ = cute.arch.thread_idx()
    tile, row, batch = cute.arch.block_idx()
    column = tile * THREADS + thread
    total = cutlass.Float32(0.0)
    for block in cutlass.range(sfa.shape[1]):
        partial = cutlass.Float32(0.0)
        for i in cutlass.range_constexpr(8):
            left = cutlass.Int32(a[row, block * 8 + i, batch])
            right = cutlass.Int32(b[column, block * 8 + i, batch])
            partial += e2m1[left & 15] * e2m1[right & 15] + e2m1[left >> 4] * e2m1[right >> 4]
        factor = e4m3[cutlass.Int32(sfa[row, block, batch])] * e4m3[cutlass.Int32(sfb[column, block, batch])]
        total += partial * factor
    c[row, column, batch] = total.to(cutlass.Float16)


@cute.jit
def gemm(
    a: cute.Tensor,
    b: cute.Tensor,
    sfa: cute.Tensor,
    sfb: cute.Tensor,
    e2m1: cute.Tensor,
    e4m3: cute.Tensor,
    c: cute.Tensor,
):
    m, n, batches = c.shape
    gemm_kernel(a, b, sfa, sfb, e2m1, e4m3, c).launch(grid=(n // THREADS, m, batches), block=(THREADS, 1, 1))


@functools.cache
def tables(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    # Once for all calls: a copy of Python numbers to a device waits for all that it still has to do.
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    return torch.tensor(E2M1, device=device), codes.view(torch.float8_e4m3fn).float()


compiled = {}


def custom_kernel(data: input_t) -> output_t:
    abc_tensors, sfasfb_tensors, _, _ = data
    both = tables(abc_tensors[0][2].device)
    for (a, b, c), (sfa, sfb) in zip(abc_tensors, sfasfb_tensors):
        arguments = [from_dlpack(each) for each in (*(each.view(torch.uint8) for each in (a, b, sfa, sfb)), *both, c)]
        key = (a.shape, b.shape)
        if key not in compiled:
            compiled[key] = cute.compile(gemm, *arguments)
        compiled[key](*arguments)
    return [c for _, _, c in abc_tensors]
