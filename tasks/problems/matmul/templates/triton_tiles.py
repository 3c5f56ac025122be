import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def multiply(a, b, c, m, n, k, M_TILE: tl.constexpr, N_TILE: tl.constexpr, K_TILE: tl.constexpr):
    rows = tl.program_id(0) * M_TILE + tl.arange(0, M_TILE)
    columns = tl.program_id(1) * N_TILE + tl.arange(0, N_TILE)
    total = tl.zeros((M_TILE, N_TILE), dtype=tl.float32)
    for start in range(0, k, K_TILE):
        inner = start + tl.arange(0, K_TILE)
        left_inside = (rows < m)[:, None] & (inner < k)[None, :]
        right_inside = (inner < k)[:, None] & (columns < n)[None, :]
        left = tl.load(a + rows[:, None] * k + inner[None, :], mask=left_inside, other=0.0)
        right = tl.load(b + inner[:, None] * n + columns[None, :], mask=right_inside, other=0.0)
        total = tl.dot(left, right, total)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=inside)


def custom_kernel(data: input_t) -> output_t:
    a, b, c = data
    (m, k), n = a.shape, b.shape[1]
    multiply[(triton.cdiv(m, 64), triton.cdiv(n, 64))](a, b, c, m, n, k, M_TILE=64, N_TILE=64, K_TILE=32)
    return c
