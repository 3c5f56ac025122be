"""SIGKILL in the middle of every step, then a rerun: the result is that of an undisturbed run, byte for byte.

`tests/integration/daemon/test_kernelbook.py` does the same to the step that the queue answers, and `test_hub.py` to an
upload to the hub.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.tokenizer import words
from tests.integration.kernelbook.service import ROOT, Service, environment, modules, rows


def played(
    service: Service, folder: Path, *arguments: str, points: int = 3, **variables: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The undisturbed run, and the killed ones."""
    place = folder / "runs"
    place.mkdir()
    call = [sys.executable, "-m", "tests.integration.kernelbook.killing", str(place), str(points), str(service.log)]
    done = subprocess.run(
        [*call, *arguments],
        env=environment(service, BATCH_SIZE="8", **variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole, *killed = map(json.loads, done.stdout.splitlines())
    assert whole["status"] == 0, (place / "whole" / "said.txt").read_text()
    return whole, killed


def check(whole: dict[str, Any], killed: list[dict[str, Any]]) -> None:
    """Every run was killed, the next one made the same files, and asked nothing that was answered."""
    assert whole["files"]
    assert len(killed) > 2
    for run in killed:
        assert run["killed"], run
        assert run["status"] == 0, run
        assert run["files"] == whole["files"], run
        assert run["again"] == [], run


@pytest.mark.parametrize("step", ["filter", "prompts", "synthesize"])
def test_a_step_that_asks(service: Service, tmp_path: Path, step: str) -> None:
    """What the journal had is not asked again."""
    file = modules(tmp_path, 60) if step == "prompts" else rows(tmp_path, ["ok"] * 60)
    if step == "synthesize":
        file.write_text("".join(json.dumps({"prompt": f"Add {n}.", "module_name": "Net"}) + "\n" for n in range(60)))
    whole, killed = played(service, tmp_path, step, "--input", str(file))
    check(whole, killed)
    # Some were killed while answers came, not only before and after.
    assert any(0 < run["kept"] < 60 for run in killed)


def test_best(service: Service, tmp_path: Path) -> None:
    """There is no journal: it begins anew."""
    check(*played(service, tmp_path, "best", "--input", str(rows(tmp_path, ["ok"] * 60))))


def test_lengths(service: Service, tmp_path: Path) -> None:
    """The histogram is whole."""
    file, tokenizer = rows(tmp_path, ["ok"] * 60), words(tmp_path)
    whole, killed = played(
        service,
        tmp_path,
        "lengths",
        "--input",
        str(file),
        "--tokenizer",
        str(tokenizer),
        "--plot",
        "lengths.png",
        points=2,
    )
    check(whole, killed)
    assert list(whole["files"]) == ["lengths.png"]


def test_upload_to_a_folder(service: Service, tmp_path: Path) -> None:
    """All three sets, and nothing beside them."""
    file = str(rows(tmp_path, ["ok"] * 60))
    whole, killed = played(
        *(service, tmp_path, "upload", "all", "--to", "sets"),
        FILTERED_DATASET_PATH=file,
        UNIQUE_DATASET_PATH=file,
        SYNTHETIC_DATASET_PATH=file,
    )
    check(whole, killed)
    assert len([name for name in whole["files"] if name.endswith(".parquet")]) == 5
    assert {name.split("/")[0] for name in whole["files"]} == {"sets"}


def test_the_whole_pipeline(service: Service, tmp_path: Path) -> None:
    """All steps from a file."""
    file, book, tokenizer = rows(tmp_path, ["ok"] * 40), modules(tmp_path, 20), words(tmp_path)
    plan = tmp_path / "pipeline.toml"
    plan.write_text(f"evaluations = '{file}'\nmodules = '{book}'\ntokenizer = '{tokenizer}'\nto = 'sets'\n")
    check(*played(service, tmp_path, "all", str(plan), points=3))
