# Sorts blocks, and merges them: each number goes behind those of the other block that come before it.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    blocks = [block.sort().values for block in values.split(-(-values.numel() // 4))]
    while len(blocks) > 1:
        left, right = blocks.pop(0), blocks.pop(0)
        merged = torch.empty(left.numel() + right.numel(), device=left.device)
        merged[torch.arange(left.numel(), device=left.device) + torch.searchsorted(right, left)] = left
        merged[torch.arange(right.numel(), device=left.device) + torch.searchsorted(left, right, right=True)] = right
        blocks.append(merged)
    return output.copy_(blocks[0])
