# Weights of three digits, which add up to 1.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    image, output = data
    red, green, blue = image.unbind(dim=-1)
    return output.copy_(0.299 * red + 0.587 * green + 0.114 * blue)
