import torch

# x, x_q, x_s
input_t = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
# x_q, x_s
output_t = tuple[torch.Tensor, torch.Tensor]
