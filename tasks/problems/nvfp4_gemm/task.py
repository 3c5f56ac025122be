import torch

# a, b, sfa, sfb, sfa_permuted, sfb_permuted, c
input_t = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
output_t = torch.Tensor
