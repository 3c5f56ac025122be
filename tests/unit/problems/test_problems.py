"""The shipped problems: references against independent arithmetic, every solution and template against its promise."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
import torch
import yaml

from runner.base.gpu_types import Registry
from runner.task_format import load_folder, work
from runner.task_format.model import Harness
from tests.support.waiting import PATIENCE_S
from tests.unit.problems.bench import Bench, cpu_cases, hidden_cases, reseeded, solutions
from tests.unit.problems.oracle import NAMES, PUBLIC, TASKS, leaves, oracle_of

#: Those of several ranks, too.
ALL = tuple(sorted(path.parent.name for path in TASKS.glob("*/task.yml")))
#: How a message says where a difference is.
PLACE = re.compile(r"\bat \(")


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


@pytest.mark.parametrize("name", ALL)
def test_a_shipped_task_has_its_public_counterparts_cases(name: str) -> None:
    """As many cases as the public board of that name has, up to the same size, with seeds of our own."""
    task, (tests, benchmarks, largest) = load_folder(TASKS / name).task, PUBLIC[name]
    assert (len(task.tests), len(task.benchmarks)) == (tests, benchmarks)
    assert any(largest.items() <= case.items() for case in task.benchmarks)


@pytest.mark.parametrize("name", ALL)
def test_a_description_names_the_tolerances(name: str) -> None:
    """Those that reference.py gives in numbers, in the same figures."""
    text = (TASKS / name / "reference.py").read_text() if (TASKS / name / "reference.py").exists() else ""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    keywords = [keyword for call in calls for keyword in call.keywords if keyword.arg in ("rtol", "atol")]
    numbers = {
        str(ast.get_source_segment(text, node))
        for keyword in keywords
        for node in ast.walk(keyword.value)
        if isinstance(node, ast.Constant) and node.value
    }
    description = load_folder(TASKS / name).description
    assert [number for number in numbers if number not in description] == []


def test_offered_types_are_registered() -> None:
    """No task offers a GPU type that the registry does not know."""
    registry = Registry.load()
    for name in NAMES:
        for gpu in load_folder(TASKS / name).gpus:
            assert registry.get(gpu).name == gpu


def test_inputs_depend_on_the_seed_alone(bench: Bench) -> None:
    """The same case gives the same bytes, another seed gives others."""

    def raw(case: dict[str, Any]) -> list[bytes]:
        return [tensor.flatten().view(torch.uint8).numpy().tobytes() for tensor in leaves(bench.generate(case))]

    (hidden,) = hidden_cases(bench.folder)
    for case in (cpu_cases(bench.folder)[0], hidden):
        assert raw(case) == raw(case)
        assert raw(case) != raw(reseeded(case))
    assert raw(hidden) != raw({**hidden, "edge": 0})


def test_the_reference_agrees_with_float64(bench: Bench) -> None:
    """The exact result, rounded once to the output's type, passes."""
    for case in (*cpu_cases(bench.folder), *hidden_cases(bench.folder)):
        data = bench.generate(case)
        assert bench.check(data, oracle_of(bench.folder.name).answer(data)) == (True, "")


#: Tasks with one answer -> the smallest sizes that their descriptions allow.
SMALLEST: Mapping[str, Mapping[str, object]] = {
    "amd_fp8_mm": {"m": 32, "n": 64, "k": 128},
    "amd_identity": {"size": 1},
    "amd_mla_decode": {"batchsize": 1, "dim": 64, "dq": 32, "prefill": 1, "nheads": 1, "maxlen": 2},
    "amd_moe": {
        "dhidden": 64, "dexpert": 32, "nroutedexperts": 1, "nsharedexperts": 1, "nexpertspertoken": 1, "bs": 1,
        "seqlen": 1,
    },
    "causal_conv1d": {"B": 1, "D": 1, "S": 1, "W": 1},
    "conv2d": {"size": 2, "kernelsize": 2, "channels": 2, "batch": 1},
    "cross_entropy": {"vocab_size": 8, "batch_size": 1},
    "fp8_quant": {"num_tokens": 1, "hidden_dim": 1, "group_size": 1},
    "gated_deltanet_chunk_fwd_h": {"B": 1, "T": 64, "H": 1, "K": 32, "V": 32},
    "gated_deltanet_chunk_fwd_o": {"B": 1, "T": 64, "H": 1, "K": 32, "V": 32},
    "gated_deltanet_recompute_w_u": {"B": 1, "T": 64, "H": 1, "K": 32, "V": 32},
    "grayscale": {"size": 1},
    "histogram": {"size": 16, "contention": 0},
    "identity": {"size": 1},
    "matmul": {"m": 16, "n": 16, "k": 16},
    "mixed_mla": {"batchsize": 1, "qseqlen": 1, "kvseqlen": 1},
    "moe_mxfp4": {
        "dhidden": 256, "dexpert": 256, "nroutedexperts": 1, "nexpertspertoken": 1, "nsharedexperts": 1, "bs": 1,
    },
    "mxfp4_mm": {"m": 1, "n": 64, "k": 64},
    "nvfp4_dual_gemm": {"m": 128, "n": 128, "k": 256, "l": 1},
    "nvfp4_gemm": {"m": 128, "n": 128, "k": 256, "l": 1},
    "nvfp4_gemv": {"m": 128, "k": 64, "l": 1},
    "nvfp4_group_gemm": {"m": [1], "n": [128], "k": [128], "g": 1},
    "prefixsum": {"size": 1},
    "sort": {"size": 1},
    "trimul": {"seqlen": 1, "bs": 1, "dim": 1, "hiddendim": 1, "nomask": True, "distribution": "normal"},
    "vectoradd": {"size": 1},
    "vectorsum": {"size": 1},
}  # fmt: skip


def test_the_smallest_sizes_are_cases_too(bench: Bench) -> None:
    """An author may write them into task.yml, and their answers pass; so does a reference without one answer."""
    name = bench.folder.name
    for edge in ({}, {"edge": 1}):
        case = {**SMALLEST.get(name, {"batch": 1, "n": 1, "cond": 1}), **edge, "seed": 4711}
        data, oracle = bench.generate(case), oracle_of(name)
        right = oracle.answer(data) if oracle.unique else bench.candidate("reference")(bench.generate(case))
        assert bench.check(data, right) == (True, ""), case


def test_right_solutions_and_the_template_pass(bench: Bench) -> None:
    """Every file in solutions/correct, and the plain template, on every case, and on other data of the same shape.

    Secret runs draw their seeds, and hidden cases are the most difficult ones.
    """
    sources = {path.name: path.read_text() for path in solutions(bench.folder.name, "correct")}
    for name, source in {**sources, "the template": bench.folder.templates["Python"]}.items():
        kernel = bench.kernel(source)
        seeds = ((cpu_cases(bench.folder), 2), (hidden_cases(bench.folder), 10))
        for case in (reseeded(case, number) for cases, count in seeds for case in cases for number in range(count)):
            output = kernel(bench.generate(case))
            assert bench.check(bench.generate(case), output) == (True, ""), f"{name} on {case}"


def test_wrong_solutions_fail(bench: Bench) -> None:
    """Every file in solutions/wrong, on every case of the CPU type, with a message that locates the difference.

    The kernel has been called with other data of the same shape before: one that answers from memory is wrong, too.
    """
    for path in solutions(bench.folder.name, "wrong"):
        kernel = bench.kernel(path.read_text())
        for case in cpu_cases(bench.folder):
            kernel(bench.generate(reseeded(case)))
            good, message = bench.check(bench.generate(case), kernel(bench.generate(case)))
            assert not good, f"{path.name} on {case}"
            assert PLACE.search(message), message


def test_one_wrong_element_fails(bench: Bench) -> None:
    """A single element off by more than the tolerance is found, wherever it lies, and so is one left unwritten."""
    data = bench.generate(cpu_cases(bench.folder)[0])
    oracle = oracle_of(bench.folder.name)
    answer = oracle.answer(data)
    for index, right in enumerate(leaves(answer)):
        for place in (0, right.numel() // 2, right.numel() - 1):
            for factor in (oracle.off, float("nan"), float("inf")) if right.is_floating_point() else (1,):
                output = deepcopy(answer)
                flat = leaves(output)[index].contiguous()
                flat.view(-1)[place] += (1 + flat.view(-1)[place].abs()) * factor
                leaves(output)[index].copy_(flat)
                good, message = bench.check(data, output)
                assert not good
                assert PLACE.search(message), message
                assert (f"1 of {right.numel()} elements differ" in message) == oracle.unique


def test_another_kind_of_output_fails(bench: Bench) -> None:
    """Shape, dtype and type are part of the answer."""
    data = bench.generate(cpu_cases(bench.folder)[0])
    oracle = oracle_of(bench.folder.name)
    right = oracle.answer(data)
    if not isinstance(right, torch.Tensor):
        assert bench.check(data, right[:-1])[1].startswith(f"found list, expected {len(right)} tensors")
        assert not bench.check(data, [tensor.double() for tensor in right])[0]
        assert bench.check(data, None)[1].startswith(f"found NoneType, expected {len(right)} tensors")
        return
    assert "shape: found (" in bench.check(data, right[:-1])[1]
    assert f"dtype: found torch.float64, expected {oracle.dtype}" in bench.check(data, right.double())[1]
    assert bench.check(data, None)[1].endswith("found NoneType, expected a tensor")


@pytest.mark.parametrize("name", ALL)
def test_templates_and_solutions_may_be_submitted(name: str) -> None:
    """Each parses, defines custom_kernel, and passes KernelBot's filter, which refuses one word anywhere."""
    files = [path.read_text() for path in sorted((TASKS / name / "solutions").glob("*/*.py"))]
    for text in (*load_folder(TASKS / name).templates.values(), *files):
        functions = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        assert "custom_kernel" in functions
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
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        report = file.read().decode()
    assert done.returncode == 0
    assert {"check: pass", "test-count: 3", "benchmark.1.mean: 1.0"} <= set(report.splitlines())


def test_kernelbot_would_load_the_task_files() -> None:
    """Only keys and types that KernelBot's loader takes: our own words stay in runner.yml."""
    top = {
        "files", "lang", "description", "config", "tests", "benchmarks", "test_timeout", "benchmark_timeout",
        "ranked_timeout", "ranking_by", "seed", "multi_gpu", "libraries", "templates", "gpus",
    }  # fmt: skip

    def integers(value: object) -> bool:
        # The grouped grammar; the others have integers, and some a word.
        return isinstance(value, list) and all(isinstance(item, int) for item in value)

    for name in ALL:
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
            assert all(isinstance(value, int | str) or integers(value) for value in case.values())
            # KernelBot's usual grammar has letters alone in keys; some of its problems have underscores, too.
            assert all(key.replace("_", "").isalpha() for key in case)
