# Sorts two halves, and does not merge them.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    middle = values.numel() // 2
    output[:middle], output[middle:] = values[:middle].sort().values, values[middle:].sort().values
    return output
