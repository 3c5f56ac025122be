import torch

# logits, targets, grad_output
input_t = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
# losses, grad_logits
output_t = tuple[torch.Tensor, torch.Tensor]
