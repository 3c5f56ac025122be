"""Makes a `Task` of validated documents, and checks the rules that concern several keys. Pure.

The rules are the same for a folder and for a stored task. Only the names of files and keys in messages differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from runner.task_format.cases import is_program_word
from runner.task_format.model import (
    HARNESS,
    REFERENCE,
    SUBMISSION,
    Case,
    CuConfig,
    Extra,
    Harness,
    Lang,
    PyConfig,
    Ranking,
    Task,
)
from runner.task_format.problems import nearest, problem, refuse, shown, validate
from runner.task_format.schema import TaskCommon
from runner.task_format.signature import signature_of
from runner.task_format.work import WorkError, work

_MAX_NAME_BYTES = 255


def build_task(
    document: TaskCommon,
    files: Mapping[str, str],
    extra: Extra,
    *,
    where: str,
    extra_where: str,
    validation: object = None,
    prefix: str = "",
    as_written: bool = False,
) -> Task:
    """Make a task and check it as a whole.

    Args:
        document: the content of task.yml, or of the stored task.
        files: name -> text, SUBMISSION or HARNESS.
        extra: the content of runner.yml.
        where: task.yml's name for messages.
        extra_where: runner.yml's name for messages.
        validation: as stored, `{version, source}` where it can be used.
        prefix: put before every key of task.yml in messages (`task.` for a database row).
        as_written: an author wrote it, who can mend what KernelBot would store all the same.

    Raises:
        TaskError: one line per problem.
    """
    kind: type[PyConfig | CuConfig] = PyConfig if Lang(document.lang) is Lang.PY else CuConfig
    config = validate(kind, document.config, where=where, prefix=f"{prefix}config")
    task = Task(
        files=dict(files),
        lang=Lang(document.lang),
        config=config,
        tests=tuple(document.tests),
        benchmarks=tuple(document.benchmarks),
        test_timeout_s=document.test_timeout,
        benchmark_timeout_s=document.benchmark_timeout,
        ranked_timeout_s=document.ranked_timeout,
        ranking_by=Ranking(document.ranking_by),
        seed=document.seed,
        multi_gpu=document.multi_gpu,
        libraries=tuple(document.libraries),
        validation=validation,
        extra=extra,
    )
    lines = [
        *_file_problems(task, where, prefix),
        *_config_problems(task, where, prefix),
        *_multi_gpu_problems(task, where, extra_where, prefix),
    ]
    # The other rules can only be checked for a task with exactly one submission.
    lines = lines or [*_extra_problems(task, extra_where), *_work_problems(task, where, extra_where, prefix)]
    if as_written:
        lines += [*_text_problems(task, where, extra_where), *_argument_problems(task, where, extra_where)]
    if lines:
        refuse(lines)
    return task


def name_problem(name: str) -> str | None:
    """The expected form of a task file's name; None: the name is fine.

    Names are relative POSIX paths below the directory where the programs run.
    """
    fine = (
        name.isprintable()
        and len(name.encode()) <= _MAX_NAME_BYTES
        and "\\" not in name
        # Programs take such a name for an option.
        and not name.startswith("-")
        and not PurePosixPath(name).is_absolute()
        # Also refuses "a//b", "./a" and "a/", so that every file has only one name.
        and all(part not in ("", ".", "..") for part in name.split("/"))
    )
    return None if fine else "a file name, or a relative path without '.' and '..'"


def _file_problems(task: Task, where: str, prefix: str) -> Iterator[str]:
    key = f"{prefix}files"
    for name in task.files:
        expected = name_problem(name)
        if expected is not None:
            yield problem(where, key, f"the name {shown(name)}", expected)
        for parent in PurePosixPath(name).parents:
            if str(parent) in task.files:
                yield problem(where, key, f"both {str(parent)!r} and {name!r}", "no file inside another")
    submissions = [name for name, text in task.files.items() if text == SUBMISSION]
    if len(submissions) != 1:
        actual = f"{len(submissions)} files with the source {SUBMISSION}"
        yield problem(where, key, actual, f"exactly one: it stands for the user's file, e.g. {_example(task.lang)}")
    elif task.lang is Lang.PY and not submissions[0].endswith(".py"):
        yield problem(where, key, f"{submissions[0]!r} for {SUBMISSION}", "a name that ends in .py, as lang is py")
    main = task.config.main if isinstance(task.config, PyConfig) else None
    for name, text in task.files.items():
        if text == HARNESS and name != main:
            yield problem(where, key, f"{HARNESS} as the source of {name!r}", f"it only for config.main ({main!r})")


def _example(lang: Lang) -> str:
    return f'{{"name": "submission.{"py" if lang is Lang.PY else "cu"}", "source": "{SUBMISSION}"}}'


def _config_problems(task: Task, where: str, prefix: str) -> Iterator[str]:
    if isinstance(task.config, PyConfig):
        main = task.config.main
        if main not in task.files:
            yield problem(
                where, f"{prefix}config.main", shown(main), f"a file of the task: {nearest(main, task.files)}"
            )
        elif task.files[main] == SUBMISSION:
            yield problem(where, f"{prefix}config.main", f"the submission ({main!r})", "the eval program")
        return
    for index, source in enumerate(task.config.sources):
        if source not in task.files:
            key = f"{prefix}config.sources[{index}]"
            yield problem(where, key, shown(source), f"a file of the task: {nearest(source, task.files)}")


def _all_cases(task: Task, where: str, extra_where: str, prefix: str) -> Iterator[tuple[str, str, Case]]:
    """Every case: file, key, arguments."""
    lists = [
        (where, f"{prefix}tests", task.tests),
        (where, f"{prefix}benchmarks", task.benchmarks),
        (extra_where, "hidden", task.extra.hidden),
        *((extra_where, f"cases.{gpu}.tests", cases.tests or ()) for gpu, cases in task.extra.cases.items()),
        *((extra_where, f"cases.{gpu}.benchmarks", cases.benchmarks or ()) for gpu, cases in task.extra.cases.items()),
        *((extra_where, f"cases.{gpu}.hidden", cases.hidden or ()) for gpu, cases in task.extra.cases.items()),
    ]
    for file, key, cases in lists:
        for index, case in enumerate(cases):
            yield file, f"{key}[{index}]", case


def _argument_problems(task: Task, where: str, extra_where: str) -> Iterator[str]:
    """Arguments that generate_input does not take or lacks, in the cases of all GPU types."""
    signature = signature_of(task.files) if task.harness is Harness.BUILTIN else None
    if signature is None:
        return
    given = frozenset({"rank"} if task.multi_gpu else ())
    for file, key, case in _all_cases(task, where, extra_where, ""):
        for name, actual, expected in signature.problems(case, given):
            yield problem(file, f"{key}.{name}", actual, expected)


def _text_problems(task: Task, where: str, extra_where: str) -> Iterator[str]:
    """Texts that a task's own eval program would read as something else: it gets KernelBot's lines, without quotes."""
    if task.harness is Harness.BUILTIN:
        return
    for file, key, case in _all_cases(task, where, extra_where, ""):
        for name, value in case.items():
            if isinstance(value, str) and not is_program_word(value):
                expected = "a word of letters, digits, '_', '-' and '.' that is not true or false"
                yield problem(file, f"{key}.{name}", shown(value), f"{expected}, as its own eval program reads it")


def _multi_gpu_problems(task: Task, where: str, extra_where: str, prefix: str) -> Iterator[str]:
    if not task.multi_gpu:
        return
    for file, key, case in _all_cases(task, where, extra_where, prefix):
        size = case.get("world_size")
        if type(size) is not int or size < 1:
            actual = "nothing" if "world_size" not in case else shown(size)
            yield problem(file, f"{key}.world_size", actual, "a number of devices, as multi_gpu is true")


def _timing_problems(task: Task, where: str) -> Iterator[str]:
    timing = task.extra.timing
    if timing is None:
        return
    if task.harness is not Harness.BUILTIN:
        yield problem(
            where, "timing", "it beside a task's own eval program", "'harness: builtin': no other times by these rules"
        )
    for name, low, high in (
        ("runs", timing.min_runs, timing.max_runs),
        ("kernel_s", timing.min_kernel_s, timing.max_kernel_s),
        ("wall_s", timing.min_wall_s, timing.max_wall_s),
    ):
        if low is not None and high is not None and low > high:
            yield problem(where, f"timing.min_{name}", shown(low), f"no more than max_{name} ({high})")


def _extra_problems(task: Task, where: str) -> Iterator[str]:
    for index, name in enumerate(task.extra.private):
        if name not in task.files:
            expected = f"a file of the task: {nearest(name, task.files)}"
            yield problem(where, f"private[{index}]", shown(name), expected)
        elif task.files[name] == SUBMISSION:
            yield problem(
                where, f"private[{index}]", f"the submission ({name!r})", "a file that only the judge may see"
            )
    if task.extra.harness is Harness.PROGRAM and HARNESS in task.files.values():
        yield problem(
            where, "harness", "'program'", f"'builtin', or another source than {HARNESS} for the eval program"
        )
    yield from _timing_problems(task, where)
    if task.harness is Harness.BUILTIN:
        if task.lang is not Lang.PY and task.multi_gpu:
            expected = "one device: compiled submissions have no ranks (or 'program' with an eval program of its own)"
            yield problem(where, "harness", "'builtin' for a task with lang cu and multi_gpu", expected)
        elif task.files.get(REFERENCE, SUBMISSION) in (SUBMISSION, HARNESS):
            expected = f"a file {REFERENCE} in the task, with generate_input and check_implementation"
            yield problem(where, "harness", f"the built-in harness and no {REFERENCE}", expected)


def _work_problems(task: Task, where: str, extra_where: str, prefix: str) -> Iterator[str]:
    extra = task.extra
    if extra.written is not None and extra.bytes is None:
        yield problem(extra_where, "written", f"{shown(extra.written)} without `bytes`", "`bytes` beside it")
    expressions = {"flops": extra.flops, "bytes": extra.bytes, "written": extra.written, "memory": extra.memory}
    for key, expression in expressions.items():
        if expression is None:
            continue
        for file, place, case in _all_cases(task, where, extra_where, prefix):
            if key != "memory" and not place.rpartition("[")[0].endswith("benchmarks"):
                continue
            try:
                amount = work(expression, case)
                most = work(extra.bytes, case) if key == "written" and extra.bytes is not None else amount
            except WorkError as error:
                yield f"{extra_where}: {key}: for {place} of {file}: {error}"
                break
            if amount > most:
                actual = f"found {expression!r}, which is {amount:g}, expected at most `bytes`, {most:g}"
                yield f"{extra_where}: {key}: for {place} of {file}: {actual}"
                break
