# Subtracts 1 at the token after the target.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    logits, targets, grad_output = data
    losses = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")
    gradient = logits.softmax(dim=1, dtype=torch.float32)
    gradient[torch.arange(targets.numel(), device=targets.device), (targets + 1) % logits.shape[1]] -= 1
    return losses, gradient.mul_(grad_output[:, None]).to(logits.dtype)
