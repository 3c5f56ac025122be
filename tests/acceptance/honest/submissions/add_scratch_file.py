# task: add
# Works in a file.
import tempfile

import numpy
import torch


def custom_kernel(data):
    a, b = data
    with tempfile.TemporaryFile() as file:
        numpy.save(file, (a + b).numpy())
        file.seek(0)
        return torch.from_numpy(numpy.load(file))
