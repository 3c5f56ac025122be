# Puts the shuffled weights and scales back in order, and leaves out experts without tokens.
import torch
from formats import ScaleRule, dequantize, quantize
from task import input_t, output_t


def rounded(values: torch.Tensor) -> torch.Tensor:
    return dequantize(*quantize(values, ScaleRule.AMD))


def rows_of(shuffled: torch.Tensor) -> torch.Tensor:
    # (rows, k / 2)
    rows, width = shuffled.shape
    tiles = shuffled.view(torch.uint8).view(rows // 16, width // 32, 2, 16, 16)
    return tiles.permute(0, 3, 1, 2, 4).reshape(rows, width)


def scales_of(shuffled: torch.Tensor) -> torch.Tensor:
    # (rows, k / 32)
    tiles = shuffled.view(torch.uint8).view(-1, shuffled.shape[1] // 8, 4, 16, 2, 2)
    return tiles.permute(0, 5, 3, 1, 4, 2).reshape(shuffled.shape)


def custom_kernel(data: input_t) -> output_t:
    hidden_states, *_, gate_up, down, gate_up_scale, down_scale, factors, chosen, config = data
    x = rounded(hidden_states)
    total = torch.zeros_like(x)
    scales = [scales_of(each).view(gate_up.shape[0], -1, each.shape[1]) for each in (gate_up_scale, down_scale)]
    for index in chosen.unique().tolist():
        inner = dequantize(rows_of(gate_up[index]), scales[0][index])
        outer = dequantize(rows_of(down[index]), scales[1][index])
        rows, slots = torch.nonzero(chosen == index, as_tuple=True)
        gate, up = (x[rows] @ inner.T).chunk(2, dim=1)
        hidden = rounded((torch.nn.functional.silu(gate) * up).bfloat16())
        total[rows] += factors[rows, slots, None] * (hidden @ outer.T)
    return total.bfloat16()
