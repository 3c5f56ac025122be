"""Loading a task folder: every key, every default, every refusal with its message."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.errors import TaskError
from runner.base.gpu_types import Dtype
from runner.task_format import load, load_folder, to_stored
from runner.task_format.model import HARNESS, SUBMISSION, CaseSet, CuConfig, Extra, Harness, Ranking, Timing
from runner.task_format.trees import MAX_FILE_BYTES
from tests.unit.task_format.samples import CU, TASK, changed, refusal, write


def test_a_short_task_gets_kernelbots_defaults(tmp_path: Path) -> None:
    """Keys that are absent are stored with the values that KernelBot gives them, and no others: none of runner.yml."""
    folder = load(write(tmp_path))
    assert (folder.name, folder.description, folder.templates, folder.gpus) == ("adder", "Add.", {}, ())
    assert (folder.task.extra, folder.task.harness) == (Extra(), Harness.PROGRAM)
    judged = load(write(tmp_path / "judged", extra={"harness": "builtin", "hidden": [{"size": 7, "seed": 9}]}))
    assert to_stored(judged.task) == to_stored(folder.task)
    assert to_stored(folder.task) == {
        "lang": "py",
        "files": {"submission.py": SUBMISSION, "reference.py": "# reference\n", "eval.py": "# eval program\n"},
        "config": {"main": "eval.py"},
        "libraries": [],
        "tests": [{"size": 1, "seed": 2}, {"size": 3, "seed": 4}, {"size": 5, "seed": 6}],
        "benchmarks": [{"size": 7, "seed": 8}],
        "test_timeout": 180,
        "benchmark_timeout": 180,
        "ranked_timeout": 180,
        "ranking_by": "last",
        "seed": None,
        "multi_gpu": False,
    }


def test_every_key_of_task_yml_is_kept(tmp_path: Path) -> None:
    """No key of task.yml is parsed and ignored."""
    task = changed(
        tests=[{"size": 1, "world_size": 2, "flag": True, "kind": "cold", "ratio": 0.5, "shape": [96, 128]}],
        benchmarks=[{"size": 7, "world_size": 2}],
        test_timeout=10,
        benchmark_timeout=20,
        ranked_timeout=30,
        ranking_by="geom",
        seed=99,
        multi_gpu=True,
        libraries=["cutlass"],
        validation={"version": "v1", "script": "check.py"},
        templates={"Python": "template.py", "CuteDSL": "template.py"},
        gpus=["H100", "CPU"],
    )
    folder = load(write(tmp_path, task, files={"template.py": "pass\n", "check.py": "print()\n"}))
    assert folder.task == replace(
        folder.task,
        tests=(task["tests"][0],),
        test_timeout_s=10,
        benchmark_timeout_s=20,
        ranked_timeout_s=30,
        seed=99,
        multi_gpu=True,
        ranking_by=Ranking.GEOM,
        libraries=("cutlass",),
        validation={"version": "v1", "source": "print()\n"},
    )
    assert (folder.templates, folder.gpus) == ({"Python": "pass\n", "CuteDSL": "pass\n"}, ("H100", "CPU"))


def test_a_cuda_task_keeps_its_build_settings(tmp_path: Path) -> None:
    """`config` of lang cu has sources, include_dirs, defines and compile_flags; numbers of defines become text.

    All four are stored, though the file has one.
    """
    config = {"sources": ["eval.cu"], "include_dirs": ["inc"], "defines": {"N": 4, "M": "x"}, "compile_flags": ["-O1"]}
    task = load(write(tmp_path, changed(CU, config=config))).task
    assert task.config == CuConfig(
        sources=("eval.cu",), include_dirs=("inc",), defines={"N": "4", "M": "x"}, compile_flags=("-O1",)
    )
    assert task.submission_name == "submission.cuh"
    short = to_stored(load(write(tmp_path / "short", CU)).task)
    assert short["config"] == {"sources": ["eval.cu"], "include_dirs": [], "defines": {}, "compile_flags": []}


def test_every_key_of_runner_yml_is_kept(tmp_path: Path) -> None:
    """No key of runner.yml is parsed and ignored; an absent list of cases is not an empty one."""
    timing = {"width": 0.01, "min_runs": 5, "max_runs": 50, "noisy": 0.2, "refuse": 1}
    timing |= {"min_kernel_s": 0, "max_kernel_s": 2.5, "min_wall_s": 0.5, "max_wall_s": 60}
    work = {"flops": "2 * size", "bytes": "size ** 2", "written": "size", "memory": "3 * size"}
    extra = {
        "harness": "builtin",
        "cases": {"CPU": {"tests": [{"size": 1}]}, "T4": {"benchmarks": [], "hidden": []}},
        "hidden": [{"size": 3, "seed": 9}],
        "private": ["reference.py"],
        "math": "fp8",
        "timing": timing,
        **work,
    }
    assert timing.keys() == {field.name for field in fields(Timing)}
    assert load(write(tmp_path, extra=extra)).task.extra == Extra(
        harness=Harness.BUILTIN,
        cases={"CPU": CaseSet(tests=({"size": 1},)), "T4": CaseSet(benchmarks=(), hidden=())},
        hidden=({"size": 3, "seed": 9},),
        private=("reference.py",),
        math=Dtype.FP8,
        timing=Timing(**timing),  # type: ignore[arg-type]  # of the types above
        **work,
    )


def test_a_harness_source_selects_the_builtin_judge(tmp_path: Path) -> None:
    """An eval program whose source is @HARNESS@ needs no runner.yml; one with nothing but a comment is like none."""
    files = [*TASK["files"][:2], {"name": "eval.py", "source": HARNESS}]
    task = load(write(tmp_path, changed(files=files))).task
    assert (task.files["eval.py"], task.harness) == (HARNESS, Harness.BUILTIN)
    assert load(write(tmp_path / "empty", extra="# nothing yet\n")).task.extra == Extra()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lang", "rust", "lang: found 'rust', expected 'py' or 'cu'"),
        ("description", "", "description: found '', expected a text that is not empty"),
        ("test_timeout", "60", "test_timeout: found '60', expected an integer"),
        ("ranked_timeout", 100_000, "ranked_timeout: found 100000, expected a number of at most 86400"),
        ("multi_gpu", "yes please", "multi_gpu: found 'yes please', expected true or false"),
        ("gpus", ["CPU", "CPU"], "gpus: found 'CPU' twice, expected different GPU types"),
        ("files", [], "files: found [], expected at least 1 entry"),
        ("files", [{"name": "a", "sourc": "b"}], "files[0].source: found nothing, expected a value"),
        ("tests", [{}], "tests[0]: found {}, expected at least 1 entry"),
        ("tests", [5], "tests[0]: found 5, expected a mapping of argument names to values"),
        (
            "config",
            {"main": "evil.py"},
            (
                "config.main: found 'evil.py', expected a file of the task: one of submission.py, reference.py, eval.py"
                " (did you mean 'eval.py'?)"
            ),
        ),
        ("config", {"main": "submission.py"}, "config.main: found the submission ('submission.py'), expected"),
        ("templates", {"Python": "@SUBMISSION@"}, "templates.Python: found '@SUBMISSION@', expected"),
        ("validation", {"version": "v1"}, "validation.script: found nothing, expected a value (the key is required)"),
        ("validation", {"version": "v1", "script": "@SUBMISSION@"}, "validation.script: found '@SUBMISSION@'"),
        ("test_timeot", 5, "test_timeot: found an unknown key, expected one of lang, config, tests, benchmarks, "),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, key: str, value: object, message: str) -> None:
    """A refusal names file, key, what was found and what was expected."""
    assert refusal(write(tmp_path, changed(TASK, **{key: value}))).startswith(f"adder/task.yml: {message}")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "an integer, a float, true or false, a text, or a list of integers"),
        ([1, True], "a list of integers of at most 64 bits"),
        (1 << 63, "an integer of at most 64 bits"),
        (float("nan"), "a finite float below 1e+16 and not -0.0 (write larger ones as integers)"),
        ("a; b", "a text of 1 to 1000 characters without ';', control characters, outer blanks"),
        ("a\nb", "a text of 1 to 1000 characters without ';', control characters, outer blanks"),
        ("a\u2028b", "a text of 1 to 1000 characters without ';', control characters, outer blanks"),
    ],
)
def test_a_case_value_that_no_spec_line_can_carry_is_refused(tmp_path: Path, value: object, expected: str) -> None:
    """Values must survive the journey through JSON and the cases file."""
    task = changed(tests=[{"size": 1}, {"size": 2}, {"size": value}])
    assert refusal(write(tmp_path, task)) == f"adder/task.yml: tests[2].size: found {value!r}, expected {expected}"


@pytest.mark.parametrize("name", ["a b", "1a", "a-b", "ä", "", "a:b"])
def test_a_case_name_that_is_no_identifier_is_refused(tmp_path: Path, name: str) -> None:
    """Argument names are identifiers."""
    assert "expected an argument name of letters, digits and _" in refusal(write(tmp_path, changed(tests=[{name: 1}])))


@pytest.mark.parametrize("size", [None, "two", 0, True])
def test_a_multi_gpu_case_without_world_size_is_refused(tmp_path: Path, size: object) -> None:
    """multi_gpu needs world_size in every test and benchmark, those of runner.yml included."""
    case = {"size": 1} if size is None else {"size": 1, "world_size": size}
    good = {"size": 1, "world_size": 2}
    found = "nothing" if size is None else repr(size)
    expected = f"world_size: found {found}, expected a number of devices, as multi_gpu is true"
    task = changed(multi_gpu=True, tests=[good, case], benchmarks=[case])
    extra = {"cases": {"CPU": {"tests": [case]}}}
    assert refusal(write(tmp_path, task, extra=extra)).splitlines() == [
        f"adder/task.yml: tests[1].{expected}",
        f"adder/task.yml: benchmarks[0].{expected}",
        f"adder/runner.yml: cases.CPU.tests[0].{expected}",
    ]


def _with_file(name: str, source: str = "reference.py") -> dict[str, Any]:
    return changed(files=[*TASK["files"], {"name": name, "source": source}])


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../b", "./a", "a//b", "a/", "-c", "a\\b", "a\nb", "é" * 128])
def test_a_file_name_that_escapes_is_refused(tmp_path: Path, name: str) -> None:
    """Names are plain, or relative paths below the working directory."""
    text = refusal(write(tmp_path, _with_file(name)))
    assert text.startswith("adder/task.yml: files[3].name: found ")
    assert text.endswith(", expected a file name, or a relative path without '.' and '..'")


def test_a_file_in_a_subfolder_is_fine(tmp_path: Path) -> None:
    """A name may hold a path, and so may a source."""
    folder = write(tmp_path, _with_file("inc/a.py", "deep/er/a.py"), files={"deep/er/a.py": "A\n"})
    assert load(folder).task.files["inc/a.py"] == "A\n"


def test_several_problems_come_at_once(tmp_path: Path) -> None:
    """One refusal lists what is wrong, a line each, and stops at ten. `config` of lang cu has its own keys."""
    text = refusal(write(tmp_path, changed(tests=[{"size": None} for _ in range(14)])))
    assert len(text.splitlines()) == 11
    assert text.endswith("… and 4 more")
    config = {"sources": ["eval.cu"], "defines": {"N": 1.5}, "include_dir": []}
    assert refusal(write(tmp_path / "cu", changed(CU, config=config))).splitlines() == [
        "adder/task.yml: config.defines.N: found 1.5, expected a text",
        (
            "adder/task.yml: config.include_dir: found an unknown key, expected one of sources, include_dirs, defines, "
            "compile_flags (did you mean 'include_dirs'?)"
        ),
    ]


BUILTIN: Mapping[str, Any] = {"harness": "builtin"}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"harnes": "builtin"}, "harnes: found an unknown key, expected one of harness, cases, hidden, private, "),
        ({"cases": {"CPU": {"test": []}}}, "cases.CPU.test: found an unknown key, expected one of tests, benchmarks, "),
        ({"private": ["referenc.py"]}, "private[0]: found 'referenc.py', expected a file of the task: one of "),
        ({"private": ["submission.py"]}, "private[0]: found the submission ('submission.py'), expected a file that "),
        ({"flops": "size * k"}, "flops: for benchmarks[0] of adder/task.yml: found the name 'k', expected one of the "),
        ({"bytes": "size - 7"}, "bytes: for benchmarks[0] of adder/task.yml: found 'size - 7', which is 0.0 for "),
        (
            {"memory": "size", "hidden": [{"seed": 1}]},
            "memory: for hidden[0] of adder/runner.yml: found the name",
        ),
        ({"timing": {"width": "0.1"}}, "timing.width: found '0.1', expected a number"),
        ({"timing": {"widht": 0.1}}, "timing.widht: found an unknown key, expected one of "),
        ({"timing": {"max_runs": 2}}, "timing.max_runs: found 2, expected "),
        (
            {**BUILTIN, "timing": {"min_runs": 9, "max_runs": 5}},
            "timing.min_runs: found 9, expected no more than max_runs (5)",
        ),
        (
            {**BUILTIN, "timing": {"min_wall_s": 9, "max_wall_s": 0.5}},
            "timing.min_wall_s: found 9.0, expected no more than",
        ),
        ({"timing": {}}, "timing: found it beside a task's own eval program"),
        ({1: 2}, "[1]: found 1, expected a text"),
        ("flops: 1e9", "flops: found 1e9, expected a text (YAML here takes quotes around a text, true or false, or "),
        ('flops: "\\ud800"', "flops: found '\\ud800', expected a text without surrogates"),
        ({"written": "size"}, "written: found 'size' without `bytes`, expected `bytes` beside it"),
        (
            {"bytes": "size", "written": "2 * size"},
            "written: for benchmarks[0] of adder/task.yml: found '2 * size'",
        ),
    ],
)
def test_a_wrong_runner_yml_is_refused(tmp_path: Path, extra: Any, message: str) -> None:  # noqa: ANN401 any YAML
    """Refusals of runner.yml name that file."""
    assert refusal(write(tmp_path, extra=str(extra))).startswith(f"adder/runner.yml: {message}")


def test_a_path_that_is_no_task_is_refused(tmp_path: Path) -> None:
    """The message names the file or folder that should be there."""
    (tmp_path / "adder").mkdir()
    text = refusal(tmp_path / "adder")
    assert text.startswith("adder/task.yml: found no readable file adder/task.yml (No such file or directory)")
    with pytest.raises(TaskError, match=r"nowhere: found no folder, expected one with a task\.yml"):
        load_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("repository", "source", "inside"),
    [
        (None, "../x.py", True),
        (None, "../../x.py", False),
        ("../..", "../../x.py", True),
        ("../..", "../../../x.py", False),
        (".", "x.py", True),
        (".", "../x.py", False),
    ],
)
def test_the_repository_is_the_limit(tmp_path: Path, repository: str | None, source: str, *, inside: bool) -> None:
    """Sources may lie anywhere below the nearest `.git` upwards, without one below the parent, and no further up."""
    files = [*TASK["files"][:2], {"name": "eval.py", "source": source}]
    folder = write(tmp_path / "a" / "b", changed(files=files))
    (folder / source).write_text("shared\n")
    if repository is not None:
        (folder / repository / ".git").mkdir()
    if inside:
        assert load(folder).task.files["eval.py"] == "shared\n"
    else:
        assert refusal(folder) == (
            f"adder/task.yml: files[2].source: found the source {source!r}, which leaves the task's repository, "
            "expected a path inside it (that is the archive, or the nearest folder upwards that holds .git, else the "
            "task folder's parent)"
        )


@pytest.mark.parametrize(
    ("source", "link", "target"),
    [("link.py", "link.py", "secret.py"), ("way/secret.py", "way", ""), ("reference.py", "task.yml", "task.yml")],
)
def test_a_link_out_of_the_repository_is_refused(tmp_path: Path, source: str, link: str, target: str) -> None:
    """Links are followed, but not out: a file, a folder on the way to one, and the definition itself."""
    (tmp_path / "secret.py").write_text("secret")
    folder = write(tmp_path / "problems", _with_file("a.py", source))
    if link == "task.yml":
        (folder / link).rename(tmp_path / target)
    (folder / link).symlink_to(tmp_path / target)
    place = "" if link == "task.yml" else "files[3].source: "
    where = f"adder/{link if link == 'task.yml' else source}"
    assert refusal(folder) == (
        f"adder/task.yml: {place}found {where}, a link out of the task's repository, expected a file inside it"
    )


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A link to nothing, or to itself; and a named pipe, whose reading would wait for a writer for ever."""
    sources = ("dangling", "loop", "pipe")
    folder = write(tmp_path, changed(files=[*TASK["files"], *({"name": each, "source": each} for each in sources)]))
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    dangling, loop, pipe = refusal(folder).splitlines()
    assert dangling.startswith("adder/task.yml: files[3].source: found no readable file adder/dangling")
    assert loop.startswith("adder/task.yml: files[4].source: found no readable file adder/loop")
    assert pipe == "adder/task.yml: files[5].source: found adder/pipe, which is no regular file, expected one"


def test_files_over_the_caps_are_refused(tmp_path: Path) -> None:
    """A file may have a mebibyte and no byte more, all files together four."""
    good = write(tmp_path / "a", _with_file("a", "a"), files={"a": "x" * MAX_FILE_BYTES})
    assert len(load(good).task.files["a"]) == MAX_FILE_BYTES
    bad = write(tmp_path / "b", _with_file("a", "a"), files={"a": "x" * (MAX_FILE_BYTES + 1)})
    assert refusal(bad) == (
        "adder/task.yml: files[3].source: found adder/a with more than 1048576 bytes, expected at most that"
    )
    files = [*TASK["files"], *({"name": f"f{index}", "source": "big"} for index in range(5))]
    text = refusal(write(tmp_path / "c", changed(files=files), files={"big": "x" * (900 << 10)}))
    assert text.startswith("adder/task.yml: files[7].source: found ")
    assert text.endswith("bytes of files so far, expected at most 4194304 in all")


_RANKS: Mapping[str, Any] = {"multi_gpu": True, "tests": [{"world_size": 2}], "benchmarks": [{"world_size": 2}]}
_HARNESS_FILE = {"name": "eval.py", "source": HARNESS}
_SUBMISSIONS = (
    "adder/task.yml: files: found {} files with the source @SUBMISSION@, expected exactly one: it stands for the "
    'user\'s file, e.g. {{"name": "submission.py", "source": "@SUBMISSION@"}}'
)


@pytest.mark.parametrize(
    ("task", "more", "says"),
    [
        (changed(tests=[{False: 1}]), {}, "quote words that YAML reads as true or false"),
        (_with_file("eval.py"), {}, "files[3].name: found 'eval.py' a second time, expected every name once"),
        (_with_file("eval.py/x"), {}, "found both 'eval.py' and 'eval.py/x', expected no file inside another"),
        (
            changed(files=[{"name": "submission.cu", "source": SUBMISSION}, *TASK["files"][1:]]),
            {},
            "found 'submission.cu' for @SUBMISSION@, expected a name that ends in .py, as lang is py",
        ),
        (_with_file("x.py", HARNESS), {}, "as the source of 'x.py', expected it only for config.main ('eval.py')"),
        (_with_file("a.py", "@SUBMISION@"), {}, "found '@SUBMISION@', expected @SUBMISSION@, @HARNESS@ or a path"),
        (_with_file("a", "/etc/passwd"), {}, "found the source '/etc/passwd', expected a relative path with '/'"),
        (_with_file("a", "a\0b"), {}, "found the source 'a\\x00b', expected a relative path with '/'"),
        (
            changed(CU, config={"sources": ["eval.cu", "evil.cu"]}),
            {},
            "config.sources[1]: found 'evil.cu', expected a file of the task: one of submission.cuh, eval.cu, util.h",
        ),
        (
            TASK,
            {"extra": {"flops": "size", "cases": {"CPU": {"benchmarks": [{"n": 1}]}}}},
            "adder/runner.yml: flops: for cases.CPU.benchmarks[0] of adder/runner.yml: found the name",
        ),
        (
            changed(files=[TASK["files"][0], TASK["files"][2]]),
            {"extra": {"harness": "builtin"}},
            "adder/runner.yml: harness: found the built-in harness and no reference.py, expected a file reference.py",
        ),
        ({**CU, **_RANKS}, {"extra": {"harness": "builtin"}}, "'builtin' for a task with lang cu and multi_gpu"),
        (changed(files=TASK["files"][1:]), {}, _SUBMISSIONS.format(0)),
        (changed(files=[*TASK["files"], {"name": "s.py", "source": SUBMISSION}]), {}, _SUBMISSIONS.format(2)),
        (
            changed(files=[*TASK["files"][:2], _HARNESS_FILE]),
            {"extra": {"harness": "program"}},
            "harness: found 'program', expected 'builtin', or another source than @HARNESS@ for the eval program",
        ),
        (_with_file("a", "a"), {"files": {"a": b"ab\0c"}}, "found a NUL byte at offset 2 of 'a', expected text"),
        (_with_file("a", "a"), {"files": {"a": b"ab\xff"}}, "found byte 0xff at offset 2 of 'a', expected UTF-8"),
        (
            _with_file("a", "a"),
            {"files": {"a": "@SUBMISSION@"}},
            "found a file 'a' that consists of @SUBMISSION@, expected that as the source itself",
        ),
        (changed(templates={"Python": "no.py"}), {}, "templates.Python: found no readable file adder/no.py"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, task: Mapping[str, Any], more: dict[str, Any], says: str
) -> None:
    """The message names what was found and what was expected."""
    assert says in refusal(write(tmp_path, task, **more))
