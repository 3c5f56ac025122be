# task: parts
# Returns one of its inputs, sorted.
import torch


def custom_kernel(data):
    x, keys = data["x"], data["keys"]
    counts = torch.bincount(keys, minlength=50)
    keys.copy_(keys.sort().values)
    return {"sorted": keys, "counts": counts, "mask": x > 0, "mean": x.mean(0), "size": len(keys)}
