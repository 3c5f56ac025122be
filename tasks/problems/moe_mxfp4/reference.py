import math

import torch
from formats import BLOCK, ScaleRule, dequantize, quantize
from inputs import shuffle_scales, shuffle_values, without_ties
from task import input_t, output_t
from utils import make_match_reference

#: The public board's tolerances.
RTOL = 5e-2
ATOL = 5e-2
#: By how much, relatively, kernels differ in a hidden value before they quantize it: one that first rounds it to
#: bfloat16 is off by 2**-8 at most.
DOUBT = 4e-3
#: Such differences have random signs: many add up to less than this multiple of the root of their squares' sum. Of
#: hidden values that all err by 2**-9 it was 3 at most in 100,000 outputs, where magnitudes of 2,048 add up to 8.
DEVIATIONS = 4


def rounded(values: torch.Tensor) -> torch.Tensor:
    return dequantize(*quantize(values, ScaleRule.AMD))


def layer(data: input_t) -> tuple[torch.Tensor, torch.Tensor]:
    # The outputs, and by how much those of right kernels may be off because they quantize hidden values that are about
    # halfway to the other one of their neighbours, or have another scale.
    hidden_states, gate_up, down, gate_up_scale, down_scale, *_, topk_weights, topk_ids, _ = data
    x = rounded(hidden_states)
    total, sums, squares = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    for expert in topk_ids.unique().tolist():
        rows, slots = torch.nonzero(topk_ids == expert, as_tuple=True)
        # A device that multiplies float32 in TF32 is as exact here: each factor has two significant bits.
        gate, up = (x[rows] @ dequantize(gate_up[expert], gate_up_scale[expert]).T).chunk(2, dim=1)
        hidden = torch.nn.functional.silu(gate) * up
        out = dequantize(down[expert], down_scale[expert]).T
        factors = topk_weights[rows, slots, None]
        # A token comes once at most.
        total[rows] += factors * (rounded(hidden.bfloat16()) @ out)
        doubt = (rounded(hidden * (1 + DOUBT)) - rounded(hidden * (1 - DOUBT))).abs()
        sums[rows] += factors * (doubt @ out.abs())
        squares[rows] += factors.square() * (doubt.square() @ out.square())
    return total.to(hidden_states.dtype), torch.minimum(sums, DEVIATIONS * squares.sqrt())


def ref_kernel(data: input_t) -> output_t:
    return layer(data)[0]


def check_implementation(data: input_t, output: object) -> tuple[bool, str]:
    expected, slack = layer(data)
    kinds = [(each.shape, each.dtype, each.device) for each in (output, expected) if isinstance(each, torch.Tensor)]
    if len(kinds) == 2 and kinds[0] == kinds[1]:
        # Sums are nearly exact: what remains beside the slack is the last rounding, by 2**-8.
        errors = (output.float() - expected.float()).abs()
        output = torch.where(errors <= ATOL + RTOL * expected.float().abs() + slack, expected, output)
    return make_match_reference(lambda _: expected, rtol=RTOL, atol=ATOL)(data, output)


def generate_input(
    *,
    dhidden: int,
    dexpert: int,
    nroutedexperts: int,
    nexpertspertoken: int,
    nsharedexperts: int,
    bs: int,
    seed: int,
    edge: int = 0,
) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    shared = {"device": device, "generator": generator}
    experts = nroutedexperts + nsharedexperts

    def weights(rows: int, k: int, powers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # Any byte is two e2m1 values; their deviation is 3. Scales: the powers, or twice as much.
        packed = torch.randint(0, 256, (experts, rows, k // 2), dtype=torch.uint8, **shared)
        steps = torch.randint(0, 2, (experts, rows, k // BLOCK), dtype=torch.uint8, **shared)
        return packed, steps + (127 + powers).to(torch.uint8)

    # From block to block the magnitudes of tokens and of weights run in opposite directions by powers of two, so that a
    # scale of the next block is wrong by powers of two. Gates and what they let through have a deviation of about 1.
    powers = torch.randint(-4, 5, (dhidden // BLOCK,), **shared)
    power = round(-math.log2(4.6 * dhidden**0.5))
    tokens = torch.randn(bs, dhidden // BLOCK, BLOCK, **shared) / (4.6 * dhidden**0.5 * 2.0**power)
    hidden_states = torch.ldexp(tokens, powers[:, None]).flatten(1).to(torch.bfloat16)
    hidden_states = without_ties(hidden_states, quantize(hidden_states, ScaleRule.AMD)[1])
    gate_up, gate_up_scale = weights(2 * dexpert, dhidden, power - powers)
    # What an expert makes of a token has one of about 0.7.
    powers = torch.randint(-1, 1, (dexpert // BLOCK,), **shared)
    down, down_scale = weights(dhidden, dexpert, round(-math.log2(3 * dexpert**0.5)) + powers)

    # All of a token's experts matter: their weights add up to 2.5, DeepSeek's scaling factor, and the least is at least
    # a third of the greatest. At the edge all tokens go to the same experts.
    order = torch.rand(bs, nroutedexperts, **shared)
    routed = (order[:1].expand(bs, -1) if edge else order).topk(nexpertspertoken, dim=1).indices
    factors = 0.5 + torch.rand(bs, nexpertspertoken, **shared)
    always = torch.arange(nroutedexperts, experts, device=device).expand(bs, -1)
    topk_ids = torch.cat((routed, always), dim=1).to(torch.int32)
    topk_weights = torch.cat((2.5 * factors / factors.sum(dim=1, keepdim=True), torch.ones_like(always)), dim=1)

    shuffled = [shuffle_values(each.flatten(0, 1)).view(each.shape) for each in (gate_up, down)]
    shuffled_scales = [shuffle_scales(each.flatten(0, 1)) for each in (gate_up_scale, down_scale)]
    config = {
        "d_hidden": dhidden,
        "d_expert": dexpert,
        "d_hidden_pad": dhidden,
        "d_expert_pad": dexpert,
        "n_routed_experts": nroutedexperts,
        "n_shared_experts": nsharedexperts,
        "n_experts_per_token": nexpertspertoken,
        "total_top_k": nexpertspertoken + nsharedexperts,
        "bs": bs,
    }
    return (
        hidden_states,
        *(each.view(torch.float4_e2m1fn_x2) for each in (gate_up, down)),
        *(each.view(torch.float8_e8m0fnu) for each in (gate_up_scale, down_scale)),
        *(each.view(torch.float4_e2m1fn_x2) for each in shuffled),
        *(each.view(torch.float8_e8m0fnu) for each in shuffled_scales),
        topk_weights,
        topk_ids,
        config,
    )
