# Each eigenvalue has the vector of the next.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, vectors = torch.linalg.eigh(data)
    return vectors.roll(-1, dims=-1), values
