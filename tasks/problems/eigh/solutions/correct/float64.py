# In float64, rounded at the end.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, vectors = torch.linalg.eigh(data.double())
    return vectors.float(), values.float()
