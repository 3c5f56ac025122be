# R is the Cholesky factor of A'A: it squares the condition number.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    r = torch.linalg.cholesky_ex(data.mT @ data).L.mT.nan_to_num(0, 0, 0)
    r.diagonal(dim1=-2, dim2=-1).clamp_(min=1e-6)
    q = torch.linalg.solve_triangular(r, data, upper=True, left=False).nan_to_num(0, 0, 0)
    h, tau = torch.geqrf(q)
    signs = h.diagonal(dim1=-2, dim2=-1).sign()
    return h.tril(-1) + signs[..., None] * r, tau
