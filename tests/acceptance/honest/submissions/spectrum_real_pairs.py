# task: spectrum
# A complex view of real memory.
import torch


def custom_kernel(data):
    found = torch.fft.fft(data)
    pairs = torch.stack([found.real, -found.imag], -1)
    return torch.view_as_complex(pairs)
