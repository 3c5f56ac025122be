import torch

# input, weights, config
input_t = tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, int]]
output_t = torch.Tensor
