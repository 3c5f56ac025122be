# task: add
# Seeds the global generators in every call.
import random

import torch


def custom_kernel(data):
    torch.manual_seed(0)
    random.seed(0)
    return data[0] + data[1]
