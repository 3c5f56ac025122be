import torch
from task import input_t, output_t

# Parts of a sum must not be added in float16.
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def custom_kernel(data: input_t) -> output_t:
    a, b, c = data
    return torch.mm(a, b, out=c)
