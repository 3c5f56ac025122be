"""`task check`, as far as it goes without running anything: do the cases fit the GPU types?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runner.base.gpu_types import Registry
from runner.cli.finding import Finding, Mark
from runner.extras.boards.commands.task_check import MeasuredCase, _slow, offered, rehearse
from runner.task_format.model import HARNESS, SUBMISSION, Case, CaseSet, Extra, Lang, PyConfig, Task, TaskFolder


def folder(
    tests: Sequence[Case],
    *,
    gpus: Sequence[str] = ("CPU",),
    work: str | None = "4 * n",
    cases: Mapping[str, CaseSet] | None = None,
    multi_gpu: bool = False,
) -> TaskFolder:
    """A task folder with these cases, of which the first is the benchmark, too."""
    task = Task(
        files={},
        lang=Lang.PY,
        config=PyConfig(main="eval.py"),
        tests=tuple(tests),
        benchmarks=tuple(tests[:1]),
        extra=Extra(bytes=work, cases=cases or {}),
        multi_gpu=multi_gpu,
    )
    return TaskFolder(name="x", task=task, description="", templates={}, gpus=tuple(gpus))


def test_the_largest_case_is_compared_with_the_types_memory() -> None:
    """What is fine on a large type may not fit a small one, which is named with case, sizes and remedy."""
    found = {
        finding.name: finding for finding in offered(folder([{"n": 1 << 28}], gpus=("CPU", "H100")), Registry.load())
    }
    assert found["H100"].mark is Mark.OK
    assert found["H100"].fact.startswith("2 cases, the largest moves 1.00 GiB, benchmarks take 321 µs")
    assert found["CPU"].mark is Mark.OK
    (small,) = offered(folder([{"n": 16}, {"n": 1 << 29}]), Registry.load())
    assert small.mark is Mark.WARNING
    assert "case n: 536870912 moves 2.00 GiB" in small.fact
    assert "the 2.00 GiB that its tensors may hold of the 4 GiB of CPU's container" in small.fact
    assert small.remedy is not None
    assert "--gpu CPU" in small.remedy


def test_a_type_is_looked_up_under_its_own_name() -> None:
    """Cases under an alias would be left out; a type that is offered by its alias has its own cases."""
    smaller = CaseSet(tests=({"n": 4},), benchmarks=({"n": 4},), hidden=())
    task_folder = folder([{"n": 1 << 50}], gpus=("MI300X", "MI300"), cases={"MI300": smaller})
    (own,) = offered(task_folder, Registry.load())
    assert (own.name, own.mark) == ("MI300", Mark.OK)
    (alias,) = offered(folder([{"n": 4}], gpus=("MI300",), cases={"MI300X": smaller}), Registry.load())
    sentence = "runner.yml has cases for MI300X, expected them for MI300, whose alias it is"
    assert (alias.mark, alias.fact) == (Mark.FAILED, sentence)


@pytest.mark.parametrize(
    ("cases", "fact"), [(CaseSet(tests=()), "no tests"), (CaseSet(benchmarks=()), "no benchmarks")]
)
def test_a_type_that_no_ranked_run_could_use_is_a_failure(cases: CaseSet, fact: str) -> None:
    """The daemon would refuse each of them."""
    (found,) = offered(folder([{"n": 4}], cases={"CPU": cases}), Registry.load())
    assert (found.mark, found.fact) == (Mark.FAILED, fact)


@pytest.mark.parametrize("kind", ["tests", "benchmarks", "hidden"])
def test_a_case_that_is_there_twice_is_a_warning(kind: str) -> None:
    """Of one list, with the same seed: a test may be a benchmark, too, and seeds may differ."""
    once, again = {"n": 4, "seed": 1}, {"n": 4, "seed": 2}
    lists: dict[str, tuple[dict[str, int], ...]] = dict.fromkeys(("tests", "benchmarks", "hidden"), (once, again))
    assert len(list(offered(folder([once], cases={"CPU": CaseSet(**lists)}), Registry.load()))) == 1
    lists[kind] = (once, again, {"seed": 1, "n": 4})
    _, found = offered(folder([once], cases={"CPU": CaseSet(**lists)}), Registry.load())
    assert (found.name, found.mark, found.fact) == ("CPU", Mark.WARNING, f"{kind} has seed: 1; n: 4 a second time")


def test_a_case_that_cannot_fit_is_a_failure() -> None:
    """More than a device has is refused by the daemon, so the author is told first."""
    (found,) = offered(folder([{"n": 1 << 40}], gpus=("T4",)), Registry.load())
    assert found.mark is Mark.FAILED
    assert found.fact == (
        "case n: 1099511627776 has at least 2048 GiB of tensors (half of its `bytes`), more than the 16 GiB of T4's "
        "device memory"
    )


@pytest.mark.parametrize(
    ("gpu", "sizes", "mark"),
    [
        ("MI300x8", (8,), Mark.OK),
        ("MI300x8", (16,), Mark.FAILED),
        ("MI300x8", (4, 8), Mark.FAILED),
        ("CPU", (2,), Mark.OK),
        ("CPU", (8,), Mark.FAILED),
    ],
)
def test_ranks_must_find_their_devices(gpu: str, sizes: Sequence[int], mark: Mark) -> None:
    """One world_size for all cases of a type, and at most its devices, or what its memory has room for."""
    cases = [{"world_size": size, "n": 4} for size in sizes]
    (found,) = offered(folder(cases, gpus=(gpu,), multi_gpu=True), Registry.load())
    assert found.mark is mark, found.fact


def test_limits_that_the_judges_own_work_exceeds_are_named() -> None:
    """Tests are checked once; a benchmark has two warm-ups and three timed calls at least."""
    made = folder([{"n": 4}])
    task = replace(made.task, benchmarks=({"n": 5},), test_timeout_s=2, ranked_timeout_s=9)
    took = {"generate_ns": 10**9, "reference_ns": 0, "check_ns": 9 * 10**8}
    cases = {line: MeasuredCase(spec=line, input_bytes=0, output_bytes=0, **took) for line in ("n: 4", "n: 5")}
    (slow,) = _slow(replace(made, task=task), task.cases_for("CPU"), cases)
    assert (slow.name, slow.mark) == ("ranked_timeout", Mark.WARNING)
    assert slow.fact == "inputs and checks of 5 calls of each case take 10 s here, of 9 s"


@pytest.mark.parametrize(
    ("content", "reason"),
    [('#!/bin/sh\necho "$@"\n', "it says '-P -c import ctypes; "), ("words\n", "Exec format error")],
)
def test_what_is_no_interpreter_is_a_failure(tmp_path: Path, content: str, reason: str) -> None:
    """A program that says other things, and a file that is no program."""
    other = tmp_path / "python"
    other.write_text(content)
    other.chmod(0o755)
    made = folder([{"n": 4}])
    task = replace(made.task, files={"submission.py": SUBMISSION, "eval.py": HARNESS})
    found = list(rehearse(replace(made, task=task), tmp_path, Registry.load().get("CPU"), other))
    *_, last = found
    assert isinstance(last, Finding)
    assert last.mark is Mark.FAILED
    assert last.fact.startswith(f"{other} is no Python interpreter ({reason}")
    assert str(last.remedy).startswith("set eval_python")
