import torch

# k, w, u, g
input_t = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
# h, v_new
output_t = tuple[torch.Tensor, torch.Tensor]
