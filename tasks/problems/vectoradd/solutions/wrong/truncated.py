# Wrong rounding: adds in float32, and cuts off what float16 cannot hold instead of rounding to the nearest.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    exact = a.float() + b.float()
    rounded = exact.half()
    towards_zero = (rounded.view(torch.int16) - 1).view(torch.float16)
    return torch.where(rounded.float().abs() > exact.abs(), towards_zero, rounded)
