# task: parts
# A dict of tensors of four types, and a number.
import torch


def custom_kernel(data):
    x, keys = data["x"], data["keys"]
    return {
        "sorted": keys.sort().values,
        "counts": torch.bincount(keys, minlength=50),
        "mask": x > 0,
        "mean": x.mean(0),
        "size": len(keys),
    }
