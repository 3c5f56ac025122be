"""The stored forms: KernelBot's key set out, and the same task back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.errors import TaskError
from runner.task_format import extra_to_stored, from_stored, load, to_stored, unknown_keys
from runner.task_format.cases import program_line
from runner.task_format.model import Extra, Harness
from tasks.harness.judge.cases import spec_line
from tests.unit.task_format.samples import CU, changed, write

LIMITS = ("test_timeout", "benchmark_timeout", "ranked_timeout")


def jsonb(value: Any) -> Any:  # noqa: ANN401 any JSON
    """What PostgreSQL makes of a value: keys ordered by length, then by bytes."""
    if isinstance(value, dict):
        ordered = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: jsonb(value[key]) for key in ordered}
    if isinstance(value, list):
        return [jsonb(item) for item in value]
    return value


@pytest.mark.parametrize("base", ["py", "cu"])
def test_a_task_survives_the_database(tmp_path: Path, base: str) -> None:
    """Stored as JSON, reordered as jsonb does, and read back, it is the same task."""
    task = changed(
        tests=[{"size": 1, "world_size": 2, "flag": True, "kind": "cold", "ratio": 0.5, "shape": [96, 128]}],
        benchmarks=[{"world_size": 2}],
        ranking_by="mean",
        seed=5,
        multi_gpu=True,
        libraries=["x"],
        test_timeout=7,
    )
    if base == "cu":
        config = {"sources": ["eval.cu"], "include_dirs": ["i"], "defines": {"N": 4}, "compile_flags": ["-g"]}
        task = changed(task, lang="cu", files=CU["files"], config=config)
    extra: dict[str, Any] = {"cases": {"CPU": {"tests": [], "benchmarks": [{"world_size": 1}]}, "T4": {}}}
    if base == "py":
        extra |= dict.fromkeys(("flops", "bytes", "written", "memory"), "world_size")
        extra |= {"harness": "builtin", "private": ["reference.py"], "math": "fp4"}
        extra |= {"hidden": [{"world_size": 1, "edge": 2}], "timing": {"max_runs": 50, "width": 0.01}}
        extra["cases"]["T4"]["hidden"] = [{"world_size": 3}]
    loaded = load(write(tmp_path, task, extra=extra)).task
    back = from_stored(
        jsonb(json.loads(json.dumps(to_stored(loaded)))),
        jsonb(json.loads(json.dumps(extra_to_stored(loaded.extra)))),
        origin="leaderboard 'x'",
    )
    assert back == loaded


def test_a_board_that_kernelbot_made_has_no_extra(tmp_path: Path) -> None:
    """Without runner.yml the task's own program evaluates it.

    KernelBot's lines read in jsonb's order, shortest key first; so do ours.
    """
    stored = to_stored(load(write(tmp_path, changed(tests=[{"seed": 4, "m": 1, "n": 2, "k": 3}]))).task)
    task = from_stored(stored, None, origin="x")
    assert (task.extra, task.harness, extra_to_stored(task.extra)) == (Extra(), Harness.PROGRAM, {})
    assert spec_line(from_stored(jsonb(stored), None, origin="x").tests[0]) == "k: 3; m: 1; n: 2; seed: 4"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tests", [{"size": "a;b"}], "leaderboard 'x': task.tests[0].size: found 'a;b', expected a value whose"),
        ("lang", "c", "leaderboard 'x': task.lang: found 'c', expected 'py' or 'cu'"),
        ("config", {"main": "no.py"}, "leaderboard 'x': task.config.main: found 'no.py', expected a file of the task"),
        ("files", {"a": "b"}, "leaderboard 'x': task.files: found 0 files with the source @SUBMISSION@"),
        (
            "files",
            {"../s.py": "@SUBMISSION@"},
            "leaderboard 'x': task.files: found the name '../s.py', expected a file",
        ),
        # The same for what stands in runner.board, where an older release may have written keys that changed a ranking.
        ("extra", {"harness": "own"}, "leaderboard 'x': extra: harness: found 'own', expected 'builtin' or 'program'"),
        ("extra", {"timing": {"mode": "batch"}}, "leaderboard 'x': extra: timing.mode: found an unknown key"),
    ],
)
def test_a_spoilt_row_is_refused_by_its_board(tmp_path: Path, key: str, value: Any, message: str) -> None:  # noqa: ANN401 any JSON
    """Rows are written by others too; the message names the leaderboard and the key."""
    stored = to_stored(load(write(tmp_path)).task)
    extra = value if key == "extra" else None
    with pytest.raises(TaskError) as caught:
        from_stored(stored if extra else {**stored, key: value}, extra, origin="leaderboard 'x'")
    assert str(caught.value).startswith(message)
    assert ("update" in str(caught.value).splitlines()[-1]) is (extra is not None)


@pytest.mark.parametrize("document", [changed(), CU])
def test_a_stored_task_with_keys_of_a_later_kernelbot_loads(tmp_path: Path, document: dict[str, Any]) -> None:
    """At each level that has keys; they are named. `validation` is known, and given back unchanged, null as nothing."""
    stored = to_stored(load(write(tmp_path, document)).task)
    plain = from_stored(stored, None, origin="x")
    assert unknown_keys(stored) == []
    assert "validation" not in to_stored(from_stored({**stored, "validation": None}, None, origin="x"))
    validation = {"version": 2, "source": "print()", "timeout": 900}
    later = {**stored, "gpus": [], "config": {**stored["config"], "cache": True}, "validation": validation}
    assert unknown_keys(later) == ["gpus", "config.cache", "validation.timeout"]
    loaded = from_stored(later, None, origin="x")
    assert replace(loaded, validation=None) == plain
    assert to_stored(loaded)["validation"] == validation


@pytest.mark.parametrize(
    ("keys", "odd", "plain"),
    [
        *((LIMITS, *pair) for pair in [(None, 86_400), (30.0, 30), (0.5, 1), (100_000, 86_400)]),
        (("tests", "benchmarks", "libraries"), None, []),
        (("seed",), "42", 42),
        (("seed",), 42.0, 42),
        *((("multi_gpu",), odd, bool(odd)) for odd in (None, 0, 1)),
        (
            ("config",),
            {"sources": ["eval.cu"], "defines": {"N": None, "M": 0.5, "D": 4}, "include_dirs": None},
            {"sources": ["eval.cu"], "defines": {"N": "1", "M": "0.5", "D": "4"}},
        ),
        (("config",), {"sources": ["eval.cu"], "defines": None}, {"sources": ["eval.cu"]}),
    ],
)
def test_a_value_that_kernelbot_runs_is_read_in_its_meaning(
    tmp_path: Path, keys: tuple[str, ...], odd: object, plain: object
) -> None:
    """It checks no types when it stores a task: nulls, floats, texts of digits. In a task.yml they are refused."""
    document = changed(CU if keys == ("config",) else changed(), tests=[{"world_size": 1}], benchmarks=[])
    stored = to_stored(load(write(tmp_path, document)).task)
    for key in keys:
        written = {**stored, key: odd}
        assert from_stored(written, None, origin="x") == from_stored({**stored, key: plain}, None, origin="x")


@pytest.mark.parametrize("value", [None, "", " a ", 1e-5, 2**70, [0.5], ["a"], [[1, 2], []], {"a": None}, "x" * 2000])
def test_a_case_of_a_program_is_what_kernelbot_would_write(tmp_path: Path, value: object) -> None:
    """The program alone reads it: any value, and any name. The judge's cases are as strict as their author's."""
    cases = [{"bias-size": value}, {"n": value, "flag": True}]
    stored = to_stored(load(write(tmp_path)).task) | {"tests": cases, "benchmarks": cases, "seed": -1}
    task = from_stored(json.loads(json.dumps(stored)), None, origin="x")
    assert list(map(program_line, task.tests)) == [f"bias-size: {value}", f"n: {value}; flag: True"]
    assert (task.benchmarks, task.seed) == (task.tests, -1)
    for judged in (stored, {**stored, "tests": [], "benchmarks": []}):
        with pytest.raises(TaskError, match=r"task\.(tests\[0\]|seed)"):
            from_stored(judged, {"harness": "builtin"}, origin="x")


@pytest.mark.parametrize("task", [{}, {"lang": [], "config": []}, {"lang": "py", "config": 1}, {"config": {"main": 1}}])
def test_unknown_keys_are_found_in_whatever_a_row_holds(task: dict[str, object]) -> None:
    """No list of leaderboards is spoilt by one row."""
    assert unknown_keys({**task, "later": 1}) == ["later"]
    with pytest.raises(TaskError):
        from_stored(task, None, origin="x")
