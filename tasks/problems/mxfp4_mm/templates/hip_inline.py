import torch
from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

# 16 by 16 threads, one output each; 64 values of k at a time are quantized (A) and decoded (B) into shared memory.
HIP_SOURCE = r"""
#include <cstdint>

constexpr int TILE = 16, K_STEP = 64, BLOCK = 32;

__device__ float as_float(uint32_t bits) {
    union { uint32_t bits; float value; } both = {bits};
    return both.value;
}

__device__ uint32_t as_bits(float value) {
    union { float value; uint32_t bits; } both = {value};
    return both.bits;
}

// 2 ** (code - 127); 0 stands for 2 ** -127, which only blocks of zeros have here.
__device__ float e8m0(uint32_t code) { return as_float(code << 23); }

__device__ float bfloat16(uint16_t bits) { return as_float(static_cast<uint32_t>(bits) << 16); }

// Nearest, ties to even.
__device__ uint16_t to_bfloat16(float value) {
    const uint32_t bits = as_bits(value);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

__device__ float decode_e2m1(uint32_t code) {
    const float magnitude = code & 6 ? as_float(((code & 7) + 252) << 22) : (code & 1) * .5f;
    return code & 8 ? -magnitude : magnitude;
}

// Half steps up to 2, whole ones up to 4, then steps of 2; what is above 6 becomes 6.
__device__ float round_e2m1(float value) {
    const float magnitude = fabsf(value), step = magnitude < 2.f ? .5f : magnitude < 4.f ? 1.f : 2.f;
    return copysignf(fminf(rintf(magnitude / step) * step, 6.f), value);
}

__global__ void matmul_kernel(const uint16_t* a, const uint8_t* b, const uint8_t* scales, uint16_t* c, int m, int n,
                              int k, int scale_blocks) {
    __shared__ float left[TILE][K_STEP + 1], right[TILE][K_STEP + 1];
    const int thread = threadIdx.y * TILE + threadIdx.x, tile_row = thread / 16, part = thread % 16;
    const long row = static_cast<long>(blockIdx.y) * TILE + tile_row, column = blockIdx.x * TILE + tile_row;
    float total = 0.f;
    for (int k0 = 0; k0 < k; k0 += K_STEP) {
        // Four values of a row of A per thread, and eight threads per block of 32.
        float values[4], largest = 0.f;
        for (int i = 0; i < 4; ++i) {
            values[i] = row < m ? bfloat16(a[row * k + k0 + part * 4 + i]) : 0.f;
            left[tile_row][part * 4 + i] = fabsf(values[i]);
        }
        __syncthreads();
        for (int i = 0; i < BLOCK; ++i) largest = fmaxf(largest, left[tile_row][part / 8 * BLOCK + i]);
        __syncthreads();
        const int exponent = static_cast<int>((as_bits(largest) + 0x200000) >> 23) - 2, code = exponent < 0 ? 0 : exponent;
        for (int i = 0; i < 4; ++i) left[tile_row][part * 4 + i] = round_e2m1(values[i] * e8m0(254 - code)) * e8m0(code);
        // Four weights of a row of B per thread.
        const int block = k0 / BLOCK + part / 8;
        const long place = column / 32 * 32 * scale_blocks + block / 8 * 256 + block % 4 * 64 + column % 16 * 4 +
                           block % 8 / 4 * 2 + column % 32 / 16;
        const float factor = e8m0(scales[place]);
        for (int i = 0; i < 4; i += 2) {
            const uint8_t pair = b[(column * k + k0 + part * 4 + i) / 2];
            right[tile_row][part * 4 + i] = decode_e2m1(pair & 15) * factor;
            right[tile_row][part * 4 + i + 1] = decode_e2m1(pair >> 4) * factor;
        }
        __syncthreads();
        for (int i = 0; i < K_STEP; ++i) total += left[threadIdx.y][i] * right[threadIdx.x][i];
        __syncthreads();
    }
    const long out_row = static_cast<long>(blockIdx.y) * TILE + threadIdx.y;
    if (out_row < m) c[out_row * n + blockIdx.x * TILE + threadIdx.x] = to_bfloat16(total);
}

void matmul(torch::Tensor a, torch::Tensor b, torch::Tensor scales, torch::Tensor c) {
    const int m = a.size(0), n = c.size(1), k = a.size(1);
    matmul_kernel<<<dim3(n / TILE, (m + TILE - 1) / TILE), dim3(TILE, TILE)>>>(
        reinterpret_cast<const uint16_t*>(a.data_ptr()), b.data_ptr<uint8_t>(), scales.data_ptr<uint8_t>(),
        reinterpret_cast<uint16_t*>(c.data_ptr()), m, n, k, static_cast<int>(scales.size(1)));
}
"""

module = load_inline(
    name="mxfp4_mm_inline",
    cpp_sources="void matmul(torch::Tensor a, torch::Tensor b, torch::Tensor scales, torch::Tensor c);",
    cuda_sources=HIP_SOURCE,
    functions=["matmul"],
)


def custom_kernel(data: input_t) -> output_t:
    A, B, B_q, B_shuffle, B_scale_sh = data
    c = torch.empty(A.shape[0], B.shape[0], dtype=torch.bfloat16, device=A.device)
    module.matmul(A, B_q.view(torch.uint8), B_scale_sh.view(torch.uint8), c)
    return c
