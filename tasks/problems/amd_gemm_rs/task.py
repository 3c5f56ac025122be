import torch

# input, weight, bias
input_t = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
output_t = torch.Tensor
