# Low precision: rounds every element to bfloat16, and adds in float32.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    output[0] = values.bfloat16().float().sum()
    return output
