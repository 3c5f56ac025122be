from task import input_t, output_t
from torch.nn.functional import pad


def custom_kernel(data: input_t) -> output_t:
    x, weight, bias = data
    windows = pad(x, (weight.shape[1] - 1, 0)).unfold(2, weight.shape[1], 1)
    return (windows * weight[:, None]).sum(dim=3) + bias[:, None]
