# Off by one: never writes the last element.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    source, output = data
    output[:-1] = source[:-1]
    return output
