# Empty tensors and tensors without dimensions.
import torch


def generate_input(size: int, seed: int):
    return torch.empty(0, size), torch.tensor(float(seed % 1000))


def check_implementation(data, output):
    nothing, number = data
    good = tuple(output[0].shape) == (size_of(nothing), 0) and float(output[1]) == float(number) * 2
    return good, "" if good else "wrong edges"


def size_of(nothing):
    return nothing.shape[1]
