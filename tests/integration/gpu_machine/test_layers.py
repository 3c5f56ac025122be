"""The tests for machines with a GPU: what they know and import, their layers, and what a record says."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import manifest, recording
from tests.gpu.bench import MANIFEST, ROOT, Machine
from tests.gpu.layers import BEGUN, FAILED, LAYERS, PASSED, STATEMENTS, failed_layers, summary
from tests.support.waiting import PATIENCE_S

FOLDER = ROOT / "tests" / "gpu"
SITE = ROOT / "tasks" / "harness" / "site"
FACTS = {"date": "2026-12-01", "device": "NVIDIA H200", "driver": "580.95.05", "software": 'CUDA 13.0, torch 2.13 "x"'}


def line(test: str, outcome: str, layer: str = "clock", *timings: tuple[str, bool], gate: str = "open") -> Any:  # noqa: ANN401 JSON
    """The line of a test, with cases of these timings, contradicted or not."""
    cases = [{"timing": timing, "contradicted": contradicted} for timing, contradicted in timings]
    evaluations = [{"gate": gate, "cases": cases}] if cases else []
    return {"test": f"tests/gpu/{test}", "layer": layer, "outcome": outcome, "evaluations": evaluations}


def functions() -> set[str]:
    """Every test of the folder, as a record names it, without parameters."""
    found = set()
    for path in FOLDER.glob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        found |= {f"{path.name}::{name}" for name in names if name.startswith("test_")}
    return found


def test_every_test_is_in_a_layer_and_shows_something() -> None:
    """A layer fits into ten minutes, and rests on earlier ones."""
    named = {argument for layer in LAYERS for argument in layer.select if argument.endswith(".py")}
    assert named == {f"tests/gpu/{path.name}" for path in FOLDER.glob("test_*.py")}
    for number, layer in enumerate(LAYERS):
        assert set(layer.needs) <= {earlier.name for earlier in LAYERS[:number]}
        assert layer.limit_s < 570
    for test in functions():
        assert any(test.startswith(prefix) for _, prefix in STATEMENTS), test
    for sentence, prefix in STATEMENTS:
        assert any(test.startswith(prefix) for test in functions()), sentence


def test_a_summary_says_what_was_shown_refuted_and_not_tried() -> None:
    """The last outcome of a test counts, and what had not ended is no proof."""
    record = [
        FACTS,
        line("test_formats.py::test_a[1]", PASSED, "formats"),
        line("test_formats.py::test_a[2]", FAILED, "formats"),
        line("test_formats.py::test_a[2]", PASSED, "formats"),
        line("test_harness.py::test_b[x]", FAILED, "harness"),
        line("test_harness.py::test_c", PASSED, "harness"),
        line("test_modules.py::test_d", BEGUN, "tasks"),
    ]
    record[-2]["figures"] = [{"what": "x", "value_s": 8.3, "at_most_s": 10.0}]
    record[-1]["figures"] = [{"what": "y", "value_s": 12.0, "at_most_s": 10.0}]
    said = summary(record, {"speed": "the time was over"})
    assert "x: 8.3 s, the target of 10 s is reached" in said
    assert "y: 12 s, the target of 10 s is missed" in said
    assert said[0] == "speed was not finished: the time was over"
    assert said[1] == "harness failed: judge and worker do not work together on this device"
    assert "shown: number formats have the bytes that they have on a CPU (2 passed)" in said
    assert "refuted: right submissions are accepted, wrong ones are not (1 of 2: test_b[x])" in said
    assert "not tried: groups of modules are timed, beside every baseline" in said
    assert failed_layers(record) == {"harness"}


HONEST = [line(f"test_audit.py::test_honest[{number}]", PASSED, "clock", ("audited", False)) for number in range(40)]
FORGED = [
    line(f"test_audit.py::test_a_forged_clock[{number}]", PASSED, "clock", ("measured", True)) for number in range(5)
]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ([*HONEST, *FORGED], "rejects_forged_times = true may be set (40 honest cases, 0 of their tests"),
        ([*HONEST[1:], *FORGED], "leave rejects_forged_times = false (39 honest cases"),
        (
            [*HONEST, line("test_audit.py::test_right[x]", PASSED, "corpus", ("measured", True)), *FORGED],
            "contradicted: tests/gpu/test_audit.py::test_right[x])",
        ),
        (
            [*HONEST, *FORGED, line("test_audit.py::test_a_forged_clock[9]", PASSED, "clock", ("audited", False))],
            "not noticed: tests/gpu/test_audit.py::test_a_forged_clock[9])",
        ),
        ([*HONEST, *FORGED, line("test_audit.py::test_x", FAILED)], "tests of the clock failed)"),
        # Claims that nothing bounds are no evidence, and neither are calls by message.
        ([*FORGED, *[line("test_audit.py::test_h", PASSED, "clock", ("claimed", False))] * 50], "(0 honest cases"),
        (
            [line("test_audit.py::test_h", PASSED, "clock", ("audited", False), gate="no device")] * 50,
            "the gate was closed: no device",
        ),
    ],
    ids=["shown", "too few", "false alarm", "not noticed", "failed", "claimed", "closed"],
)
def test_a_summary_says_whether_forged_times_may_be_rejected(record: list[Mapping[str, Any]], expected: str) -> None:
    """Only if many honest cases gave no alarm, and all forged ones did."""
    said = "\n".join(summary(record, {}))
    assert expected in said
    assert ("may be set" in said) is (record == [*HONEST, *FORGED])


def emulated(arguments: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """A module's run on a device that is emulated."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "KR_EMULATE_CUDA": str(1 << 30),
            "PYTHONPATH": str(SITE),
            "OMP_NUM_THREADS": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_layer_is_run_and_recorded(tmp_path: Path) -> None:
    """The first one, on a device that is emulated, where nothing of it can be tried; behind a line that was cut off."""
    (tmp_path / "record.jsonl").write_text('{"layer": "driver", "te', encoding="utf-8")
    done = emulated(["tests.gpu", str(tmp_path), "--layers", "driver"])
    assert done.returncode == 0, done.stdout + done.stderr
    facts, *tests = recording.read(tmp_path / "record.jsonl")
    assert facts["device"] == "CUDA, emulated on the CPU"
    assert {found["outcome"] for found in tests} == {"skipped"}
    assert {found["test"].partition("::")[2] for found in tests} == {
        "test_streams_wait_for_a_number_in_the_hosts_memory",
        "test_a_context_works_on_when_its_process_becomes_another_user",
    }
    assert "not tried: streams wait for numbers in the host's memory" in done.stdout
    assert "leave rejects_forged_times = false (0 honest cases" in done.stdout


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
