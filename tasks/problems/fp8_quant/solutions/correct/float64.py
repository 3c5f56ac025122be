import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, x_q, x_s = data
    groups = x.double().view(x.shape[0], x_s.shape[1], -1)
    scales = torch.maximum(groups.amax(dim=2), -groups.amin(dim=2)).clamp(min=1e-10) / 448
    x_q.copy_((groups / scales[..., None]).view(x.shape))
    return x_q, x_s.copy_(scales)
