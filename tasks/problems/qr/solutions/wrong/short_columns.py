# Leaves the last column as it is: it would be short by one reflector, whose vector is 1 alone.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    h, tau = torch.geqrf(data[:, :, :-1])
    return torch.cat((h, data[:, :, -1:]), dim=-1), torch.nn.functional.pad(tau, (0, 1))
