# Right, and slower: three more tensors than needed, of twice the size.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    return (a.float() + b.float()).half()
