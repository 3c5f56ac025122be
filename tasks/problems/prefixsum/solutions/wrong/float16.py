# Low precision: rounds every element to float16, and adds in float32.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    return output.copy_(values.half().float().cumsum(dim=0))
