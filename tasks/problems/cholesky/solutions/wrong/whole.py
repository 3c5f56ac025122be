# In place: above the diagonal is what was there.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    return torch.linalg.cholesky_ex(data).L + data.triu(1)
