import torch

# image, weights, output
input_t = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
output_t = torch.Tensor
