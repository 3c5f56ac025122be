"""The shipped problems: references against independent arithmetic, every solution and template against its promise."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

from runner.gpus import Registry
from runner.taskdef import load_folder, work
from runner.taskdef.model import Harness, TaskFolder

TASKS = Path(__file__).resolve().parents[3] / "tasks"
NAMES = ("identity", "nvfp4_gemv", "vectoradd")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A task's files side by side in a directory that Python imports from."""

    folder: TaskFolder
    directory: Path

    def generate(self, case: dict[str, Any]) -> Any:  # noqa: ANN401 whatever the task makes
        """The inputs of a case."""
        return self._module("reference").generate_input(**case)

    def check(self, data: object, output: object) -> tuple[bool, str]:
        """The task's own verdict."""
        good, message = self._module("reference").check_implementation(data, output)
        return bool(good), str(message)

    def kernel(self, source: str) -> Callable[[Any], Any]:
        """The custom_kernel of a submission."""
        (self.directory / "submission.py").write_text(source)
        sys.modules.pop("submission", None)
        importlib.invalidate_caches()
        kernel: Callable[[Any], Any] = self._module("submission").custom_kernel
        return kernel

    @staticmethod
    def _module(name: str) -> ModuleType:
        return importlib.import_module(name)


@pytest.fixture(params=NAMES)
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Each shipped problem, unpacked as the judge unpacks it."""
    folder = load_folder(TASKS / request.param)
    for name, text in folder.task.files.items():
        if name not in ("submission.py", "eval.py"):
            (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    own = ("reference", "task", "utils", "formats", "submission")
    for name in own:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield Bench(folder=folder, directory=tmp_path)
    for name in own:
        sys.modules.pop(name, None)


def cpu_cases(folder: TaskFolder) -> Sequence[dict[str, Any]]:
    """Tests and benchmarks of the CPU type."""
    cases = folder.task.cases_for("CPU")
    return [dict(case) for case in (*(cases.tests or ()), *(cases.benchmarks or ()))]


def solutions(name: str, kind: str) -> list[Path]:
    """The submissions in a task's `solutions` folder of one kind."""
    found = sorted((TASKS / name / "solutions" / kind).glob("*.py"))
    assert found, f"tasks/{name}/solutions/{kind} holds no submission"
    return found


def exact(name: str, data: Any) -> torch.Tensor:  # noqa: ANN401 whatever the task makes
    """The result in float64, computed without any code of the task."""
    if name == "identity":
        source: torch.Tensor = data[0]
        return source.double()
    if name == "vectoradd":
        total: torch.Tensor = data[0].double() + data[1].double()
        return total
    a, b, sfa, sfb = data[:4]
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    table = torch.cat([table, -table])

    def wide(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        raw = packed.view(torch.uint8).long()
        values = torch.empty(raw.shape[0], raw.shape[1] * 2, raw.shape[2], dtype=torch.float64)
        values[:, 0::2], values[:, 1::2] = table[raw % 16], table[raw // 16]
        return values * scales.double().repeat_interleave(16, dim=1)

    return torch.einsum("mkl,nkl->mnl", wide(a, sfa), wide(b, sfb)[:1])


def test_a_shipped_task_is_complete(bench: Bench) -> None:
    """It uses the built-in judge, offers the CPU type with cases of its own, templates and the work of every case."""
    folder, task = bench.folder, bench.folder.task
    assert task.harness is Harness.BUILTIN
    assert "CPU" in folder.gpus
    assert len(folder.gpus) > 1
    assert "Python" in folder.templates
    assert task.extra.cases["CPU"].tests
    assert task.extra.cases["CPU"].benchmarks
    assert task.extra.bytes is not None
    assert all(work(task.extra.bytes, case) > 0 for case in task.benchmarks)


@pytest.mark.parametrize(
    ("name", "tests", "benchmarks", "largest"),
    [
        ("identity", 5, 7, {"size": 65536}),
        ("vectoradd", 5, 5, {"size": 16384}),
        ("nvfp4_gemv", 10, 3, {"m": 7168, "k": 16384, "l": 1}),
    ],
)
def test_a_shipped_task_has_its_public_counterparts_cases(
    name: str, tests: int, benchmarks: int, largest: dict[str, int]
) -> None:
    """As many cases as the public board of that name has, up to the same size, with seeds of our own."""
    task = load_folder(TASKS / name).task
    assert (len(task.tests), len(task.benchmarks)) == (tests, benchmarks)
    assert any(largest.items() <= case.items() for case in task.benchmarks)


def test_offered_types_are_registered() -> None:
    """No task offers a GPU type that the registry does not know."""
    registry = Registry.load()
    for name in NAMES:
        for gpu in load_folder(TASKS / name).gpus:
            assert registry.get(gpu).name == gpu


def test_inputs_depend_on_the_seed_alone(bench: Bench) -> None:
    """The same case gives the same bytes, another seed gives others."""

    def raw(case: dict[str, Any]) -> list[bytes]:
        return [tensor.flatten().view(torch.uint8).numpy().tobytes() for tensor in bench.generate(case)]

    case = cpu_cases(bench.folder)[0]
    assert raw(case) == raw(case)
    assert raw(case) != raw({**case, "seed": case["seed"] + 13})


def test_the_reference_agrees_with_float64(bench: Bench) -> None:
    """The exact result, rounded once to the output's type, passes; so does the reference itself."""
    for case in cpu_cases(bench.folder):
        data = bench.generate(case)
        expected = exact(bench.folder.name, data)
        assert bench.check(data, expected.half()) == (True, "")


def test_right_solutions_pass(bench: Bench) -> None:
    """Every file in solutions/correct, on every case of the CPU type, without touching its inputs' bytes."""
    for path in solutions(bench.folder.name, "correct"):
        kernel = bench.kernel(path.read_text())
        for case in cpu_cases(bench.folder):
            data = bench.generate(case)
            assert bench.check(bench.generate(case), kernel(data)) == (True, ""), f"{path.name} on {case}"


def test_wrong_solutions_fail(bench: Bench) -> None:
    """Every file in solutions/wrong, on every case of the CPU type, with a message that locates the difference."""
    for path in solutions(bench.folder.name, "wrong"):
        kernel = bench.kernel(path.read_text())
        for case in cpu_cases(bench.folder):
            good, message = bench.check(bench.generate(case), kernel(bench.generate(case)))
            assert not good, f"{path.name} on {case}"
            assert "elements differ; at (" in message


def test_one_wrong_element_fails(bench: Bench) -> None:
    """A single element off by more than the tolerance is found, wherever it lies, and so is one left unwritten."""
    case = cpu_cases(bench.folder)[0]
    data = bench.generate(case)
    right = exact(bench.folder.name, data).half().contiguous()
    for place in (0, right.numel() // 2, right.numel() - 1):
        for factor in (0.02, float("nan"), float("inf")):
            output = right.clone()
            output.view(-1)[place] += (1 + output.view(-1)[place].abs()) * factor
            good, message = bench.check(data, output)
            assert not good
            assert message.startswith(f"1 of {right.numel()} elements differ; at (")


def test_another_kind_of_output_fails(bench: Bench) -> None:
    """Shape, dtype and type are part of the answer."""
    data = bench.generate(cpu_cases(bench.folder)[0])
    right = exact(bench.folder.name, data).half()
    assert bench.check(data, right[:-1])[1].startswith("shape: found (")
    assert bench.check(data, right.float()) == (False, "dtype: found torch.float32, expected torch.float16")
    assert bench.check(data, None) == (False, "found NoneType, expected a tensor")


def test_templates_define_the_kernel(bench: Bench) -> None:
    """Every template parses, defines custom_kernel, and may be submitted (KernelBot refuses one word anywhere)."""
    for language, text in bench.folder.templates.items():
        functions = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        assert "custom_kernel" in functions, language
        assert "stream" not in text.lower(), language


def test_python_templates_are_right(bench: Bench) -> None:
    """The plain template is a working submission."""
    kernel = bench.kernel(bench.folder.templates["Python"])
    for case in cpu_cases(bench.folder):
        assert bench.check(bench.generate(case), kernel(bench.generate(case))) == (True, "")


def test_faulty_solutions_do_what_they_promise() -> None:
    """The demo's bad submissions parse, define the kernel, and pass KernelBot's word filter."""
    faults = {path.stem: path.read_text() for path in solutions("vectoradd", "faults")}
    assert set(faults) == {"crash", "slow", "cheat"}
    for text in faults.values():
        assert "def custom_kernel(data" in text
        assert "stream" not in text.lower()


def test_the_cheat_writes_to_whatever_it_inherits() -> None:
    """Run where it holds the descriptor, the cheat forges a whole passed report: only isolation stops it."""
    reader, writer = os.pipe()
    path = TASKS / "vectoradd/solutions/faults/cheat.py"
    program = f"import runpy; runpy.run_path({str(path)!r})['custom_kernel'](None)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        pass_fds=(writer,),
        env={"POPCORN_FD": str(writer)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        report = file.read().decode()
    assert done.returncode == 0
    assert {"check: pass", "test-count: 3", "benchmark.1.mean: 1.0"} <= set(report.splitlines())


@pytest.mark.parametrize("bench", ["nvfp4_gemv"], indirect=True)
def test_the_permuted_scales_are_the_scales(bench: Bench) -> None:
    """Row r, block j lies where the description says, and in memory a tile of 128 rows by 4 blocks is contiguous."""
    data = bench.generate({"m": 256, "k": 192, "l": 2, "seed": 7})
    for plain, permuted in ((data[2], data[4]), (data[3], data[5])):
        rows, blocks, batches = plain.shape
        assert permuted.shape == (32, 4, rows // 128, 4, blocks // 4, batches)
        r, j = torch.meshgrid(torch.arange(rows), torch.arange(blocks), indexing="ij")
        found = permuted.view(torch.uint8)[r % 32, r // 32 % 4, r // 128, j % 4, j // 4]
        assert torch.equal(found, plain.view(torch.uint8))
        assert permuted.stride()[:2] + permuted.stride()[3:4] == (16, 4, 1)


@pytest.mark.parametrize("bench", ["nvfp4_gemv"], indirect=True)
def test_gemv_inputs_have_the_public_layout(bench: Bench) -> None:
    """Shapes, types and strides that submissions to the public board rely on."""
    m, k, batches = 128, 256, 2
    data = bench.generate({"m": m, "k": k, "l": batches, "seed": 7})
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    assert [(tuple(tensor.shape), tensor.dtype) for tensor in data] == [
        ((m, k // 2, batches), fp4),
        ((128, k // 2, batches), fp4),
        ((m, k // 16, batches), fp8),
        ((128, k // 16, batches), fp8),
        ((32, 4, m // 128, 4, k // 64, batches), fp8),
        ((32, 4, 1, 4, k // 64, batches), fp8),
        ((m, 1, batches), torch.float16),
    ]
    assert data[0].stride() == (k // 2, 1, m * k // 2)
    assert data[2].stride() == (k // 16, 1, m * k // 16)
    assert data[0].view(torch.uint8).unique().numel() == 256


def test_kernelbot_would_load_the_task_files() -> None:
    """Only keys and types that KernelBot's loader takes: our own words stay in runner.yml."""
    top = {
        "files", "lang", "description", "config", "tests", "benchmarks", "test_timeout", "benchmark_timeout",
        "ranked_timeout", "ranking_by", "seed", "multi_gpu", "libraries", "templates", "gpus",
    }  # fmt: skip
    for name in NAMES:
        path = TASKS / name / "task.yml"
        document = yaml.safe_load(path.read_text())
        assert set(document) <= top
        assert document["lang"] == "py"
        assert set(document["config"]) == {"main"}
        assert isinstance(document["description"], str)
        assert set(document["templates"]) <= {"CUDA", "Python", "Triton", "HIP", "CuteDSL"}
        for entry in document["files"]:
            assert set(entry) == {"name", "source"}
            assert entry["source"] == "@SUBMISSION@" or (path.parent / entry["source"]).is_file()
        for source in document["templates"].values():
            assert (path.parent / source).is_file()
        for case in (*document["tests"], *document["benchmarks"]):
            assert all(isinstance(value, int) for value in case.values())
            # KernelBot's usual grammar has letters alone in keys.
            assert all(key.isalpha() for key in case)
