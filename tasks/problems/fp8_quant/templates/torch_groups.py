from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, x_q, x_s = data
    groups = x.unflatten(1, (x_s.shape[1], -1))
    scales = groups.abs().amax(dim=2).clamp(min=1e-10) / 448
    x_q.copy_((groups / scales[..., None]).clamp(-448, 448).flatten(1))
    return x_q, x_s.copy_(scales)
