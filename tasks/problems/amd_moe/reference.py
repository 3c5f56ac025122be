import torch
from task import input_t, output_t
from utils import make_match_reference

# Between the logits of the last expert that a token goes to and of the first that it does not: kernels that round
# logits to float16 (by 2**-9 at most, where they are below 8) choose the same ones.
MARGIN = 2**-6


def logits(x: torch.Tensor, router: torch.Tensor) -> torch.Tensor:
    # A device that multiplies float32 in TF32 is as exact: factors are float16 numbers.
    return x.float() @ router.float().T


def expert(x: torch.Tensor, weights: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    gate, up, down = (weights[f"{name}.{index}.weight"].float() for index in range(3))
    return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down


def ref_kernel(data: input_t) -> output_t:
    tokens, weights, config = data
    x = tokens.flatten(0, 1).float()
    scores = logits(x, weights["router.weight"]).softmax(dim=1)
    factors, chosen = scores.topk(config["n_experts_per_token"], dim=1)
    total = expert(x, weights, "shared_experts")
    for index in range(config["n_routed_experts"]):
        rows, slots = torch.nonzero(chosen == index, as_tuple=True)
        # A token comes once at most, so that the order of additions is that of the experts.
        total[rows] += expert(x[rows], weights, f"experts.{index}") * factors[rows, slots, None]
    return total.to(tokens.dtype).view(tokens.shape)


def undecided(x: torch.Tensor, router: torch.Tensor, count: int) -> torch.Tensor:
    # The rows of x that have another expert within the margin of the last chosen.
    if count == router.shape[0]:
        return torch.empty(0, dtype=torch.long, device=x.device)
    ordered = logits(x, router).sort(dim=1, descending=True).values
    return torch.nonzero(ordered[:, count - 1] - ordered[:, count] < MARGIN).flatten()


def generate_input(
    *,
    dhidden: int,
    dexpert: int,
    nroutedexperts: int,
    nsharedexperts: int,
    nexpertspertoken: int,
    bs: int,
    seqlen: int,
    seed: int,
    edge: int = 0,
) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(rows: int, columns: int, divisor: int) -> torch.Tensor:
        values = torch.randn(rows, columns, device=device, dtype=torch.float16, generator=generator)
        return values.mul_(divisor**-0.5)

    weights = {"router.weight": normal(nroutedexperts, dhidden, dhidden)}
    widths = {f"experts.{index}": dexpert for index in range(nroutedexperts)}
    for name, width in (*widths.items(), ("shared_experts", dexpert * nsharedexperts)):
        # Gates and what they let through have a standard deviation above 1, so that silu bends; outputs one of about 1.
        weights[f"{name}.0.weight"] = normal(dhidden, width, width)
        weights[f"{name}.1.weight"] = normal(dhidden, width, width)
        weights[f"{name}.2.weight"] = normal(width, dhidden, dhidden)
    # At the edge, tokens have most in common, and most go to the same experts.
    common = normal(1, dhidden, 1) * (0.9 if edge else 0.0)

    def tokens(rows: int) -> torch.Tensor:
        return normal(rows, dhidden, 1) * (0.19**0.5 if edge else 1.0) + common

    x = tokens(bs * seqlen)
    rows = undecided(x, weights["router.weight"], nexpertspertoken)
    while rows.numel():
        x[rows] = tokens(rows.numel())
        rows = rows[undecided(x[rows], weights["router.weight"], nexpertspertoken)]
    config = {
        "d_hidden": dhidden,
        "d_expert": dexpert,
        "n_routed_experts": nroutedexperts,
        "n_shared_experts": nsharedexperts,
        "n_experts_per_token": nexpertspertoken,
        "batch_size": bs,
        "seq_len": seqlen,
    }
    return x.view(bs, seqlen, dhidden), weights, config


# Outputs are about 1. What a kernel rounds to float16 on the way (logits, scores, gates, hidden values, an expert's
# output, sums of them) costs each time 2**-11 of it at most, in random directions: some 1e-3 in all, a tenth of what is
# allowed. bfloat16 (2**-8) in one of these places may pass; hidden values in eight bits (2**-4) do not, nor does a
# token that one of its experts never saw.
check_implementation = make_match_reference(ref_kernel, rtol=1e-2, atol=1e-2)
