import torch
import torch.distributed as dist
from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

# The rows travel by the library. The product is a kernel: 16 by 16 threads, one output each; 64 values of k at a time
# in shared memory. The fast way is the matrix instructions (v_mfma_f32_32x32x8_bf16_1k), fed while the rows arrive.
HIP_SOURCE = r"""
#include <cstdint>

constexpr int TILE = 16, K_STEP = 64;

__device__ float from_bfloat16(uint16_t bits) {
    union { uint32_t bits; float value; } both = {static_cast<uint32_t>(bits) << 16};
    return both.value;
}

// Nearest, ties to even.
__device__ uint16_t to_bfloat16(float value) {
    union { float value; uint32_t bits; } both = {value};
    if (value != value) return 0x7FC0;
    return static_cast<uint16_t>((both.bits + 0x7FFF + (both.bits >> 16 & 1)) >> 16);
}

// Neighbouring threads read neighbouring values; zeros outside.
__device__ void load_tile(float (&tile)[TILE][K_STEP + 1], const uint16_t* matrix, long row0, long rows, long k,
                          long k0) {
    for (int i = threadIdx.y * TILE + threadIdx.x; i < TILE * K_STEP; i += TILE * TILE) {
        const long row = row0 + i / K_STEP, column = k0 + i % K_STEP;
        tile[i / K_STEP][i % K_STEP] = row < rows && column < k ? from_bfloat16(matrix[row * k + column]) : 0.f;
    }
}

__global__ void linear_kernel(const uint16_t* x, const uint16_t* weight, const uint16_t* bias, uint16_t* output, long m,
                              long n, long k) {
    __shared__ float left[TILE][K_STEP + 1], right[TILE][K_STEP + 1];
    const long row0 = blockIdx.y * static_cast<long>(TILE), column0 = blockIdx.x * static_cast<long>(TILE);
    const long row = row0 + threadIdx.y, column = column0 + threadIdx.x;
    float total = 0.f;
    for (long k0 = 0; k0 < k; k0 += K_STEP) {
        load_tile(left, x, row0, m, k, k0);
        load_tile(right, weight, column0, n, k, k0);
        __syncthreads();
        for (int i = 0; i < K_STEP; ++i) total += left[threadIdx.y][i] * right[threadIdx.x][i];
        __syncthreads();
    }
    if (row >= m || column >= n) return;
    if (bias != nullptr) total += from_bfloat16(bias[column]);
    output[row * n + column] = to_bfloat16(total);
}

void linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor output) {
    const long m = output.size(0), n = output.size(1), k = x.size(1);
    linear_kernel<<<dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), dim3(TILE, TILE)>>>(
        reinterpret_cast<const uint16_t*>(x.data_ptr()), reinterpret_cast<const uint16_t*>(weight.data_ptr()),
        bias.numel() ? reinterpret_cast<const uint16_t*>(bias.data_ptr()) : nullptr,
        reinterpret_cast<uint16_t*>(output.data_ptr()), m, n, k);
}
"""

module = load_inline(
    name="amd_ag_gemm_inline",
    cpp_sources="void linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, torch::Tensor output);",
    cuda_sources=HIP_SOURCE,
    functions=["linear"],
)


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    full = torch.empty(input.shape[0] * dist.get_world_size(), input.shape[1], dtype=input.dtype, device=input.device)
    dist.all_gather_into_tensor(full, input.contiguous())
    output = torch.empty(full.shape[0], weight.shape[0], dtype=input.dtype, device=input.device)
    # An empty one stands for none.
    module.linear(full, weight.contiguous(), input.new_empty(0) if bias is None else bias, output)
    return output
