# Rounds the values of A towards zero.
import torch
from formats import ScaleRule, decode_e8m0, dequantize, quantize
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    A, B, *_ = data
    _, scales = quantize(A, ScaleRule.AMD)
    blocks = A.float().unflatten(1, (-1, 32)) / decode_e8m0(scales).unsqueeze(-1)
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], device=A.device)
    codes = torch.bucketize(blocks.abs(), table[1:], right=True)
    left = (table[codes].copysign(blocks) * decode_e8m0(scales).unsqueeze(-1)).flatten(1)
    return (left @ dequantize(*quantize(B, ScaleRule.AMD)).T).bfloat16()
