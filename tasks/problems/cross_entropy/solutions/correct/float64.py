import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    logits, targets, grad_output = data
    wide = logits.double()
    logarithms = wide.logsumexp(dim=1)
    losses = (logarithms - wide.gather(1, targets[:, None])[:, 0]).float()
    gradient = (wide - logarithms[:, None]).exp()
    gradient.scatter_add_(1, targets[:, None], gradient.new_full((), -1).expand(gradient.shape[0], 1))
    return losses, gradient.mul_(grad_output[:, None]).to(logits.dtype)
