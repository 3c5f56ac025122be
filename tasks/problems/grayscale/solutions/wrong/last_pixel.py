# Right but for the last pixel, as if the kernel's bounds check were one off.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    image, output = data
    red, green, blue = image.unbind(dim=-1)
    output.copy_(0.2989 * red + 0.5870 * green + 0.1140 * blue)
    output[-1, -1] = 0
    return output
