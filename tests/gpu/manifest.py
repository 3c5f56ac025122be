"""Writes `manifest.json`: what the tests of this folder need of tasks and GPU types, for machines with torch alone.

    python -m tests.gpu.manifest

Whoever changes a task's cases, files or work, or a device's figures, runs it again; a unit test says so. Needs the
project's own dependencies; nothing else in this folder does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from runner.base.gpu_types import GpuType, Registry, Vendor
from runner.evaluation.speed_of_light import speed_of_light
from runner.task_format import load_folder, work
from runner.task_format.model import Case, Task
from tasks.harness.judge.cases import spec_line

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = Path(__file__).parent / "manifest.json"


def build() -> dict[str, Any]:
    """The manifest as it should be now."""
    # A second name for a device says nothing new about it.
    devices = [entry for entry in Registry.load().all() if entry.vendor is not Vendor.NONE]
    types = [entry for entry in devices if entry.detect or entry.count > 1]
    folders = sorted(path.parent for path in (ROOT / "tasks" / "problems").glob("*/task.yml"))
    return {
        "variants": [variant for entry in types for variant, _ in _variants(entry)],
        "tasks": {folder.name: _task(folder, types) for folder in folders},
    }


def text() -> str:
    """The file's contents: a line per task, so that a change is seen where it is."""
    made = build()
    lists = {
        key: ",\n".join(f"  {json.dumps(item)}" for item in items)
        for key, items in (
            ("variants", made["variants"]),
            ("tasks", [{"name": name, **task} for name, task in made["tasks"].items()]),
        )
    }
    return "{\n" + ",\n".join(f'"{key}": [\n{lines}\n]' for key, lines in lists.items()) + "\n}\n"


def _variants(entry: GpuType) -> Iterator[tuple[Mapping[str, Any], GpuType]]:
    """The devices of a type that have figures of their own, each as a type that has no others; the type itself last."""
    for number, product in enumerate(entry.products):
        alone = replace(entry, device=product.device, products=())
        yield _variant(f"{entry.name}/{number}", entry, product.device_names), alone
    yield _variant(entry.name, entry, entry.device_names), entry


def _variant(name: str, entry: GpuType, device_names: Sequence[str]) -> Mapping[str, Any]:
    return {"variant": name, "type": entry.name, "device_names": list(device_names), "count": entry.count}


def _task(folder: Path, types: Sequence[GpuType]) -> dict[str, Any]:
    loaded = load_folder(folder)
    task = loaded.task
    document = yaml.safe_load((folder / "task.yml").read_text(encoding="utf-8"))
    sources = {entry["name"]: entry["source"] for entry in document["files"]}
    small = task.cases_for("CPU")
    return {
        "files": {name: _path(folder, sources[name]) for name in task.judge_files},
        "worker_files": list(task.worker_files),
        "submission_name": task.submission_name,
        "seed": task.seed,
        "timeouts_s": {
            "test": task.test_timeout_s,
            "benchmark": task.benchmark_timeout_s,
            "leaderboard": task.ranked_timeout_s,
        },
        "gpus": list(loaded.gpus),
        "templates": {language: _path(folder, source) for language, source in document.get("templates", {}).items()},
        "ranks": _ranks(task, task.benchmarks),
        "small_ranks": _ranks(task, small.benchmarks or ()),
        "tests": _lines(task.tests),
        "benchmarks": _lines(task.benchmarks),
        "small_tests": _lines(small.tests or ()),
        "small_benchmarks": _lines(small.benchmarks or ()),
        "bytes": [None if task.extra.bytes is None else work(task.extra.bytes, case) for case in task.benchmarks],
        "lights": {
            variant["variant"]: found
            for entry in types
            for variant, alone in _variants(entry)
            if any(found := _lights(task, alone))
        },
    }


def _lights(task: Task, entry: GpuType) -> list[list[object] | None]:
    """Nanoseconds and limit of each benchmark."""
    lights = [speed_of_light(task, case, entry) for case in task.benchmarks]
    return [None if light.sol_ns is None else [float(f"{light.sol_ns:.6g}"), light.limit] for light in lights]


def _ranks(task: Task, cases: Sequence[Case]) -> int | None:
    return int(str(cases[0]["world_size"])) if task.multi_gpu and cases else None


def _lines(cases: Sequence[Case]) -> list[str]:
    return [spec_line(case) for case in cases]


def _path(folder: Path, source: str) -> str:
    return (folder / source).resolve().relative_to(ROOT).as_posix()


if __name__ == "__main__":
    MANIFEST.write_text(text(), encoding="utf-8")
