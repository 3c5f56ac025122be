from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

# One element per thread, as bits: a copy through float would change none of them either, but why go there.
CUDA_SOURCE = r"""
#include <cstdint>

__global__ void copy_kernel(const uint16_t* source, uint16_t* output, long size) {
    const long index = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    if (index < size) output[index] = source[index];
}

void copy(torch::Tensor source, torch::Tensor output) {
    const long size = source.numel();
    const int threads = 256;
    copy_kernel<<<(size + threads - 1) / threads, threads>>>(
        reinterpret_cast<const uint16_t*>(source.data_ptr()), reinterpret_cast<uint16_t*>(output.data_ptr()), size);
}
"""

module = load_inline(
    name="identity_inline",
    cpp_sources="void copy(torch::Tensor source, torch::Tensor output);",
    cuda_sources=CUDA_SOURCE,
    functions=["copy"],
)


def custom_kernel(data: input_t) -> output_t:
    source, output = data
    module.copy(source, output)
    return output
