import torch

# k, v, beta, A, g
input_t = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
# w, u
output_t = tuple[torch.Tensor, torch.Tensor]
