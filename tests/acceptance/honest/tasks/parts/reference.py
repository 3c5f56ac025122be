# Several outputs of several types, in a dict.
import torch


def generate_input(size: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(size, 8, generator=generator), "keys": torch.randint(0, 50, (size,), generator=generator)}


def check_implementation(data, output):
    x, keys = data["x"], data["keys"]
    good = (
        torch.equal(output["sorted"], keys.sort().values)
        and torch.equal(output["counts"], torch.bincount(keys, minlength=50))
        and torch.equal(output["mask"], x > 0)
        and torch.allclose(output["mean"].double(), x.double().mean(0), atol=1e-5)
        and output["size"] == len(keys)
    )
    return good, "" if good else "a part is wrong"
