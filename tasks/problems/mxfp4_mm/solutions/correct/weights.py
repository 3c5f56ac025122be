# Takes the weights as they are, in MXFP4, with their scales put back in order: only A is quantized.
import torch
from formats import ScaleRule, decode_e8m0, decode_pairs, dequantize, quantize
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    A, B, B_q, _, B_scale_sh = data
    n, blocks = B.shape[0], B.shape[1] // 32
    tiles = B_scale_sh.view(torch.uint8).view(-1, B_scale_sh.shape[1] // 8, 4, 16, 2, 2)
    scales = tiles.permute(0, 5, 3, 1, 4, 2).reshape(B_scale_sh.shape)[:n, :blocks]
    right = decode_pairs(B_q).view(n, blocks, 32).mul_(decode_e8m0(scales).unsqueeze(-1)).view(n, -1)
    return (dequantize(*quantize(A, ScaleRule.AMD)) @ right.T).bfloat16()
