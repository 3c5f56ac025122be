# A product of matrices: each column is what one output sees of the image.
import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    image, weights, output = data
    columns = torch.nn.functional.unfold(image, weights.shape[2:])
    return output.copy_((weights.flatten(1) @ columns).view(output.shape))
