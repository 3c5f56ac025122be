# In float64, rounded at the end.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    h, tau = torch.geqrf(data.double())
    return h.float(), tau.float()
