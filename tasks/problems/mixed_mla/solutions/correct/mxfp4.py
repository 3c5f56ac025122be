# Decodes the cache from four bits, tile after tile, with a running maximum.
import torch
from formats import dequantize
from task import input_t, output_t


TILE = 64


def custom_kernel(data: input_t) -> output_t:
    q, kv_data, _, kv_indptr, config = data
    packed, scales = kv_data["mxfp4"]
    batch, length = config["batch_size"], config["kv_seq_len"]
    packed, scales = packed.view(torch.uint8).view(batch, length, 288), scales.view(batch, length, 18)
    largest = torch.full((batch, 16, 1), float("-inf"), device=q.device)
    weight_sum = torch.zeros_like(largest)
    total = torch.zeros(batch, 16, 512, device=q.device)
    for start in range(0, length, TILE):
        entries = dequantize(packed[:, start : start + TILE], scales[:, start : start + TILE])
        scores = torch.bmm(q.float(), entries.mT) * config["sm_scale"]
        above = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        weights, shrink = torch.exp(scores - above), torch.exp(largest - above)
        weight_sum = weight_sum * shrink + weights.sum(dim=-1, keepdim=True)
        total = total * shrink + torch.bmm(weights, entries[..., :512])
        largest = above
    return (total / weight_sum).bfloat16()
