import torch
import torch.distributed as dist
from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

# The product is the library's and so is what travels. Adding up is a kernel: in float32, in the order of the ranks,
# with one rounding at the end. The fast way lets the kernel read the other ranks' parts where they are, over peer access.
HIP_SOURCE = r"""
#include <cstdint>

constexpr int THREADS = 256;

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

__global__ void add_up_kernel(const uint16_t* parts, uint16_t* output, long size, int ranks) {
    const long index = blockIdx.x * static_cast<long>(THREADS) + threadIdx.x;
    if (index >= size) return;
    float total = 0.f;
    for (int rank = 0; rank < ranks; ++rank) total += from_bfloat16(parts[rank * size + index]);
    output[index] = to_bfloat16(total);
}

void add_up(torch::Tensor parts, torch::Tensor output) {
    const long size = output.numel();
    const int ranks = parts.numel() / size;
    add_up_kernel<<<(size + THREADS - 1) / THREADS, THREADS>>>(
        reinterpret_cast<const uint16_t*>(parts.data_ptr()), reinterpret_cast<uint16_t*>(output.data_ptr()), size,
        ranks);
}
"""

module = load_inline(
    name="amd_gemm_rs_inline",
    cpp_sources="void add_up(torch::Tensor parts, torch::Tensor output);",
    cuda_sources=HIP_SOURCE,
    functions=["add_up"],
)


def custom_kernel(data: input_t) -> output_t:
    input, weight, bias = data
    part = torch.nn.functional.linear(input, weight, bias)
    # Every rank's part of this rank's rows, in the order of the ranks
    received = torch.empty_like(part)
    dist.all_to_all_single(received, part)
    output = torch.empty(part.shape[0] // dist.get_world_size(), part.shape[1], dtype=part.dtype, device=part.device)
    module.add_up(received, output)
    return output
