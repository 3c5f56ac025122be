# The matrix in bfloat16.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, vectors = torch.linalg.eigh(data.bfloat16().float())
    return vectors, values
