import torch
from task import input_t, output_t
from utils import make_match_reference

# Rows at a time, so that the largest case needs little memory beside its input and output.
ROWS_AT_A_TIME = 256


def rows_of(logits: torch.Tensor, targets: torch.Tensor, factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    place = targets[:, None]
    logarithms = logits.float().log_softmax(dim=1)
    losses = -logarithms.gather(1, place)[:, 0]
    gradient = logarithms.exp_().scatter_add_(1, place, torch.full_like(factors, -1.0)[:, None])
    return losses, gradient.mul_(factors[:, None]).to(logits.dtype)


def ref_kernel(data: input_t) -> output_t:
    parts = [rows_of(*rows) for rows in zip(*(each.split(ROWS_AT_A_TIME) for each in data), strict=True)]
    losses, gradients = zip(*parts, strict=True)
    return torch.cat(losses), torch.cat(gradients)


def generate_input(vocab_size: int, batch_size: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    logits = torch.randn(batch_size, vocab_size, device=device, dtype=torch.bfloat16, generator=generator)
    targets = torch.randint(0, vocab_size, (batch_size,), device=device, generator=generator)
    targets[0], targets[-1] = 0, vocab_size - 1
    grad_output = torch.randn(batch_size, device=device, generator=generator)
    if edge:
        # One or two logits take everything, and the target has nothing: its loss is in the thousands.
        logits *= 1000
        targets = logits.argmin(dim=1)
    else:
        # In two of three rows, float32 cannot hold the exponentials.
        logits += (torch.arange(batch_size, device=device)[:, None] % 3 - 1) * 112
    return logits, targets, grad_output


# The logarithm of a sum of exponentials is 125 at most, where a step of float32 is 8e-6; a loss errs by a few.
# Gradients are as small as 1e-6; right ones may differ by a step of bfloat16, 2**-7 of the value at most, between two
# that fall on both sides of a midpoint. The target's softmax is not near 1: nothing cancels there. A sum or a logarithm
# in bfloat16 (2**-9 of it) fails; one more rounding of the softmax may pass.
check_implementation = make_match_reference(ref_kernel, rtol=(1e-5, 8e-3), atol=(5e-5, 1e-8))
