# task: parts
# Two outputs share memory, one is an input in other order.
import torch


def custom_kernel(data):
    x, keys = data["x"], data["keys"]
    shared = torch.empty(50 + keys.numel(), dtype=torch.int64)
    shared[:50] = torch.bincount(keys, minlength=50)
    shared[50:] = keys.sort().values
    mean = x.sum(0).div_(x.shape[0])
    return {"sorted": shared[50:], "counts": shared[:50], "mask": x.gt(0), "mean": mean, "size": int(keys.numel())}
