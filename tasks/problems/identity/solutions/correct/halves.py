# Right, and slower: two launches where one does.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    source, output = data
    middle = source.numel() // 2
    output[:middle] = source[:middle]
    output[middle:] = source[middle:]
    return output
