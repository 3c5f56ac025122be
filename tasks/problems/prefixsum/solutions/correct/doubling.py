# Adds neighbours at distances of 1, 2, 4 and so on.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    output.copy_(values)
    distance = 1
    while distance < output.numel():
        output[distance:] += output[:-distance].clone()
        distance *= 2
    return output
