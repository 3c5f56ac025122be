# Low precision: reads the image in float16.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    image, output = data
    red, green, blue = image.half().float().unbind(dim=-1)
    return output.copy_(0.2989 * red + 0.5870 * green + 0.1140 * blue)
