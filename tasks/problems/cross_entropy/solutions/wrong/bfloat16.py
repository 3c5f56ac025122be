# Low precision: the softmax's logarithm in bfloat16.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    logits, targets, grad_output = data
    logarithms = logits.log_softmax(dim=1).float()
    rows = torch.arange(targets.numel(), device=targets.device)
    losses = -logarithms[rows, targets]
    gradient = logarithms.exp()
    gradient[rows, targets] -= 1
    return losses, gradient.mul_(grad_output[:, None]).to(logits.dtype)
