"""Checks by identities that every right answer satisfies, for problems with many right answers; a file of such tasks.

(`{"name": "invariants.py", "source": "../invariants.py"}`.) Self-contained. Matrices are batches (batch, rows,
columns); arithmetic is in float64 on their device, and in pieces: a check needs about a GiB beside the tensors.

A residual is the 1-norm of a column of what should be nothing, in units of a scale times `EPS`, as in LAPACK's test
programs (LAPACK Working Note 41; dqrt01 for QR, dsyt21 for eigenvectors, dpot01 for Cholesky). They divide by the size,
too, which bounds the worst case. Measured, the residuals of float32 do not grow with it, or as its root, so from some
size on a limit that grows with it accepts lower precisions: `min(20 * n, 320)` does not.

Each `..._fault` returns what is wrong and where, or None: `first_fault or second_fault` goes on as long as all is well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

#: The spacing of float32 at 1.
EPS = 2.0**-23
#: The least normal float32. What is smaller may be lost: a device may take it for 0.
TINY = 2.0**-126
#: Elements of a piece.
_PIECE = 1 << 24
#: Reflectors that are applied together.
_BLOCK = 64

#: Matrices, rows (all) and columns of a piece.
Where = tuple[slice, slice, slice]
#: The float64 elements of a piece.
Part = Callable[[Where], torch.Tensor]


def kind_fault(output: object, **expected: torch.Tensor) -> str | None:
    """Whether an output is a tensor, or several, of the shape, dtype and device of those expected, and finite.

    Args:
        output: what a submission returned.
        expected: the name of each tensor -> one like it.
    """
    values = [output] if len(expected) == 1 else output
    if not isinstance(values, (tuple, list)) or len(values) != len(expected):
        return f"found {type(output).__name__}, expected {len(expected)} tensors ({', '.join(expected)})"
    for (name, like), value in zip(expected.items(), values, strict=True):
        if not isinstance(value, torch.Tensor):
            return f"{name}: found {type(value).__name__}, expected a tensor"
        for attribute in ("shape", "dtype", "device"):
            own, required = getattr(value, attribute), getattr(like, attribute)
            if own != required:
                own, required = (tuple(own), tuple(required)) if attribute == "shape" else (own, required)
                return f"{name}: {attribute}: found {own}, expected {required}"
        whole = value[:, None] if value.dim() == 1 else value
        for where in _pieces(whole.shape[0], whole.shape[-1], whole[0].numel() // whole.shape[-1]):
            part = whole[where[0], ..., where[2]]
            bad = torch.nonzero(~torch.isfinite(part))
            if len(bad):
                place = [int(each) for each in bad[0]]
                place[0], place[-1] = place[0] + where[0].start, place[-1] + where[2].start
                number = part[tuple(bad[0])].item()
                return f"{name} at ({', '.join(map(str, place))}): found {number}, expected a finite number"
    return None


def residual_fault(name: str, part: Part, scale: torch.Tensor, limit: float) -> str | None:
    """Whether a square matrix that should be nothing has a column whose 1-norm is too large.

    Args:
        name: of the matrix, for the message.
        part: its elements.
        scale: for each column (batch, columns), what rounding is relative to: `norms` or `norm`.
        limit: the largest 1-norm, in units of EPS times `scale`.
    """
    worst, message = 1.0, None
    for where in _pieces(scale.shape[0], scale.shape[1], scale.shape[1]):
        sums = part(where).abs().sum(dim=-2)
        allowed = limit * EPS * scale[where[0], where[2]] + scale.shape[1] * TINY
        # NaN, from numbers that are too large for float64, is no pass.
        shares = (sums / allowed).nan_to_num(nan=float("inf"))
        share, place = shares.flatten().max(dim=0)
        if share.item() > worst:
            worst = share.item()
            matrix, column = divmod(int(place), shares.shape[1])
            message = (
                f"{name} at ({matrix + where[0].start}, {column + where[2].start}): found {worst * limit:.4g}, "
                f"expected at most {limit:g}, the 1-norm of the column in units of 2**-23 of its scale"
            )
    return message


def orthogonality_fault(name: str, part: Part, like: torch.Tensor, limit: float) -> str | None:
    """Whether Q'Q, whose elements are `part`, is the identity, within `limit` times EPS."""

    def difference(where: Where) -> torch.Tensor:
        piece = part(where)
        piece[:, where[2]].diagonal(dim1=-2, dim2=-1).sub_(1)
        return piece

    ones = torch.ones(like.shape[0], like.shape[-1], dtype=torch.float64, device=like.device)
    return residual_fault(f"{name}'{name} - I", difference, ones, limit)


def order_fault(name: str, values: torch.Tensor, limit: float) -> str | None:
    """Whether each row of (batch, n) ascends, within `limit` times EPS of its largest magnitude."""
    wide = values.double()
    slack = limit * EPS * wide.abs().amax(dim=-1, keepdim=True)
    bad = torch.nonzero(wide[:, 1:] < wide[:, :-1] - slack)
    if not len(bad):
        return None
    matrix, place = bad[0].tolist()
    value, before = wide[matrix, place + 1].item(), wide[matrix, place].item()
    return f"{name} at ({matrix}, {place + 1}): found {value:.9g}, expected at least {before:.9g}, the one before"


def positive_fault(name: str, values: torch.Tensor) -> str | None:
    """Whether all of (batch, n) are above 0."""
    bad = torch.nonzero(values <= 0)
    if not len(bad):
        return None
    matrix, place = bad[0].tolist()
    return f"{name} at ({matrix}, {place}): found {values[matrix, place].item():.9g}, expected a positive number"


def norms(matrix: torch.Tensor, part: Part | None = None) -> torch.Tensor:
    """The 1-norm of each column, (batch, columns): of a matrix, or of what `part` makes of it."""
    sums = torch.empty(matrix.shape[0], matrix.shape[-1], dtype=torch.float64, device=matrix.device)
    for where in _pieces(matrix.shape[0], matrix.shape[-1], matrix.shape[-2]):
        piece = matrix[where].double() if part is None else part(where)
        sums[where[0], where[2]] = piece.abs().sum(dim=-2)
    return sums


def norm(matrix: torch.Tensor, part: Part | None = None) -> torch.Tensor:
    """The 1-norm of each matrix, for each of its columns."""
    sums = norms(matrix, part)
    return sums.amax(dim=-1, keepdim=True).expand_as(sums)


def product(left: torch.Tensor, right: torch.Tensor, where: Where) -> torch.Tensor:
    """A piece of the product of two batches."""
    columns = right[where].double()
    rows = torch.split(left[where[0]], max(1, _PIECE // (columns.shape[0] * left.shape[-1])), dim=-2)
    return torch.cat([each.double() @ columns for each in rows], dim=-2)


def reflect(h: torch.Tensor, tau: torch.Tensor, x: torch.Tensor, *, adjoint: bool = False) -> torch.Tensor:
    """Q x, or Q'x, of the Q that `torch.geqrf` returns as Householder vectors below the diagonal of `h` and `tau`.

    Some reflectors together are I - V T V' with T = (I + D S)^-1 D, where D has their tau on its diagonal and S is the
    part of V'V above its diagonal (Puglisi, "Modification of the Householder method based on the compact WY
    representation", 1992). That holds whether they are orthogonal or not.

    Args:
        h: (batch, n, n).
        tau: (batch, n).
        x: (batch, n, any), float64.
        adjoint: Q'x.
    """
    x = x.clone()
    starts = range(0, h.shape[-1], _BLOCK)
    for start in starts if adjoint else reversed(starts):
        v = h[:, start:, start : start + _BLOCK].double().tril(-1)
        v.diagonal(dim1=-2, dim2=-1).fill_(1)
        d = tau[:, start : start + _BLOCK, None].double()
        system = (d * (v.mT @ v)).triu(1)
        system.diagonal(dim1=-2, dim2=-1).fill_(1)
        sums = v.mT @ x[:, start:]
        if adjoint:
            sums = d * torch.linalg.solve_triangular(system.mT, sums, upper=False, unitriangular=True)
        else:
            sums = torch.linalg.solve_triangular(system, d * sums, upper=True, unitriangular=True)
        x[:, start:] -= v @ sums
    return x


def identity(like: torch.Tensor, where: Where) -> torch.Tensor:
    """A piece of the identity, for each matrix of a batch."""
    rows = torch.arange(like.shape[-2], device=like.device)
    one = (rows[:, None] == torch.arange(where[2].start, where[2].stop, device=like.device)).double()
    return one.expand(where[0].stop - where[0].start, -1, -1)


def _pieces(batch: int, columns: int, rows: int) -> Iterator[Where]:
    together = max(1, _PIECE // (rows * columns))
    wide = max(1, min(columns, _PIECE // rows))
    for matrix in range(0, batch, together):
        for column in range(0, columns, wide):
            yield (
                slice(matrix, min(matrix + together, batch)),
                slice(None),
                slice(column, min(column + wide, columns)),
            )
