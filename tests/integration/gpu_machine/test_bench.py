"""The tests for machines with a GPU would run there: what they know is current, what they import is there."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu import manifest
from tests.gpu.bench import MANIFEST, ROOT, Machine
from tests.integration.gpu_machine.test_layers import emulated

H100 = Machine(device="cuda", name="NVIDIA H100 80GB HBM3", count=1, memory_bytes=40 << 30)
#: What the tests of a device need of other tests.
PROBLEMS = "tests.acceptance.modules.problems"
#: What starts their workers. It needs no more than they do.
FORK_SERVER = "runner.extras.boards.fork_server"
#: `manifest.py` runs where the project is installed.
ON_THE_DEVICE = [
    *(path for path in sorted((ROOT / "tests" / "gpu").glob("*.py")) if path.name != "manifest.py"),
    *(ROOT / f"{name.replace('.', '/')}.py" for name in (PROBLEMS, FORK_SERVER)),
]
#: What containers have of trainers.
INSIDE = "runner.extras.trainers.inside."


def test_the_manifest_is_what_tasks_and_gpu_types_say() -> None:
    """It is a copy, and this is what keeps it one."""
    assert MANIFEST.read_text(encoding="utf-8") == manifest.text(), "run: python -m tests.gpu.manifest"


@pytest.mark.parametrize("path", ON_THE_DEVICE, ids=lambda path: path.name)
def test_a_bare_machine_has_what_they_import(path: Path) -> None:
    """The standard library, torch, pytest, the harness and what it speaks; of the runner what containers have."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    ours = {name for name in names if name.partition(".")[0] in ("tasks", "sandbox", "runner", "tests")}
    assert {name.partition(".")[0] for name in names - ours} <= sys.stdlib_module_names | {"torch", "pytest"}
    allowed = ("tasks", "tests.gpu", "tests.support", "sandbox.protocol", "sandbox.inside.", INSIDE)
    assert all(name.startswith((*allowed, PROBLEMS, FORK_SERVER)) for name in ours), ours


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


def test_they_run_on_a_device(tmp_path: Path) -> None:
    """One that is emulated: a right solution, a wrong one, and a task's times, which are kept and not made again."""
    record = tmp_path / "record.jsonl"
    chosen = "not amd and (identity-correct-copy or identity-wrong-zeros or (test_speed and identity))"

    def run() -> subprocess.CompletedProcess[str]:
        return emulated(
            ["pytest", "-q", "-p", "no:cacheprovider", "tests/gpu", "-k", chosen],
            KERNEL_RUNNER_GPU_SMALL="1",
            KERNEL_RUNNER_GPU_RECORD=str(record),
        )

    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
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
