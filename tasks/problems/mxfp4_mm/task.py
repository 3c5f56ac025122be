import torch

# A, B, B_q, B_shuffle, B_scale_sh
input_t = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
output_t = torch.Tensor
