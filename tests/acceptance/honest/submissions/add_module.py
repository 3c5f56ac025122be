# task: add
# A torch.nn.Module without gradients.
import torch


class Add(torch.nn.Module):
    def forward(self, a, b):
        return a + b


MODULE = Add().eval()


@torch.no_grad()
def custom_kernel(data):
    return MODULE(*data)
