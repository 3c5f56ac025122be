import torch
from formats import BLOCK, dequantize
from task import input_t, output_t
from utils import make_match_reference

# Rows of b that block-scaled tensor-core instructions want; all but the first are padding.
B_ROWS = 128
# Rows dequantized at a time, so that the largest case needs megabytes beside its input, not gigabytes.
ROWS_AT_A_TIME = 1024


def ref_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    output = torch.empty_like(c)
    for batch in range(c.shape[2]):
        vector = dequantize(b[:1, :, batch], sfb[:1, :, batch])[0]
        for start in range(0, c.shape[0], ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            matrix = dequantize(a[rows, :, batch], sfa[rows, :, batch])
            # Not a matmul: its accumulation may be less than float32 (TF32) where a device prefers that.
            output[rows, 0, batch] = (matrix * vector).sum(dim=1, dtype=torch.float32).to(output.dtype)
    return output


def permute_scales(scales: torch.Tensor) -> torch.Tensor:
    # (rows, blocks, l) -> (32, 4, rows / 128, 4, blocks / 4, l), the order of cuBLAS's 1D block scaling factors layout:
    # tiles of 128 rows by 4 blocks, and in a tile row r at (r % 32, r // 32).
    rows, blocks, batches = scales.shape
    tiles = scales.permute(2, 0, 1).reshape(batches, rows // 128, 4, 32, blocks // 4, 4)
    stored = tiles.permute(0, 1, 4, 3, 2, 5).contiguous()
    return stored.permute(3, 4, 1, 5, 2, 0)


def generate_input(m: int, k: int, l: int, seed: int) -> input_t:  # noqa: E741
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)

    def codes(rows: int) -> torch.Tensor:
        # Any byte is two e2m1 values: all 16 codes occur.
        raw = torch.randint(0, 256, (l, rows, k // 2), dtype=torch.uint8, device=device, generator=generator)
        return raw.permute(1, 2, 0).view(torch.float4_e2m1fn_x2)

    def scales(rows: int) -> torch.Tensor:
        # 0, 1/4, …, 2: products stay multiples of 1/64, so a float32 sum is exact in whatever order it is taken.
        quarters = torch.randint(0, 9, (l, rows, k // BLOCK), device=device, generator=generator)
        return (quarters / 4).to(torch.float8_e4m3fn).permute(1, 2, 0)

    a, b = codes(m), codes(B_ROWS)
    sfa, sfb = scales(m), scales(B_ROWS)
    # NaN: an element that was not written, or was added to, cannot pass.
    c = torch.full((l, m, 1), float("nan"), dtype=torch.float16, device=device).permute(1, 2, 0)
    return a, b, sfa, sfb, permute_scales(sfa), permute_scales(sfb), c


check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=1e-3)
