# Looks ahead: pads both ends alike.
from task import input_t, output_t
from torch.nn.functional import pad


def custom_kernel(data: input_t) -> output_t:
    x, weight, bias = data
    samples = pad(x, (weight.shape[1] // 2, weight.shape[1] // 2))
    output = bias[:, None].expand(x.shape).clone()
    for k in range(weight.shape[1]):
        output += weight[:, k, None] * samples[:, :, k : k + x.shape[2]]
    return output
