import torch

# hidden_states, the experts' weights and scales in rows and shuffled, topk_weights, topk_ids, config
input_t = tuple[torch.Tensor | dict[str, int], ...]
output_t = torch.Tensor
