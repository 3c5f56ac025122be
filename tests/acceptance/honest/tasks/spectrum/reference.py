# Complex output.
import torch


def generate_input(size: int, seed: int):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def check_implementation(data, output):
    expected = torch.fft.fft(data.double()).conj()
    good = output.shape == expected.shape and torch.allclose(output.to(torch.complex128), expected, atol=1e-3)
    return good, "" if good else "wrong spectrum"
