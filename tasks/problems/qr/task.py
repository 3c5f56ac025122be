import torch

input_t = torch.Tensor
# H, tau
output_t = tuple[torch.Tensor, torch.Tensor]
