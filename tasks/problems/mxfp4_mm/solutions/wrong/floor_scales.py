# Takes A's scales from the specification's rule, which does not round the largest magnitude up.
from formats import ScaleRule, dequantize, quantize
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    A, B, *_ = data
    left, right = dequantize(*quantize(A, ScaleRule.OCP)), dequantize(*quantize(B, ScaleRule.AMD))
    return (left @ right.T).bfloat16()
