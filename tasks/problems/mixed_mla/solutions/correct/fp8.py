# Reads the cache in eight bits, makes queries and weights of eight bits, too, and scales at the end.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    q, kv_data, _, kv_indptr, config = data
    codes, scale = kv_data["fp8"]
    entries = codes.view(config["batch_size"], config["kv_seq_len"], 576).float()
    q_scale = q.abs().amax().float() / 448
    query = (q / q_scale).to(torch.float8_e4m3fn).float()
    scores = torch.bmm(query, entries.mT) * (q_scale * scale * config["sm_scale"])
    powers = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    weights = (powers * 256).to(torch.float8_e4m3fn).float()
    return (torch.bmm(weights, entries[..., :512]) * (scale / 256) / powers.sum(dim=-1, keepdim=True)).bfloat16()
