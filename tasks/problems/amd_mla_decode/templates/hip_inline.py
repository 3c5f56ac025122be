import torch
from task import input_t, output_t
from torch.utils.cpp_extension import load_inline

# Keys as the queries meet them, the latent values and the rotated ones side by side, are made by one kernel. Where most of
# the time goes is the two products with them; those are the library's here.
HIP_SOURCE = r"""
#include <cstdint>

constexpr int RANK = 512, ROPE = 64, WIDTH = RANK + ROPE, HALF = ROPE / 2;

__device__ float from_bfloat16(uint16_t bits) {
    union { uint32_t bits; float value; } both = {static_cast<uint32_t>(bits) << 16};
    return both.value;
}

// Nearest, ties to even.
__device__ uint16_t to_bfloat16(float value) {
    union { float value; uint32_t bits; } both = {value};
    return static_cast<uint16_t>((both.bits + 0x7FFF + (both.bits >> 16 & 1)) >> 16);
}

__device__ float rounded(float value) { return from_bfloat16(to_bfloat16(value)); }

// A block of 64 threads per entry.
__global__ void keys_kernel(const uint16_t* cache, const uint16_t* frequencies, uint16_t* keys, int maximum) {
    const long position = blockIdx.x, sequence = blockIdx.y, length = gridDim.x;
    const uint16_t* entry = cache + (sequence * maximum + position) * WIDTH;
    uint16_t* key = keys + (sequence * length + position) * WIDTH;
    for (int i = threadIdx.x; i < RANK; i += blockDim.x) key[i] = entry[i];
    const int i = threadIdx.x;
    if (i < HALF) {
        const float angle = rounded(rounded(position) * from_bfloat16(frequencies[i]));
        const float cosine = rounded(cosf(angle)), sine = rounded(sinf(angle));
        const float first = from_bfloat16(entry[RANK + i]), second = from_bfloat16(entry[RANK + HALF + i]);
        key[RANK + i] = to_bfloat16(first * cosine - second * sine);
        key[RANK + HALF + i] = to_bfloat16(second * cosine + first * sine);
    }
}

void make_keys(torch::Tensor cache, torch::Tensor frequencies, torch::Tensor keys) {
    keys_kernel<<<dim3(keys.size(1), keys.size(0)), 64>>>(
        reinterpret_cast<const uint16_t*>(cache.data_ptr()), reinterpret_cast<const uint16_t*>(frequencies.data_ptr()),
        reinterpret_cast<uint16_t*>(keys.data_ptr()), static_cast<int>(cache.size(1)));
}
"""

module = load_inline(
    name="amd_mla_decode_inline",
    cpp_sources="void make_keys(torch::Tensor cache, torch::Tensor frequencies, torch::Tensor keys);",
    cuda_sources=HIP_SOURCE,
    functions=["make_keys"],
)


def custom_kernel(data: input_t) -> output_t:
    config, x, kv_cache = data
    heads, nope, rank = config.n_heads, config.qk_nope_head_dim, config.kv_lora_rank
    token, length = x[:, 0], kv_cache.seq_len + 1
    kv_cache.data[:, length - 1] = token @ config.KV_proj_down_weight.T

    frequencies = (9984.0 ** -(torch.arange(32, dtype=torch.float64, device=x.device) / 32)).bfloat16()
    keys = torch.empty(x.shape[0], length, rank + 64, dtype=x.dtype, device=x.device)
    module.make_keys(kv_cache.data, frequencies, keys)

    queries = (token @ config.Q_proj_down_weight.T @ config.Q_proj_up_weight.T).view(x.shape[0], heads, -1)
    ups = config.KV_proj_up_weight.view(heads, nope + config.v_head_dim, rank)
    absorbed = torch.bmm(queries[..., :nope].transpose(0, 1), ups[:, :nope]).transpose(0, 1)
    angles = torch.full((), length - 1, dtype=torch.bfloat16, device=x.device) * frequencies
    first, second = queries[..., nope : nope + 32], queries[..., nope + 32 :]
    rotated = (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin())
    query = torch.cat((absorbed, *rotated), dim=-1)
    scores = torch.bmm(query, keys.mT).float() * (nope + config.qk_rope_head_dim) ** -0.5
    latent = torch.bmm(scores.softmax(dim=-1).bfloat16(), keys[..., :rank])
    values = torch.bmm(latent.transpose(0, 1), ups[:, nope:].mT).transpose(0, 1)
    return (values.flatten(1) @ config.wo_weight.T)[:, None], kv_cache.data
