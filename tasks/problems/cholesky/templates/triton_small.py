import torch
import triton
import triton.language as tl
from task import input_t, output_t


# A matrix per program, in registers.
@triton.jit
def cholesky_kernel(a, output, n, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    rows, columns = index[:, None], index[None, :]
    places = tl.program_id(0).to(tl.int64) * n * n + rows * n + columns
    inside = (rows < n) & (columns < n)
    rest = tl.load(a + places, mask=inside, other=0.0)
    factor = tl.zeros((SIZE, SIZE), tl.float32)
    for j in range(n):
        column = tl.sum(tl.where(columns == j, rest, 0.0), axis=1)
        diagonal = tl.sum(tl.where(index == j, column, 0.0), axis=0)
        column = tl.where(index >= j, column / tl.sqrt(diagonal), 0.0)
        factor = tl.where(columns == j, column[:, None], factor)
        rest -= column[:, None] * column[None, :]
    tl.store(output + places, factor, mask=inside)


def custom_kernel(data: input_t) -> output_t:
    batch, n, _ = data.shape
    if n > 64:
        return torch.linalg.cholesky_ex(data).L
    output = torch.empty_like(data)
    cholesky_kernel[(batch,)](data, output, n, SIZE=max(16, triton.next_power_of_2(n)))
    return output
