# Blocks of eight columns, the others by products of matrices.
import torch
from task import input_t, output_t

BLOCK = 8


def custom_kernel(data: input_t) -> output_t:
    a = data.clone()
    for start in range(0, a.shape[-1], BLOCK):
        stop = start + BLOCK
        corner = torch.linalg.cholesky_ex(a[:, start:stop, start:stop]).L
        a[:, start:stop, start:stop] = corner
        below = torch.linalg.solve_triangular(corner.mT, a[:, stop:, start:stop], upper=True, left=False)
        a[:, stop:, start:stop] = below
        a[:, stop:, stop:] -= below @ below.mT
    return a.tril()
