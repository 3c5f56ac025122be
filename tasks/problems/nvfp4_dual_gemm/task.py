import torch

# a, b1, b2, sfa, sfb1, sfb2, sfa_permuted, sfb1_permuted, sfb2_permuted, c
T = torch.Tensor
input_t = tuple[T, T, T, T, T, T, T, T, T, T]
output_t = torch.Tensor
