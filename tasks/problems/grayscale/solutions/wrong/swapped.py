# Takes red for blue.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    image, output = data
    blue, green, red = image.unbind(dim=-1)
    return output.copy_(0.2989 * red + 0.5870 * green + 0.1140 * blue)
