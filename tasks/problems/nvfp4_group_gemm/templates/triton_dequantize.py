import torch
import triton
import triton.language as tl
from task import input_t, output_t

# Dequantizes to float16, which holds every e2m1 value times every e4m3 scale exactly, and multiplies on the tensor
# cores of any GPU that has FP8. On Blackwell, tl.dot_scaled takes the packed values and the scales as they are.
# One launch: each program finds its tile in a table of all problems.


@triton.jit
def decode(codes):
    # The bits of e2m1 are the top of a float16's, with an exponent that is less by 14.
    bits = ((codes & 8) << 12) | ((codes & 7) << 9)
    return bits.to(tl.int16).to(tl.float16, bitcast=True) * 16384.0


@triton.jit
def load_tile(packed, scales, rows, inside, start, k, ROWS: tl.constexpr, K_STEP: tl.constexpr):
    # (ROWS, K_STEP) in float16
    pairs = start // 2 + tl.arange(0, K_STEP // 2)
    raw = tl.load(packed + rows[:, None] * (k // 2) + pairs[None, :], mask=inside[:, None], other=0).to(tl.int32)
    values = tl.join(decode(raw & 15), decode(raw >> 4))
    blocks = start // 16 + tl.arange(0, K_STEP // 16)
    factors = tl.load(scales + rows[:, None] * (k // 16) + blocks[None, :], mask=inside[:, None], other=0.0)
    values = tl.reshape(values, (ROWS, K_STEP // 16, 16)) * factors.to(tl.float16)[:, :, None]
    return tl.reshape(values, (ROWS, K_STEP))


@triton.jit
def group_gemm(table, problems, M_TILE: tl.constexpr, N_TILE: tl.constexpr, K_STEP: tl.constexpr):
    # A row of the table: addresses of a, b, sfa, sfb and c, then m, n, k and the problem's first tile.
    tile = tl.program_id(0)
    entry = table
    for index in range(1, problems):
        if tl.load(table + index * 9 + 8) <= tile:
            entry = table + index * 9
    a = tl.load(entry).to(tl.pointer_type(tl.uint8))
    b = tl.load(entry + 1).to(tl.pointer_type(tl.uint8))
    sfa = tl.load(entry + 2).to(tl.pointer_type(tl.float8e4nv))
    sfb = tl.load(entry + 3).to(tl.pointer_type(tl.float8e4nv))
    c = tl.load(entry + 4).to(tl.pointer_type(tl.float16))
    m, n, k = tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7)
    tile -= tl.load(entry + 8).to(tl.int32)
    across = (n // N_TILE).to(tl.int32)
    rows = (tile // across * M_TILE + tl.arange(0, M_TILE)).to(tl.int64)
    columns = (tile % across * N_TILE + tl.arange(0, N_TILE)).to(tl.int64)
    inside = rows < m
    total = tl.zeros((M_TILE, N_TILE), dtype=tl.float32)
    for start in range(0, k, K_STEP):
        left = load_tile(a, sfa, rows, inside, start, k, M_TILE, K_STEP)
        right = load_tile(b, sfb, columns, columns < n, start, k, N_TILE, K_STEP)
        total = tl.dot(left, tl.trans(right), total)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=inside[:, None])


def custom_kernel(data: input_t) -> output_t:
    abc_tensors, sfasfb_tensors, _, sizes = data
    m_tile, n_tile = 64, 64
    entries, tiles = [], 0
    for (a, b, c), (sfa, sfb), (m, n, k, _) in zip(abc_tensors, sfasfb_tensors, sizes):
        addresses = [each.data_ptr() for each in (a, b, sfa, sfb, c)]
        entries.append([*addresses, m, n, k, tiles])
        tiles += triton.cdiv(m, m_tile) * (n // n_tile)
    # From pinned memory: a copy from any other waits for all that the device still has to do.
    out = abc_tensors[0][2]
    table = torch.tensor(entries, dtype=torch.int64, pin_memory=out.is_cuda).to(out.device, non_blocking=True)
    group_gemm[(tiles,)](table, len(entries), M_TILE=m_tile, N_TILE=n_tile, K_STEP=128)
    return [c for _, _, c in abc_tensors]
