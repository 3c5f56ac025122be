"""`batch run`: from files to results, a table by level and KernelBench's folder; stopped and started again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.cli.conftest import Call
from tests.integration.daemon.conftest import make_rig, rig, served
from tests.integration.daemon.rig import Rig
from tests.support.waiting import wait_until

__all__ = ["make_rig", "rig", "served"]

RIGHT = "class ModelNew: pass\n"
WRONG = '# found: {"verdict": "wrong_answer", "correct": false, "message": "off"}\nclass ModelNew: pass\n'
SLOW = '# found: {"speedup": 0.7, "speedup_low": 0.6, "speedup_high": 0.8}\nclass ModelNew: pass\n'


@pytest.fixture
def run(served: Rig, cli: Call, tmp_path: Path) -> Call:
    """Evaluates the samples of a source on the CPU type, into one file."""
    out = tmp_path / "results.jsonl"
    return lambda source, *more: cli("batch", "run", source, "--gpu", "CPU", "--out", out, *more)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of KernelBench with two levels and one run."""
    root = tmp_path / "KernelBench"
    for level, problem in ((1, 1), (1, 2), (2, 7)):
        folder = root / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{problem}_Some_name.py").write_text(f"class Model: pass  # {level} {problem}\n")
    run = root / "runs" / "mine"
    run.mkdir(parents=True)
    for level, problem, sample, text in ((1, 1, 0, RIGHT), (1, 1, 1, WRONG), (1, 2, 0, SLOW), (2, 7, 0, RIGHT)):
        (run / f"level_{level}_problem_{problem}_sample_{sample}_kernel.py").write_text(text)
    return root


def test_a_checkout_of_kernelbench(served: Rig, run: Call, cli: Call, checkout: Path, tmp_path: Path) -> None:
    """The table by level, the lines, KernelBench's folder; a second call evaluates nothing."""
    out = tmp_path / "results.jsonl"
    said = run(checkout, "--json", "--kernelbench", tmp_path / "kb")
    assert said.code == 0, said.err
    levels = {line["level"]: line for line in said.document["levels"]}
    assert set(levels) == {"1", "2", "all"}
    assert (levels["1"]["samples"], levels["1"]["correct"], levels["1"]["fast_1"]) == (3, 2 / 3, 1 / 3)
    assert (levels["1"]["fast_0.5"], levels["1"]["fast_0.8"], levels["1"]["fast_2"]) == (2 / 3, 1 / 3, 0.0)
    assert levels["1"]["reward"] == pytest.approx(2.7 / 3)
    assert levels["all"]["reward"] == pytest.approx(4.7 / 4)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["name"] for line in lines} == {path.name for path in (checkout / "runs" / "mine").iterdir()}
    found = json.loads((tmp_path / "kb" / "level1" / "eval_results.json").read_text())
    assert [sample["correctness"] for sample in found["1"]] == [True, False]
    assert (found["1"][0]["runtime"], found["1"][0]["ref_runtime"], found["1"][1]["runtime"]) == (0.001, 0.002, -1.0)
    assert (tmp_path / "kb" / "level2" / "level_2_problem_7_sample_0_kernel.py").read_text() == RIGHT
    seen = len(served.evaluator.seen)
    assert run(checkout, "--json").document == said.document
    assert len(served.evaluator.seen) == seen
    assert len(out.read_text().splitlines()) == 4
    # A line that an earlier process did not finish is written again, from the database.
    out.write_text(out.read_text()[:-20])
    assert run(checkout, "--json").document == said.document
    assert len(served.evaluator.seen) == seen
    shown = cli("batch", "rewards", out, "--reward", "correct@1")
    assert "correct@1" in shown.out
    assert "75.0%" in shown.out


def test_an_interrupt_says_how_to_go_on(database_url: str, checkout: Path, tmp_path: Path) -> None:
    """One line, and the exit code of an interrupt."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO runner.gpu_type (name, vendor, aliases, description) VALUES ('CPU', 'none', '{}', '')"
        )
        arguments = ("batch", "run", str(checkout), "--gpu", "CPU", "--out", str(tmp_path / "results.jsonl"))
        process = subprocess.Popen(
            [sys.executable, "-m", "runner.cli", *arguments],
            env={**os.environ, "DATABASE_URL": database_url},
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            wait_until(lambda: connection.execute("SELECT FROM runner.item").fetchone() is not None, "it is sent")
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            said = process.stderr.read()
    assert process.returncode == 130
    assert "interrupted: what was sent goes on; the same command goes on where it was\n" in said


def test_json_lines_of_kernelbook_and_bad_ones(served: Rig, run: Call, tmp_path: Path) -> None:
    """Bad lines are named, and the others evaluated; other settings are another evaluation."""
    source = tmp_path / "rows.jsonl"
    rows: list[dict[str, Any]] = [
        {"entry_point": "Net", "python_code": "class Net: pass", "triton_code": "class NetNew: pass", "uuid": 7},
        {"reference": "class Model: pass", "candidate": SLOW, "key": "mine"},
        {"reference": "class Model: pass"},
        {"reference": "class Model: pass", "candidate": "a\0b"},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{torn\n")
    out = tmp_path / "results.jsonl"
    said = run(source, "--json")
    assert said.code == 1
    assert "line 3 is left out" in said.err
    assert "line 5 is left out" in said.err
    (line,) = said.document["levels"]
    assert (line["samples"], line["without_result"], line["correct"]) == (3, 0, 2 / 3)
    assert {json.loads(text)["name"] for text in out.read_text().splitlines()} == {"7", "line 2", "line 4"}
    seen = len(served.evaluator.seen)
    rows = [row for row in rows if "key" not in row]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows[:1]))
    assert run(source, "--setting", "inputs=3").code == 0
    assert len(served.evaluator.seen) == seen + 1
    settings = ("--setting", "baseline=compile", "--setting", "perturb=false", "--setting", "timeout_s=5")
    assert run(source, *settings).code == 0
    with psycopg.connect(served.url) as connection:
        row = connection.execute("SELECT settings FROM runner.job_group ORDER BY job_id DESC LIMIT 1").fetchone()
    assert row == ({"baseline": "compile", "perturb": False, "timeout_s": 5},)


def test_a_folder_of_problems(served: Rig, run: Call, tmp_path: Path) -> None:
    """reference.py with candidates beside it."""
    folder = tmp_path / "problems" / "add"
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text("class Model: pass")
    (folder / "good.py").write_text(RIGHT)
    shutil.copy(folder / "good.py", folder / "copy.py")
    assert run(folder.parent, "--json").document["levels"][0]["samples"] == 2
    assert len(served.evaluator.seen) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "{folder}/in", "--gpu", "CPU", "--out", "{folder}"], "is a directory"),
        (["run", "{folder}/in", "--gpu", "CPU", "--out", "{folder}/in/x"], "in/x cannot be written: File exists"),
        (["run", "{folder}/in", "--gpu", "CPU", "--out", "{folder}/o", "--kernelbench", "{folder}/in"], "is a file"),
        (["run", "{folder}/in", "--gpu", "CPU", "--out", "{folder}/o", "--outstanding", "0"], "--outstanding"),
        (["run", "{folder}/in", "--gpu", "CPU", "--out", "{folder}/o", "--priority", "1001"], "--priority"),
        (["rewards", "{folder}/latin"], "latin: it is no file of results: 'utf-8' codec"),
        (["rewards", "{folder}/null"], "null: it is no file of results: the facts of 'a' are no object"),
        (["kernelgym", "--gpu", "CPU", "--listen", ":10907"], "--listen is ':10907', expected HOST:PORT"),
        (["kernelgym", "--gpu", "CPU", "--listen", "127.0.0.1:²"], "expected HOST:PORT"),
        (["kernelgym", "--gpu", "CPU", "--listen", "off"], "--listen is 'off', expected HOST:PORT"),
    ],
)
def test_bad_files_numbers_and_addresses(call: Call, tmp_path: Path, arguments: list[str], says: str) -> None:
    """One line, before anything is evaluated."""
    (tmp_path / "in").write_text('{"reference": "class Model: pass", "candidate": "class ModelNew: pass"}\n')
    (tmp_path / "latin").write_bytes(b"\xe9\n")
    (tmp_path / "null").write_text('{"key": "a", "facts": null}\n')
    said = call("batch", *(argument.format(folder=tmp_path) for argument in arguments))
    assert (said.code, said.out, says in said.err) == (2, "", True), said.err
