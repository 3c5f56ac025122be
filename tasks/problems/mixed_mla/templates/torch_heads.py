import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    q, kv_data, qo_indptr, kv_indptr, config = data
    entries = kv_data["bf16"].view(config["batch_size"], config["kv_seq_len"], config["qk_head_dim"])
    # In bfloat16, a score of 80 may be off by a quarter, and its weight by as much.
    scores = torch.bmm(q.float(), entries.float().mT) * config["sm_scale"]
    weights = scores.softmax(dim=-1)
    return torch.bmm(weights.bfloat16(), entries[..., : config["v_head_dim"]])
