import torch

input_t = torch.Tensor
# Q, L
output_t = tuple[torch.Tensor, torch.Tensor]
