import torch
from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

# One launch for all problems: 16 by 16 threads, one output each; 64 values of k at a time are dequantized into shared
# memory.
CUDA_SOURCE = r"""
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

constexpr int TILE = 16, K_STEP = 64;

__constant__ float E2M1[16] = {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

__device__ float scale(uint8_t code) {
    __nv_fp8_e4m3 value;
    value.__x = code;
    return static_cast<float>(value);
}

// As the rows of the table that Python makes.
struct Problem {
    const uint8_t *a, *b, *sfa, *sfb;
    __half* c;
    int64_t m, n, k, first_tile;
};

// Two bytes, four values, per thread; zeros for rows beyond the last.
__device__ void load_tile(float (&tile)[TILE][K_STEP + 1], const uint8_t* packed, const uint8_t* scales, long row0,
                          long rows, long k, long k0) {
    const int thread = threadIdx.y * TILE + threadIdx.x, row = thread / 16, column = thread % 16 * 4;
    const bool inside = row0 + row < rows;
    const long start = (row0 + row) * k + k0 + column;
    const float factor = inside ? scale(scales[start / 16]) : 0.f;
    for (int i = 0; i < 4; i += 2) {
        const uint8_t pair = inside ? packed[(start + i) / 2] : 0;
        tile[row][column + i] = E2M1[pair & 15] * factor;
        tile[row][column + i + 1] = E2M1[pair >> 4] * factor;
    }
}

__global__ void group_gemm_kernel(const Problem* problems, int count) {
    __shared__ float left[TILE][K_STEP + 1], right[TILE][K_STEP + 1];
    int index = 0;
    while (index + 1 < count && problems[index + 1].first_tile <= blockIdx.x) ++index;
    const Problem problem = problems[index];
    const long tile = blockIdx.x - problem.first_tile, across = problem.n / TILE;
    const long row0 = tile / across * TILE, column0 = tile % across * TILE;
    float total = 0.f;
    for (long k0 = 0; k0 < problem.k; k0 += K_STEP) {
        load_tile(left, problem.a, problem.sfa, row0, problem.m, problem.k, k0);
        load_tile(right, problem.b, problem.sfb, column0, problem.n, problem.k, k0);
        __syncthreads();
        for (int i = 0; i < K_STEP; ++i) total += left[threadIdx.y][i] * right[threadIdx.x][i];
        __syncthreads();
    }
    const long row = row0 + threadIdx.y;
    if (row < problem.m) problem.c[row * problem.n + column0 + threadIdx.x] = __float2half_rn(total);
}

void group_gemm(torch::Tensor table, int64_t tiles) {
    static_assert(sizeof(Problem) == 9 * sizeof(int64_t));
    group_gemm_kernel<<<tiles, dim3(TILE, TILE)>>>(reinterpret_cast<const Problem*>(table.data_ptr()), table.size(0));
}
"""

TILE = 16
module = load_inline(
    name="nvfp4_group_gemm_inline",
    cpp_sources="void group_gemm(torch::Tensor table, int64_t tiles);",
    cuda_sources=CUDA_SOURCE,
    functions=["group_gemm"],
)


def custom_kernel(data: input_t) -> output_t:
    abc_tensors, sfasfb_tensors, _, sizes = data
    entries, tiles = [], 0
    for (a, b, c), (sfa, sfb), (m, n, k, _) in zip(abc_tensors, sfasfb_tensors, sizes):
        addresses = [each.data_ptr() for each in (a, b, sfa, sfb, c)]
        entries.append([*addresses, m, n, k, tiles])
        tiles += -(-m // TILE) * (n // TILE)
    # From pinned memory: a copy from any other waits for all that the device still has to do.
    out = abc_tensors[0][2]
    table = torch.tensor(entries, dtype=torch.int64, pin_memory=out.is_cuda).to(out.device, non_blocking=True)
    module.group_gemm(table, tiles)
    return [c for _, _, c in abc_tensors]
