import torch
from formats import decode, encode
from task import input_t, output_t
from utils import make_match_reference

FP8 = torch.float8_e4m3fnuz
# Values along k that share a scale, and columns of the product that do.
BLOCK = 128


def ref_kernel(data: input_t) -> output_t:
    a, b, a_scale, b_scale, c = data
    columns = b_scale.repeat_interleave(BLOCK, dim=0)[: b.shape[0]]
    total = torch.zeros(c.shape, device=c.device)
    for block in range(a_scale.shape[1]):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        # A device that multiplies float32 in TF32 is as exact: a value has four significant bits. Scales come after.
        sums = decode(a[:, part], FP8) @ decode(b[:, part], FP8).T
        total.addcmul_(sums, a_scale[:, block, None] * columns[None, :, block])
    return total.to(c.dtype)


def generate_input(m: int, n: int, k: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    blocks = k // BLOCK

    def matrix(rows: int, tile_rows: int, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
        # From block to block the codes are larger or smaller by powers of two, from the subnormal ones to the largest,
        # and the scales the opposite: every block counts as much as any other, with the scale of another it is wrong
        # by powers of two.
        powers = torch.randint(-6, 7, (blocks, 1, 1), device=device, generator=generator)
        values = torch.randn(blocks, BLOCK, rows, device=device, generator=generator)
        codes = encode(torch.ldexp(values, powers), FP8).flatten(0, 1)
        scales = torch.rand(blocks, -(-rows // tile_rows), device=device, generator=generator) + 0.5
        return codes.T, torch.ldexp(scales * factor, -powers[:, 0]).T

    # Sums of k products have a standard deviation of about 1.
    a, a_scale = matrix(m, 1, k**-0.5)
    b, b_scale = matrix(n, BLOCK, 1.0)
    if edge:
        # Each row of a has one block that counts.
        kept = torch.randint(0, blocks, (m, 1), device=device, generator=generator)
        a_scale *= torch.arange(blocks, device=device) == kept
    # NaN: an element that was not written cannot pass.
    return a, b, a_scale, b_scale, torch.full((m, n), float("nan"), dtype=torch.bfloat16, device=device)


# Sums are about 1. In float32, whatever the order, the errors of 7,168 products and of a partial sum per block are
# below 1e-5, and rounding to bfloat16 costs at most a step of it, 2**-7 of the value, between two that fall on both
# sides of a midpoint: less than half of the relative tolerance. Scales or sums of blocks in bfloat16 err by 2**-9 of
# what they stand for: where it cancels, that is more than the absolute tolerance.
check_implementation = make_match_reference(ref_kernel, rtol=2e-2, atol=1e-3)
