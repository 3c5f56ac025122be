"""SIGKILL in the middle of every step, then a rerun: the result is that of an undisturbed run, byte for byte.

The step that the queue answers has the keys of its items: tests/integration/daemon/test_batches.py kills its client.
`test_hub.py` has an upload to the hub.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.integration.extras.trainers.kernelbook.service import ROOT, Service, environment, modules, rows

Runs: TypeAlias = list[dict[str, Any]]


class Killer:
    """`tests.integration.extras.trainers.kernelbook.killing`, a process for all tests of the module."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def played(
        self, service: Service, folder: Path, *arguments: str, points: int = 3, **variables: str
    ) -> tuple[dict[str, Any], Runs]:
        """The undisturbed run, and the killed ones."""
        place = folder / "runs"
        place.mkdir()
        order = {
            "arguments": arguments,
            "environment": environment(service, BATCH_SIZE="8", **variables),
            "folder": str(place),
            "log": str(service.log),
            "points": points,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        whole, *killed = json.loads(self._process.stdout.readline() or "[{}]")
        assert whole.get("status") == 0, (place / "whole" / "said.txt").read_text()
        return whole, killed


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    """Started once: its imports take longer than most of these tests."""
    call = [sys.executable, "-m", "tests.integration.extras.trainers.kernelbook.killing"]
    with subprocess.Popen(call, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Killer(process)


def check(whole: dict[str, Any], killed: Runs) -> None:
    """Every run was killed, the next one made the same files, and asked nothing that was answered."""
    assert whole["files"]
    assert len(killed) > 2
    for run in killed:
        assert run["killed"], run
        assert run["status"] == 0, run
        assert run["files"] == whole["files"], run
        assert run["again"] == [], run


@pytest.mark.parametrize("step", ["filter", "prompts", "synthesize"])
def test_a_step_that_asks(killer: Killer, service: Service, tmp_path: Path, step: str) -> None:
    """What the journal had is not asked again."""
    file = modules(tmp_path, 60) if step == "prompts" else rows(tmp_path, ["ok"] * 60)
    if step == "synthesize":
        file.write_text("".join(json.dumps({"prompt": f"Add {n}.", "module_name": "Net"}) + "\n" for n in range(60)))
    whole, killed = killer.played(service, tmp_path, step, "--input", str(file))
    check(whole, killed)
    # Some were killed while answers came, not only before and after.
    assert any(0 < run["kept"] < 60 for run in killed)


def test_best(killer: Killer, service: Service, tmp_path: Path) -> None:
    """There is no journal: it begins anew."""
    check(*killer.played(service, tmp_path, "best", "--input", str(rows(tmp_path, ["ok"] * 60))))


def test_upload_to_a_folder(killer: Killer, service: Service, tmp_path: Path) -> None:
    """All three sets, and nothing beside them."""
    file = str(rows(tmp_path, ["ok"] * 60))
    whole, killed = killer.played(
        *(service, tmp_path, "upload", "all", "--to", "sets"),
        FILTERED_DATASET_PATH=file,
        UNIQUE_DATASET_PATH=file,
        SYNTHETIC_DATASET_PATH=file,
    )
    check(whole, killed)
    assert len([name for name in whole["files"] if name.endswith(".parquet")]) == 5
    assert {name.split("/")[0] for name in whole["files"]} == {"sets"}
