"""KernelBench's result folder, in the shape that its own evaluation writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runner.base.errors import DataError
from runner.extras.trainers.client.results_file import ResultsFile, by_level, read_rows, write_kernelbench
from runner.extras.trainers.client.rewards import REWARDS, reward
from runner.extras.trainers.kernelbook.rows import written

STATS = {"mean_ns": 1_234_567.0, "std_ns": 2_000.0, "min_ns": 1_200_000.0, "max_ns": 1_300_000.0, "calls": 20}


def row(sample: int, **facts: Any) -> dict[str, Any]:  # noqa: ANN401 any fact
    """A line of a file of results."""
    found = {"verdict": "accepted", "stage": "done", "compiled": True, "message": "", "device": "H100", **facts}
    return {
        "key": f"k{sample}", "level": "1", "problem": 3, "sample": sample, "host": "node1", "verdict": found["verdict"],
        "facts": found,
    }  # fmt: skip


def test_times_have_kernelbenchs_statistics(tmp_path: Path) -> None:
    """In milliseconds with three digits: mean, deviation, ends, number, and where; no times of a wrong one."""
    rows = [
        row(0, candidate_ns=1.2e6, reference_ns=2.5e6, candidate_stats=STATS, reference_stats={**STATS, "calls": 40}),
        row(1, verdict="wrong_answer", stage="correctness", message="off", candidate_ns=None, reference_ns=None),
        row(2, candidate_ns=1.2e6, reference_ns=2.5e6),
        row(3, verdict="internal_error"),
    ]
    (path,) = write_kernelbench(tmp_path, rows, {"k0": "code"})
    right, wrong, older = json.loads(path.read_text())["3"]
    assert right["runtime_stats"] == {
        "mean": 1.23, "std": 0.002, "min": 1.2, "max": 1.3, "num_trials": 20, "hardware": "H100", "device": "node1",
    }  # fmt: skip
    assert (right["runtime"], right["ref_runtime_stats"]["num_trials"], right["correctness"]) == (1.23, 40, True)
    assert right["metadata"]["hardware"] == "H100"
    assert (wrong["runtime"], wrong["runtime_stats"], wrong["metadata"]["correctness_error"]) == (-1.0, {}, "off")
    assert (older["runtime"], older["runtime_stats"]["median"]) == (1.2, 1.2)
    assert (tmp_path / "level_1_problem_3_sample_0_kernel.py").read_text() == "code"


@pytest.mark.parametrize("name", [*REWARDS, "fast_3@1"])
def test_what_was_not_timed_is_neither_fast_nor_slow(name: str) -> None:
    """As in GEAK #418, ReBenchDB #224: a figure is of samples of which it is known, not only of wrong ones, or null."""
    fast = {"speedup": 4.0, "reference_ns": 4e6, "candidate_ns": 1e6, "sol_ns": 1e5, "baselines": {"compile": {}}}
    untimed, timed, wrong = row(0), row(1, **fast), row(2, verdict="wrong_answer", stage="correctness")
    (line,), (more,), (known,) = (
        by_level(rows, name) for rows in ([untimed, wrong], [untimed, timed, wrong], [timed, wrong])
    )
    needs_time = reward(name, untimed["facts"]) is None
    assert (line["reward"] is None) == needs_time
    assert (line["fast_0"], line["fast_0.5"], line["fast_2"], line["correct"]) == (0.5, None, None, 0.5)
    assert (more["fast_2"], more["fast_0"]) == (0.5, 2 / 3)
    assert more["reward"] == known["reward"] or not needs_time


@pytest.mark.parametrize(
    "text", ["[1, 2]", '{"name": 1}', '{"reference": "r", "candidate": "c"}\n', "\x1f\x8b\x00", "a"]
)
def test_what_is_no_file_of_results_stays_as_it_is(tmp_path: Path, text: str) -> None:
    """Neither a whole line nor one without its end is lost, and nothing is added."""
    file = tmp_path / "x"
    file.write_text(text)
    with pytest.raises(DataError, match="it is no file of results"):
        ResultsFile(file, "s")
    assert file.read_text() == text


@pytest.mark.parametrize("end", ['{"key": "b", "sc', '{"ke', "\0\0\0", '{"k\0\0'])
def test_a_line_that_was_not_finished_is_cut(tmp_path: Path, end: str) -> None:
    """Wherever a process or the power ended."""
    file = tmp_path / "x"
    line = json.dumps({"key": "a", "scope": "s", "verdict": "accepted", "facts": {}}) + "\n"
    file.write_text(line + end)
    assert [row["key"] for row in read_rows(file)] == ["a"]
    results = ResultsFile(file, "s")
    results.close()
    assert list(results.rows) == ["a"]
    assert file.read_text() == line


def test_only_a_file_is_written(tmp_path: Path) -> None:
    """A device or a pipe is neither waited for nor replaced."""
    pipe = tmp_path / "x"
    os.mkfifo(pipe)
    long = {"x" * 300: "File name too long", f"{'x' * 300}/y": "File name too long"}
    for name, says in {"x": "expected the name of a file", **long}.items():
        with pytest.raises(DataError, match=says):
            ResultsFile(tmp_path / name, "s")
        with pytest.raises(DataError, match=says), written(tmp_path / name):
            pass
    assert pipe.is_fifo()
