from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

# The bits are copied as integers, eight of 16 in a load where all eight are there.
HIP_SOURCE = r"""
#include <cstdint>

constexpr int THREADS = 256, WIDTH = 8;

__global__ void copy_kernel(const uint16_t* source, uint16_t* output, int size) {
    const int start = (blockIdx.x * THREADS + threadIdx.x) * WIDTH;
    if (start + WIDTH <= size) {
        *reinterpret_cast<uint4*>(output + start) = *reinterpret_cast<const uint4*>(source + start);
    } else {
        for (int i = start; i < size; ++i) output[i] = source[i];
    }
}

void copy(torch::Tensor source, torch::Tensor output) {
    const int size = source.numel();
    copy_kernel<<<(size + THREADS * WIDTH - 1) / (THREADS * WIDTH), THREADS>>>(
        reinterpret_cast<const uint16_t*>(source.data_ptr()), reinterpret_cast<uint16_t*>(output.data_ptr()), size);
}
"""

module = load_inline(
    name="amd_identity_inline",
    cpp_sources="void copy(torch::Tensor source, torch::Tensor output);",
    cuda_sources=HIP_SOURCE,
    functions=["copy"],
)


def custom_kernel(data: input_t) -> output_t:
    source, output = data
    module.copy(source, output)
    return output
