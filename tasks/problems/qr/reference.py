import torch
from invariants import identity, kind_fault, norms, orthogonality_fault, reflect, residual_fault
from matrices import band, decades, mixed, normal, seeded, shuffled, signs
from task import input_t, output_t

# In units of 2**-23. The public board has 20 n, of the norms of whole matrices, and 100 n. Of the former float32 has up
# to 20 at n = 32 to 3000, products in TF32 some 6,000 and in bfloat16 50,000: 20 n passes TF32 from n = 300 on. Of the
# latter float32 has up to 760.
# The residual of a column is relative to that column: Householder's and Givens's methods are stable column by column
# (Higham, Accuracy and Stability of Numerical Algorithms, 2002, theorem 19.4), and so columns of any size count.
FACTOR_LIMIT = 320
ORTHOGONAL_LIMIT = 6400


def ref_kernel(data: input_t) -> output_t:
    return torch.geqrf(data)


def dense(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return normal(batch, n, n, generator=generator) * decades(n, cond, generator)


def upper(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    a = dense(batch, n, 0, generator).triu()
    a.diagonal(dim1=-2, dim2=-1).add_(torch.linspace(1, 0.25, n, device=a.device))
    return a * decades(n, cond, generator)


def diagonal(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return torch.diag_embed(signs(batch, n, generator=generator) * decades(n, max(cond, 2), generator))


def rankdef(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    # A quarter of the columns, anywhere, are zero or multiples of another column.
    a = dense(batch, n, cond, generator)
    order = torch.randperm(n, device=a.device, generator=generator)
    spare = order[: n // 4]
    a[:, :, spare] = a[:, :, order[n // 4 : n // 4 + len(spare)]] * (torch.arange(len(spare), device=a.device) % 3)
    return a


def nearrank(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    # The last quarter of the columns repeats the first, but for a thousandth: less may be left out within FACTOR_LIMIT.
    a = dense(batch, n, 0, generator)
    a[:, :, n - n // 4 :] = a[:, :, : n // 4] + 1e-3 * normal(batch, n, n // 4, generator=generator)
    return a * decades(n, cond, generator)


def clustered(batch: int, n: int, _cond: int, generator: torch.Generator) -> torch.Tensor:
    # Columns of about 1, and as many of about the precision of float32, with some between.
    sizes = torch.ones(n, device=generator.device)
    sizes[n // 2 :] = 2.0**-21
    sizes[n // 2 - 2 : n // 2 + 2] = 2.0**-11
    return dense(batch, n, 0, generator) * sizes


def banded(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    a = dense(batch, n, 0, generator) * band(n, max(2, min(32, n // 32)), generator)
    a.diagonal(dim1=-2, dim2=-1).add_(torch.linspace(1, 0.5, n, device=a.device))
    return a * decades(n, cond, generator)


def rowscale(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return dense(batch, n, 0, generator) * decades(n, max(cond, 4), generator)[:, None]


def nearcollinear(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    a = normal(batch, n, 1, generator=generator) + 1e-4 * dense(batch, n, 0, generator)
    return a * decades(n, cond, generator)


MIXED = {
    "dense": dense, "rankdef": rankdef, "nearrank": nearrank, "clustered": clustered, "band": banded,
    "rowscale": rowscale, "nearcollinear": nearcollinear,
}  # fmt: skip
KINDS = MIXED | {"upper": upper, "diagonal": diagonal}


def generate_input(batch: int, n: int, cond: int, seed: int, case: str = "dense", *, edge: int = 0) -> input_t:
    generator = seeded(seed)
    a = mixed(MIXED, batch, n, cond, generator) if case == "mixed" else KINDS[case](batch, n, cond, generator)
    if edge:
        # Columns from 2**-30 to 2**30 in an order of its own for each matrix, and a row below the least normal number.
        powers = torch.linspace(-30, 30, n, device=a.device).round().expand(batch, n)
        a = a * torch.exp2(shuffled(powers, generator))[:, None]
        a[:, n // 3] = torch.ldexp(signs(batch, n, generator=generator), torch.tensor(-140, device=a.device))
    return a


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    fault = kind_fault(output, H=data, tau=data[..., 0])
    if fault is None:
        h, tau = output
        n = data.shape[-1]

        def factor(where):
            rotated = reflect(h[where[0]], tau[where[0]], data[where].double(), adjoint=True)
            return rotated - h[where].double().triu(-where[2].start)

        def square(where):
            part = h[where[0]], tau[where[0]]
            return reflect(*part, reflect(*part, identity(data, where)), adjoint=True)

        fault = residual_fault("Q'A - R", factor, norms(data), min(20 * n, FACTOR_LIMIT))
        fault = fault or orthogonality_fault("Q", square, data, min(100 * n, ORTHOGONAL_LIMIT))
    return not fault, fault or ""
