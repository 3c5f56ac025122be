# Numbers that come more than once are there once; the largest fills the rest.
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, output = data
    distinct = values.unique()
    output.fill_(distinct[-1])
    output[: distinct.numel()] = distinct
    return output
