import torch

# x, mask, weights, config
input_t = tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor], dict[str, int]]
output_t = torch.Tensor
