import torch
from invariants import EPS, kind_fault, norm, order_fault, orthogonality_fault, product, residual_fault
from matrices import band, decades, mixed, normal, seeded, shuffled, signs, symmetric, with_eigenvalues
from task import input_t, output_t

# In units of 2**-23, relative to the 1-norm of the matrix. The public board has 200 n, 400 n and 100 n, and 100 n for
# the order, which leave room for half precision within; growing further they would leave it for anything. Float32 has
# up to 70 in the first two and 650 in the last, up to n = 2048; numbers of 11 bits (half precision, TF32) 4,000 and
# 70,000, of 8 bits (bfloat16) 30,000 and 500,000 at n = 1024.
RESIDUAL_LIMIT = 12_800
ORTHOGONAL_LIMIT = 51_200
# The least and the greatest magnitude whose square is a normal float32.
LOW = 2.0**-63
HIGH = 2.0**63


def ref_kernel(data: input_t) -> output_t:
    values, vectors = torch.linalg.eigh(data)
    return vectors, values


def dense(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    a = symmetric(normal(batch, n, n, generator=generator))
    sizes = decades(n, cond, generator)
    # In this order the two triangles are rounded alike.
    return a * (sizes[:, None] * sizes)


def alternating(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    values = decades(n, max(cond, 1), generator)
    values[1::2] *= -1
    return shuffled(values.expand(batch, n), generator)


def spectrum(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return with_eigenvalues(alternating(batch, n, cond, generator), generator)


def diagonal(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return torch.diag_embed(alternating(batch, n, cond, generator))


def psd(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    a = normal(batch, n, n, generator=generator) * decades(n, max(cond, 1), generator)
    return symmetric(a @ a.mT / n)


def deficient(batch: int, n: int, cond: int, generator: torch.Generator, rest: float) -> torch.Tensor:
    values = decades(n, max(cond, 1), generator)
    values[n - n // 4 :] = rest * decades(n // 4, 2, generator)
    return with_eigenvalues(values.expand(batch, n), generator)


def rankdef(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return deficient(batch, n, cond, generator, 0)


def nearrank(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return deficient(batch, n, cond, generator, 1e-6)


def repeated(batch: int, n: int, _cond: int, generator: torch.Generator) -> torch.Tensor:
    groups = max(1, min(16, n // 8))
    values = torch.linspace(-1, 1, groups, device=generator.device)
    return with_eigenvalues(values[torch.arange(n, device=generator.device) % groups].expand(batch, n), generator)


def clustered(batch: int, n: int, _cond: int, generator: torch.Generator) -> torch.Tensor:
    # A third about -1, the others about 1, half of those ten times as close to each other.
    values = torch.linspace(-1e-5, 1e-5, n, device=generator.device)
    values[: n // 3] -= 1
    values[n // 3 :] += 1
    values[n // 3 : 2 * n // 3] = 1 + torch.linspace(-1e-6, 1e-6, 2 * n // 3 - n // 3, device=generator.device)
    return with_eigenvalues(values.expand(batch, n), generator)


def banded(batch: int, n: int, _cond: int, generator: torch.Generator) -> torch.Tensor:
    a = dense(batch, n, 0, generator) * band(n, max(2, min(32, n // 32)), generator)
    a.diagonal(dim1=-2, dim2=-1).add_(torch.linspace(-1, 1, n, device=a.device))
    return a


def rowscale(batch: int, n: int, cond: int, generator: torch.Generator) -> torch.Tensor:
    return dense(batch, n, max(cond, 4), generator)


MIXED = {
    "dense": dense, "spectrum": spectrum, "psd": psd, "rankdef": rankdef, "nearrank": nearrank, "repeated": repeated,
    "clustered": clustered, "band": banded, "rowscale": rowscale,
}  # fmt: skip
KINDS = MIXED | {"diagonal": diagonal}


def lapack(batch: int, n: int, kind: str, generator: torch.Generator) -> torch.Tensor:
    # The kinds of LAPACK's TESTING/EIG/ddrvst.f: form_distribution_magnitude.
    scale = HIGH if "high" in kind else LOW if "low" in kind else 1
    if kind == "zero":
        return torch.zeros(batch, n, n, device=generator.device)
    if kind == "identity":
        return torch.eye(n, device=generator.device).repeat(batch, 1, 1)
    if kind.startswith("random"):
        values = torch.rand(batch, n, n, device=generator.device, generator=generator) * 2 - 1
        return symmetric(values) * scale
    if "geometric" in kind:
        values = (2 * EPS) ** torch.linspace(0, 1, n, device=generator.device)
    elif "even" in kind:
        values = torch.linspace(1, 2 * EPS, n, device=generator.device)
    else:
        values = torch.full((n,), 2 * EPS, device=generator.device)
        values[0] = 1
    values = values * signs(batch, n, generator=generator) * scale
    if kind.startswith("diag"):
        return torch.diag_embed(values)
    a = with_eigenvalues(values, generator)
    if kind.startswith("band"):
        a *= band(n, torch.randint(0, n, (batch, 1, 1), device=a.device, generator=generator), generator)
    return a


def generate_input(batch: int, n: int, cond: int, seed: int, case: str = "dense", *, edge: int = 0) -> input_t:
    generator = seeded(seed)
    if case == "mixed":
        a = mixed(MIXED, batch, n, cond, generator)
    elif case.startswith("lapack_"):
        a = lapack(batch, n, case.removeprefix("lapack_"), generator)
    else:
        a = KINDS[case](batch, n, cond, generator)
    if edge:
        # Rows of two matrices that do not touch, in any order, and far from 1: what lies between them is 0.
        owner = torch.randint(0, 2, (batch, n, 1), device=a.device, generator=generator)
        a = torch.where(owner == owner.mT, a, 0) * 2.0**40
    return a


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    fault = kind_fault(output, Q=data, L=data[..., 0])
    if fault is None:
        q, values = output
        n = data.shape[-1]
        scale = norm(data)
        wide = values.double()[:, None]
        fault = (
            order_fault("L", values, min(100 * n, ORTHOGONAL_LIMIT))
            or residual_fault(
                "AQ - Q diag(L)",
                lambda where: product(data, q, where) - q[where].double() * wide[where[0], :, where[2]],
                scale,
                min(200 * n, RESIDUAL_LIMIT),
            )
            or orthogonality_fault("Q", lambda where: product(q.mT, q, where), data, min(100 * n, ORTHOGONAL_LIMIT))
            or residual_fault(
                "Q diag(L) Q' - A",
                lambda where: product(q * values[:, None], q.mT, where) - data[where].double(),
                scale,
                min(400 * n, RESIDUAL_LIMIT),
            )
        )
    return not fault, fault or ""
