# One scale for a batch, and half precision for what it scales.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    largest = data.abs().max()
    h, tau = torch.geqrf((data / largest).half().float())
    return h.triu() * largest + h.tril(-1), tau
