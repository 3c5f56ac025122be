import torch
from invariants import kind_fault, norm, positive_fault, product, residual_fault
from matrices import decades, normal, orthogonal, seeded, shuffled, symmetric
from task import input_t, output_t

# In units of 2**-23. The public board has 20 n and 8 n of the matrix's norm: from n = 64 on products in TF32 pass.
# Float32's factors have up to 4, products in TF32 some 1,000 and in bfloat16 9,000, at n = 32 to 4096; one in
# twenty in TF32 some 200, and three in bfloat16 for each, of high and low halves, up to 45. Rows and columns are
# divided by the roots of the diagonal, as rounding is (Demmel, LAPACK Working Note 14; Higham, Accuracy and Stability
# of Numerical Algorithms, 2002, theorem 10.5), and so rows of any size count.
FACTOR_LIMIT = 100
UPPER_LIMIT = 128


def ref_kernel(data: input_t) -> output_t:
    return torch.linalg.cholesky_ex(data).L


def damped(factor: torch.Tensor, damping: float) -> torch.Tensor:
    a = factor @ factor.mT
    a /= factor.shape[-1]
    a.diagonal(dim1=-2, dim2=-1).add_(damping)
    return symmetric(a)


def dense(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return damped(normal(batch, n, n, generator=generator), 10.0 ** -max(cond, 2))


def diagonal(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return torch.diag_embed(shuffled(decades(n, max(cond, 1), generator).expand(batch, n), generator))


def spectrum(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    q = orthogonal(batch, n, generator)
    return symmetric((q * decades(n, max(cond, 1), generator)) @ q.mT)


def lowrank(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return damped(normal(batch, n, max(1, min(n // 8, 64)), generator=generator), 10.0 ** -max(cond, 3))


def rowscale(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    sizes = decades(n, max(cond, 2) / 2, generator)
    a = damped(normal(batch, n, n, generator=generator), 1e-3) * sizes[:, None] * sizes
    a.diagonal(dim1=-2, dim2=-1).add_(1e-6)
    return symmetric(a)


def tridiagonal(batch: int, n: int, _cond: int, generator: torch.Generator) -> torch.Tensor:
    values = torch.rand(2, batch, n, device=generator.device, generator=generator)
    return torch.diag_embed(values[0] + 1.5) + symmetric(torch.diag_embed(values[1, :, 1:] / 2 - 0.25, offset=-1))


KINDS = {
    "dense": dense, "diagonal": diagonal, "spectrum": spectrum, "lowrank": lowrank, "rowscale": rowscale,
    "tridiagonal": tridiagonal,
}  # fmt: skip


def generate_input(batch: int, n: int, cond: int, seed: int, case: str = "dense", *, edge: int = 0) -> input_t:
    generator = seeded(seed)
    a = KINDS[case](batch, n, cond, generator)
    if edge:
        # Rows and columns from 2**-20 to 2**20 in an order of its own for each matrix.
        sizes = torch.exp2(shuffled(torch.linspace(-20, 20, n, device=a.device).round().expand(batch, n), generator))
        a = a * sizes[:, :, None] * sizes[:, None]
    return a


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    fault = kind_fault(output, L=data) or positive_fault("L", output.diagonal(dim1=-2, dim2=-1))
    if fault is None:
        n = data.shape[-1]
        sizes = data.diagonal(dim1=-2, dim2=-1).double().sqrt()

        def scaled(part, where):
            return part / sizes[where[0], :, None] / sizes[where[0], None, where[2]]

        def above(where):
            return scaled(output[where].triu(1 - where[2].start).double(), where)

        def difference(where):
            return scaled(product(output, output.mT, where) - data[where].double(), where)

        scale = norm(data, lambda where: scaled(data[where].double(), where))
        fault = residual_fault("L above its diagonal", above, scale, min(8 * n, UPPER_LIMIT))
        fault = fault or residual_fault("LL' - A", difference, scale, min(20 * n, FACTOR_LIMIT))
    return not fault, fault or ""
