"""The tests for machines with a GPU would run there: what they know is current, what they import is there."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sandbox.protocol import Judged, StepResult
from tests.gpu import manifest
from tests.gpu.bench import MANIFEST, ROOT, Machine, Timed, Trial, lacking, table, tasks, too_large, trials, verdict_of
from tests.support.waiting import PATIENCE_S

H100 = Machine(device="cuda", name="NVIDIA H100 80GB HBM3", count=1, memory_bytes=40 << 30)
#: What the tests of a device need of other tests.
PROBLEMS = "tests.acceptance.modules.problems"
#: `manifest.py` runs where the project is installed.
ON_THE_DEVICE = [
    *(path for path in sorted((ROOT / "tests" / "gpu").glob("*.py")) if path.name != "manifest.py"),
    ROOT / f"{PROBLEMS.replace('.', '/')}.py",
]
SITE = ROOT / "tasks" / "harness" / "site"


def trial(task: str, kind: str) -> Trial:
    """The first of a task's files of a kind."""
    return next(each for each in trials() if (each.task.name, each.kind) == (task, kind))


def test_the_manifest_is_what_tasks_and_gpu_types_say() -> None:
    """It is a copy, and this is what keeps it one."""
    assert MANIFEST.read_text(encoding="utf-8") == manifest.text(), "run: python -m tests.gpu.manifest"


@pytest.mark.parametrize("path", ON_THE_DEVICE, ids=lambda path: path.name)
def test_a_bare_machine_has_what_they_import(path: Path) -> None:
    """The standard library, torch, pytest, the harness and what it speaks; not the runner and what that needs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    ours = {name for name in names if name.partition(".")[0] in ("tasks", "sandbox", "runner", "tests")}
    assert {name.partition(".")[0] for name in names - ours} <= sys.stdlib_module_names | {"torch", "pytest"}
    assert all(name.startswith(("tasks.", "tests.gpu", "sandbox.protocol", PROBLEMS)) for name in ours), ours


@pytest.mark.parametrize(
    ("name", "ranks", "variant"),
    [
        ("NVIDIA H100 80GB HBM3", None, "H100"),
        ("NVIDIA H100 PCIe", None, "H100/0"),
        ("NVIDIA B200", None, "B200"),
        ("AMD Instinct MI300X", None, "MI300"),
        ("AMD Instinct MI300X", 8, "MI300x8"),
        ("NVIDIA GeForce RTX 5090", None, None),
    ],
)
def test_a_device_is_told_by_its_name(name: str, ranks: int | None, variant: str | None) -> None:
    """As the registry would, products of a type before the type."""
    assert replace(H100, name=name).variant(ranks) == variant


def test_every_task_has_a_speed_of_light_on_what_it_is_offered_on() -> None:
    """A line per benchmark, for every type that is listed by its own name."""
    for task in tasks():
        offered = set(task.gpus) & set(task.lights)
        assert offered, task.name
        for gpu in offered:
            assert len(task.lights[gpu]) == len(task.benchmarks)
            assert all(light is not None and light[0] > 0 for light in task.lights[gpu]), (task.name, gpu)


def test_what_cannot_be_tried_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices that are not there, another vendor's language, a compiler that is missing."""
    assert lacking(trial("amd_gemm_rs", "correct"), H100) == "needs 2 devices, there are 1"
    assert lacking(trial("vectoradd", "correct"), H100) is None
    monkeypatch.setattr(torch.version, "cuda", None)
    assert lacking(trial("vectoradd", "CUDA"), H100) == "needs torch for CUDA"
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    monkeypatch.setenv("PATH", "/nowhere")
    assert lacking(trial("vectoradd", "CUDA"), H100) == "needs nvcc, which is not on PATH"
    assert lacking(trial("amd_moe", "HIP"), H100) == "needs torch for ROCm"


def test_what_does_not_fit_says_why() -> None:
    """Eight ranks on one device, and more bytes than there is room for."""
    by_name = {task.name: task for task in tasks()}
    assert too_large(by_name["amd_all2all"], H100) == "needs 8 devices, there are 1"
    assert too_large(by_name["vectoradd"], H100) is None
    small = replace(H100, memory_bytes=1 << 30)
    assert (too_large(by_name["vectoradd"], small) or "").startswith("moves 1.5 GiB, its tensors may take 1.0 GiB")


def test_the_table_has_times_and_parts_of_the_speed_of_light() -> None:
    """Cases without figures have times only; what was refused has none."""
    line = Timed(task="t", spec="n: 1", light=(2e3, "memory"), reference_ns=4e3, best="fast.py", best_ns=2.5e3)
    dark = replace(line, light=None, reference_ns=None, best_ns=5e6)
    assert [row.split() for row in table([line, dark])[1:]] == [
        ["t", "n:", "1", "memory", "2.00", "µs", "4.00", "µs", "50.0%", "fast.py", "2.50", "µs", "80.0%"],
        ["t", "n:", "1", "-", "-", "-", "fast.py", "5.000", "ms"],
    ]


def test_the_first_step_that_is_not_accepted_is_the_verdict() -> None:
    """With its sentence; no step at all is no acceptance."""

    def step(name: str, verdict: str) -> StepResult:
        judged = Judged(verdict=verdict, message="why", assurance={}, details={})
        return StepResult(name=name, command="", start_ns=0, duration_ns=0, exit_code=0, stderr="trace", judged=judged)

    assert verdict_of([step("test", "accepted"), step("benchmark", "accepted")]).verdict == "accepted"
    refused = verdict_of([step("test", "accepted"), step("benchmark", "wrong_answer")])
    assert (refused.verdict, refused.message) == ("wrong_answer", "why\ntrace")
    assert verdict_of([]).verdict == "none"


def test_they_run_on_a_device(tmp_path: Path) -> None:
    """One that is emulated: a right solution, a wrong one, and a task's times, which are kept and not made again."""
    record = tmp_path / "record.jsonl"
    chosen = "not amd and (identity-correct-copy or identity-wrong-zeros or (test_speed and identity))"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu", "-k", chosen],
            cwd=ROOT,
            env={
                **os.environ,
                "KR_EMULATE_CUDA": str(1 << 30),
                "PYTHONPATH": str(SITE),
                "KERNEL_RUNNER_GPU_SMALL": "1",
                "KERNEL_RUNNER_GPU_RECORD": str(record),
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert "1 x CUDA, emulated on the CPU" in done.stdout
    assert "identity  size: " in done.stdout
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    assert [line["outcome"] for line in lines] == ["begun", "passed"] * 3
    kept = {line["test"]: line["evaluations"] for line in lines if line["outcome"] == "passed"}
    (timed,) = (rows for test, rows in kept.items() if "test_speed" in test)
    assert {row["verdict"] for row in timed} == {"accepted"}
    samples = [sample for row in timed for case in row["cases"] for sample in case["samples"]]
    assert all(claim > 0 and span > 0 and exclusive == 1 for claim, span, exclusive in samples)
    # 5: pytest has found no test.
    assert run().returncode == 5
    assert len(record.read_text(encoding="utf-8").splitlines()) == len(lines)
