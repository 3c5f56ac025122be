"""The checks by identities: which right answers pass, with how much room, and what each criterion refuses by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tasks.problems.invariants import kind_fault, reflect
from tests.unit.problems.bench import Bench, unpacked
from tests.unit.problems.oracle import TASKS, oracle_of

Check = Callable[[torch.Tensor, Any], tuple[bool, str]]
#: The most bits of a mantissa that a task has no room for: those of TF32 and half precision, of bfloat16.
TOO_FEW_BITS = {"qr_v2": 11, "cholesky": 11, "eigh": 8}


@pytest.fixture(autouse=True)
def seed() -> None:
    """Every run has the same numbers."""
    torch.manual_seed(7)


@pytest.fixture(params=TOO_FEW_BITS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Each task that is checked so, qr's reference in qr_v2."""
    with unpacked(request.param, tmp_path, monkeypatch) as made:
        yield made


def test_each_criterion_of_a_cholesky_factor_fails_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sign, an element above the diagonal, one below: wherever, it is named."""
    with unpacked("cholesky", tmp_path, monkeypatch) as bench:
        x = torch.randn(3, 20, 20)
        a = x @ x.mT + torch.eye(20)
        right = torch.linalg.cholesky(a)
        for matrix, row, column in ((0, 0, 0), (1, 19, 19), (2, 7, 7)):
            wrong = right.clone()
            wrong[matrix, :, column] *= -1
            assert bench.check(a, wrong)[1].startswith(f"L at ({matrix}, {row}): found -")
        for place, name in (((1, 3, 9), "L above its diagonal at (1, 9)"), ((2, 9, 3), "LL' - A at (2, ")):
            wrong = right.clone()
            wrong[place] += 0.01
            assert bench.check(a, wrong)[1].startswith(name)


def test_each_criterion_of_a_qr_factorisation_fails_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R alone, however short its column, and reflectors that are none where there is nothing to factor.

    Of nearly dependent columns, nothing else is wrong without the reflectors of the last quarter.
    """
    with unpacked("qr", tmp_path, monkeypatch) as bench:
        a = torch.randn(3, 20, 20)
        a[:, :, 9] *= 1e-20
        h, tau = torch.geqrf(a)
        for column in (9, 19):
            wrong = h.clone()
            wrong[1, 4, column] *= 1.01
            assert bench.check(a, (wrong, tau))[1].startswith(f"Q'A - R at (1, {column}): found ")
        assert bench.check(torch.zeros_like(a), (h.tril(-1), tau * 1.01))[1].startswith("Q'Q - I at (")
    with unpacked("qr_v2", tmp_path, monkeypatch) as bench:
        data = bench.generate({"batch": 2, "n": 64, "cond": 0, "seed": 5, "case": "nearrank"})
        h, tau = torch.geqrf(data)
        tau[:, 48:] = 0
        factor = reflect(h, tau, data.double(), adjoint=True).float().triu()
        assert bench.check(data, (factor + h.tril(-1), tau))[1].startswith("Q'A - R at (")


def invariants(bench: Bench) -> ModuleType:
    """The module that the task imports."""
    return bench.module("invariants")


def parts(output: Any) -> list[torch.Tensor]:  # noqa: ANN401 what a kernel returns
    """The tensors of an output."""
    return [output] if isinstance(output, torch.Tensor) else list(output)


def like(output: Any, tensors: list[torch.Tensor]) -> Any:  # noqa: ANN401 as above
    """Other tensors in the place of an output's."""
    return tensors[0] if isinstance(output, torch.Tensor) else tuple(tensors)


def rounded(value: torch.Tensor, bits: int) -> torch.Tensor:
    """To a mantissa of so many bits."""
    mantissa, exponent = torch.frexp(value)
    return torch.ldexp(torch.round(mantissa * 2**bits), exponent - bits)


def kinds(bench: Bench) -> list[dict[str, Any]]:
    """Every kind of matrix of the official cases, small."""
    cases = bench.folder.task.tests + bench.folder.task.benchmarks
    found = {str(case.get("case", "dense")): case for case in cases}
    return [{"cond": case["cond"], "case": kind, "seed": 5} for kind, case in found.items()]


def test_lapacks_factors_pass_with_room(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, and in float64 rounded once, of every kind, far from 1 too: within an eighth of each limit."""
    module = invariants(bench)
    monkeypatch.setattr(module, "EPS", module.EPS / 8)
    for kind in kinds(bench):
        for n in (1, 30):
            for edge in (0, 1) if "magnitude" not in kind["case"] else (0,):
                data = bench.generate({"batch": 2, "n": n, "edge": edge, **kind})
                for output in (bench.candidate("reference")(data.clone()), oracle_of(bench.folder.name).answer(data)):
                    assert bench.check(data, output) == (True, ""), (kind, n, edge)


def test_factors_of_lower_precision_fail(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are only rounded to too few bits, of any size, by limits half as strict as well."""
    module = invariants(bench)
    monkeypatch.setattr(module, "EPS", module.EPS * 2)
    for n in (16, 100, 400):
        data = bench.generate({"batch": 1, "n": n, "cond": 2, "seed": 3})
        right = bench.candidate("reference")(data.clone())
        assert bench.check(data, right)[0]
        for bits in {8, TOO_FEW_BITS[bench.folder.name]}:
            assert not bench.check(data, like(right, [rounded(each, bits) for each in parts(right)]))[0], (n, bits)


def test_a_check_in_pieces_says_the_same(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a piece holds: several matrices, or some columns of one."""
    data = bench.generate({"batch": 5, "n": 12, "cond": 1, "seed": 3})
    right = bench.candidate("reference")(data.clone())
    wrong = [like(right, [each.clone() for each in parts(right)]) for _ in range(2)]
    parts(wrong[0])[0][3, 7, 5] += 1
    parts(wrong[1])[0][4, 11, 2] = float("nan")
    said = [bench.check(data, output) for output in (right, *wrong)]
    assert [good for good, _ in said] == [True, False, False]
    assert "L at (4, 11, 2): found nan" in said[2][1].replace("H", "L").replace("Q", "L")
    for piece in (400, 36, 1):
        monkeypatch.setattr(invariants(bench), "_PIECE", piece)
        assert [bench.check(data, output) for output in (right, *wrong)] == said


def test_symmetric_matrices_are_so_bit_by_bit(bench: Bench) -> None:
    """Whichever triangle is read, of every kind."""
    for kind in kinds(bench) if bench.folder.name != "qr_v2" else []:
        data = bench.generate({"batch": 2, "n": 30, "edge": 0, **kind, "cond": 4})
        assert torch.equal(data, data.mT), kind


def test_a_vector_or_several_heads_are_looked_at_whole() -> None:
    """A number for each matrix, and more than three dimensions: the place is named."""
    for shape, place in (((5,), (3, 0)), ((2, 9, 4, 3), (1, 8, 3, 2))):
        like = torch.ones(shape)
        assert kind_fault(like.clone(), X=like) is None
        wrong = like.clone()
        wrong[place[: wrong.dim()]] = float("inf")
        assert kind_fault(wrong, X=like) == f"X at {place}: found inf, expected a finite number"


def test_some_products_of_a_cholesky_factor_in_tf32_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in twenty, spread over all columns, so that none has much of it."""
    with unpacked("cholesky", tmp_path, monkeypatch) as bench:
        for n in (64, 400):
            data = bench.generate({"batch": 1, "n": n, "cond": 2, "seed": 3})
            right = bench.candidate("reference")(data.clone()).double()
            error = rounded(right, 11) @ rounded(right, 11).mT - right @ right.mT
            some = (torch.arange(n)[:, None] + torch.arange(n)) % 20 == 0
            changed = data + error.where(some & ~torch.eye(n, dtype=torch.bool), 0).float()
            assert bench.check(changed, right.float())[1].startswith("LL' - A at (0, "), n


def test_each_criterion_of_eigenvectors_fails_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order, an eigenvalue, vectors that are not orthogonal, and an element that no eigenvector sees much of."""
    with unpacked("eigh", tmp_path, monkeypatch) as bench:
        x = torch.randn(3, 64, 64)
        a = x + x.mT
        values, q = torch.linalg.eigh(a)
        order = torch.arange(64)
        order[[5, 9]] = order[[9, 5]]
        assert bench.check(a, (q[:, :, order], values[:, order]))[1].startswith("L at (0, 6): found ")
        wrong = values.clone()
        wrong[1, -1] *= 1.1
        assert bench.check(a, (q, wrong))[1].startswith("AQ - Q diag(L) at (1, 63): found ")
        ones = torch.ones(3, 64)
        turned = q + 0.01 * q.roll(1, -1)
        assert bench.check(torch.eye(64).repeat(3, 1, 1), (turned, ones))[1].startswith("Q'Q - I at (")
        a[2, 0, 0] += 1.5 * 12_800 * 2**-23 * a[2].abs().sum(0).max()
        assert bench.check(a, (q, values))[1].startswith("Q diag(L) Q' - A at (2, 0): found ")


def test_other_right_answers_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs, bases of the space of a repeated eigenvalue, and reflectors that do nothing."""
    q = torch.linalg.qr(torch.randn(2, 24, 24)).Q
    values = torch.arange(24).div(8, rounding_mode="floor").float().expand(2, 24)
    turned = torch.cat([part @ torch.linalg.qr(torch.randn(2, 8, 8)).Q for part in q.split(8, dim=-1)], dim=-1)
    with unpacked("eigh", tmp_path, monkeypatch) as bench:
        assert bench.check((q * values[:, None]) @ q.mT, (-turned, values)) == (True, "")
    with unpacked("qr", tmp_path, monkeypatch) as bench:
        assert bench.check(q.triu(), (q.triu(), torch.zeros(2, 24))) == (True, "")


def test_reflectors_are_lapacks() -> None:
    """Of more than one block, orthogonal or not, some of them nothing."""
    h, tau = torch.randn(2, 100, 100, dtype=torch.float64) / 20, torch.rand(2, 100, dtype=torch.float64)
    tau[:, ::7] = 0
    q = torch.linalg.householder_product(h, tau)
    x = torch.randn(2, 100, 3, dtype=torch.float64)
    assert torch.allclose(reflect(h, tau, x), q @ x)
    assert torch.allclose(reflect(h, tau, x, adjoint=True), q.mT @ x)


def test_the_example_of_the_page_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Cholesky factor and a symmetric root pass, one of fewer bits does not."""
    page = (TASKS.parents[1] / "docs" / "adding-a-task.md").read_text()
    code = page.partition("## A check by invariants")[2].partition("```python\n")[2].partition("```")[0]
    with unpacked("cholesky", tmp_path, monkeypatch):
        namespace: dict[str, Any] = {}
        exec(code, namespace)  # noqa: S102 the page is ours
        check: Check = namespace["check_implementation"]
        x = torch.randn(2, 50, 50)
        a = x @ x.mT
        values, q = torch.linalg.eigh(a.double())
        root = ((q * values.sqrt()[:, None]) @ q.mT).float()
        factor = torch.linalg.cholesky(a)
        assert [check(a, each) for each in (factor, root)] == [(True, "")] * 2
        assert check(a, rounded(factor, 11))[1].startswith("FF' - A at (")
