import torch
from task import input_t, output_t
from utils import make_match_reference, verbose_allequal

# One more than the largest finite number's bits, without its sign.
INFINITY = 0x7C00


def ref_kernel(data: input_t) -> output_t:
    source, _ = data
    return source.clone()


def generate_input(size: int, seed: int, edge: int = 0) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(seed)
    # Any finite number is as likely as any other, subnormal ones included: what goes through a narrower type, or
    # through arithmetic that flushes to zero, shows.
    codes = torch.randint(-INFINITY, INFINITY, (size,), device=device, generator=generator)
    # The zeros of both signs are always there.
    codes[size // 2], codes[-1] = 0, -INFINITY
    bits = torch.where(codes < 0, codes + INFINITY - 0x8000, codes)
    source = bits.to(torch.int16).view(torch.float16)
    if edge:
        # Every other element is infinite.
        source = torch.where(codes % 2 == 0, source, source.sign() * float("inf"))
    # NaN: an element that was not written cannot pass.
    return source, torch.full_like(source, float("nan"))


# A copy rounds nothing.
match = make_match_reference(ref_kernel, rtol=0, atol=0)


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    good, message = match(data, output)
    # Zeros of both signs are equal, their bits are not.
    lines = verbose_allequal(output.view(torch.int16), data[0].view(torch.int16)) if good else [message]
    return not lines, "; ".join(lines)
