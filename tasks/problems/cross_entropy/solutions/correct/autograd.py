import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    logits, targets, grad_output = data
    wide = logits.float().requires_grad_()
    losses = torch.nn.functional.cross_entropy(wide, targets, reduction="none")
    (gradient,) = torch.autograd.grad(losses, wide, grad_output)
    return losses.detach(), gradient.to(logits.dtype)
