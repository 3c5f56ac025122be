"""The shipped problems of several ranks: references against independent arithmetic, every solution on two ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from runner.base.gpu_types import Registry
from runner.task_format import load_folder, work
from runner.task_format.model import Harness
from tests.unit.problems.bench import Bench, cpu_cases, hidden_cases, reseeded, solutions, unpacked
from tests.unit.problems.oracle import TASKS, leaves
from tests.unit.problems.ranks import WORLD_SIZE, Ranks


def exact_ag_gemm(data: Sequence[Any]) -> list[torch.Tensor]:
    """Everybody's rows by a rank's columns."""
    rows = torch.cat([matrix for matrix, _, _ in data]).double()
    return [rows @ weight.double().T + (0 if bias is None else bias.double()) for _, weight, bias in data]


def exact_gemm_rs(data: Sequence[Any]) -> list[torch.Tensor]:
    """The product over the whole inner dimension, with the bias once per rank, in slices."""
    left = torch.cat([matrix for matrix, _, _ in data], dim=1).double()
    right = torch.cat([weight for _, weight, _ in data], dim=1).double()
    total = left @ right.T
    for _, _, bias in data:
        total += 0 if bias is None else bias.double()
    return list(total.chunk(len(data)))


def exact_all2all(data: Sequence[Any]) -> list[torch.Tensor]:
    """Each token through each of its experts, one number after the other."""
    factors = torch.cat([mine.expert_local_weight.flatten() for _, mine, _, _ in data])
    outputs = []
    for cfg, mine, _, _ in data:
        total = torch.zeros(mine.num_tokens, cfg.hidden_dim, dtype=torch.float64)
        for token in range(mine.num_tokens):
            for expert, weight in zip(mine.indices[token].tolist(), mine.weights[token].double(), strict=True):
                total[token] += (mine.x[token].float() * factors[expert]).half().double() * weight
        outputs.append(total)
    return outputs


ORACLES: dict[str, tuple[Callable[[Sequence[Any]], list[torch.Tensor]], torch.dtype]] = {
    "amd_ag_gemm": (exact_ag_gemm, torch.bfloat16),
    "amd_all2all": (exact_all2all, torch.float16),
    "amd_gemm_rs": (exact_gemm_rs, torch.bfloat16),
}
NAMES = tuple(ORACLES)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Two processes for all tests of this module."""
    made = Ranks(tmp_path_factory.mktemp("ranks") / "meeting")
    yield made
    made.close()


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Each problem, unpacked as the judge unpacks it."""
    with unpacked(request.param, tmp_path, monkeypatch) as made:
        yield made


def everybody(bench: Bench, case: dict[str, Any]) -> list[Any]:
    """The inputs of every rank."""
    return [bench.generate(case | {"rank": rank}) for rank in range(case["world_size"])]


def answers(bench: Bench, case: dict[str, Any]) -> list[torch.Tensor]:
    """The exact outputs of every rank, rounded once."""
    exact, dtype = ORACLES[bench.folder.name]
    return [output.to(dtype) for output in exact(everybody(bench, case))]


def tensors(data: object) -> list[torch.Tensor]:
    """The tensors of one rank's inputs, those of records included."""
    found = leaves(data)
    if isinstance(data, tuple):
        found += [tensor for item in data if hasattr(item, "__dict__") for tensor in leaves(vars(item))]
    return found


def test_every_task_of_several_ranks_is_here() -> None:
    """No such folder goes untested."""
    several = {
        path.parent.name for path in TASKS.glob("*/task.yml") if yaml.safe_load(path.read_text()).get("multi_gpu")
    }
    assert several == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_complete(name: str) -> None:
    """Judge, CPU type, template and work; the cases of the public board have eight ranks each."""
    folder = load_folder(TASKS / name)
    task = folder.task
    assert (task.harness, task.multi_gpu) == (Harness.BUILTIN, True)
    assert set(folder.gpus) == {"CPU", "MI300x8"}
    assert "Python" in folder.templates
    assert {case["world_size"] for case in (*task.tests, *task.benchmarks)} == {8}
    assert Registry.load().get("MI300x8").count == 8
    assert {case["world_size"] for case in cpu_cases(folder)} == {WORLD_SIZE}
    assert task.extra.flops is not None
    assert task.extra.bytes is not None
    assert all(work(expression, case) > 0 for expression in (task.extra.flops, task.extra.bytes) for case in task.tests)


def test_inputs_depend_on_seed_and_rank_alone_and_shapes_not_even_on_the_seed(bench: Bench) -> None:
    """The same call gives the same bytes; another seed or rank gives others; a case keeps its shapes with any seed."""

    def raw(data: object) -> list[bytes]:
        return [tensor.flatten().view(torch.uint8).numpy().tobytes() for tensor in tensors(data)]

    for case in cpu_cases(bench.folder):
        here, again = everybody(bench, case), everybody(bench, case)
        other = everybody(bench, reseeded(case))
        assert [raw(data) for data in here] == [raw(data) for data in again]
        assert raw(here[0]) != raw(here[1])
        for mine, changed in zip(here, other, strict=True):
            assert raw(mine) != raw(changed)
            assert [tensor.shape for tensor in tensors(mine)] == [tensor.shape for tensor in tensors(changed)]


def test_the_reference_agrees_with_float64(bench: Bench, ranks: Ranks) -> None:
    """The exact result, rounded once to the output's type, passes on every rank."""
    for case in (*cpu_cases(bench.folder), *hidden_cases(bench.folder)):
        assert ranks.check(bench, case, answers(bench, case)) == [(True, "")] * WORLD_SIZE, case


def test_one_wrong_element_on_one_rank_fails_there(bench: Bench, ranks: Ranks) -> None:
    """A single element off by more than the tolerance is found by the rank that has it, and by no other."""
    case = cpu_cases(bench.folder)[0]
    for place in (0, -1):
        for value in (0.03, float("nan")):
            outputs = answers(bench, case)
            flat = outputs[1].view(-1)
            flat[place] += (1 + flat[place].abs()) * value
            first, second = ranks.check(bench, case, outputs)
            assert first == (True, "")
            assert not second[0]
            assert second[1].startswith(f"1 of {flat.numel()} elements differ; at (")


def test_right_solutions_and_the_template_pass(bench: Bench, ranks: Ranks) -> None:
    """Every file in solutions/correct, and the template, on every rank and case of the CPU type, hidden ones too."""
    sources = {path.name: path.read_text() for path in solutions(bench.folder.name, "correct")}
    for name, source in {**sources, "the template": bench.folder.templates["Python"]}.items():
        verdicts = ranks.judge(bench, source, [*cpu_cases(bench.folder), *hidden_cases(bench.folder)])
        assert verdicts == [[(True, "")] * WORLD_SIZE] * len(verdicts), name


def test_wrong_solutions_fail(bench: Bench, ranks: Ranks) -> None:
    """Every file in solutions/wrong fails on a test and a benchmark of the CPU type, and says where it differs."""
    found = solutions(bench.folder.name, "wrong")
    assert len(found) >= 3
    tests = len(bench.folder.task.cases_for("CPU").tests or ())
    for path in found:
        verdicts = ranks.judge(bench, path.read_text(), cpu_cases(bench.folder))
        failed = [[message for good, message in by_rank if not good] for by_rank in verdicts]
        assert any(failed[:tests]), path.name
        assert any(failed[tests:]), path.name
        assert all("elements differ; at (" in message for messages in failed for message in messages), path.name
