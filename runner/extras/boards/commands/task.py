"""`task`: help for authors of tasks.

What `check` asks is in `task_check`. The files of `new` end in `.in`, so that no tool takes them for this
project's own code.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import tasks
from runner.base.errors import TaskError
from runner.base.gpu_types import Registry
from runner.cli import evaluate
from runner.cli.app import app, example, note, out, out_json, session
from runner.cli.finding import Finding, Mark, verdict_of
from runner.cli.finding import render as render_finding
from runner.extras.boards.commands import render
from runner.extras.boards.commands.publish import JsonOption
from runner.extras.boards.commands.task_check import MeasuredCase, offered, rehearse
from runner.task_format import load
from runner.task_format.model import HARNESS, TaskFolder

_SKELETON: Final = Path(__file__).parent / "skeletons"
#: A folder, a leaderboard and a word in `#!POPCORN leaderboard NAME`.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}", re.ASCII)

task = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Task folders: start one, check it.")
app.add_typer(task, name="task")


@task.command(epilog=example("kernel-runner task new row_max --directory tasks/problems"))
def new(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    directory: Annotated[
        Path, typer.Option("--directory", metavar="D", help="Make it here.", exists=True, file_okay=False)
    ] = Path(),
) -> None:
    """Start a task: a complete folder that passes `task check` as it is.

    If `eval.py` and `utils.py` lie in the directory, as in `tasks/problems/`, the task uses them; else it stands
    alone. An existing folder is not touched.
    """
    if not _NAME.fullmatch(name):
        raise TaskError(
            f"task name is {name!r}, expected a letter and then up to 99 letters, digits, '_' and '-': "
            "it names a folder and a leaderboard"
        )
    folder = directory / name
    shared = all((directory / file).is_file() for file in ("eval.py", "utils.py"))
    texts = {path.relative_to(_SKELETON).as_posix().removesuffix(".in"): path for path in _SKELETON.rglob("*.in")}
    if not shared:
        texts["utils.py"] = Path(tasks.__file__).parent / "problems" / "utils.py"
    try:
        folder.mkdir()
        for file, source in texts.items():
            text = source.read_text(encoding="utf-8").replace("{{eval}}", "../eval.py" if shared else HARNESS)
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text.replace("{{utils}}", "../utils.py" if shared else "utils.py"), "utf-8")
    except FileExistsError as error:
        raise TaskError(f"{folder} is there already; choose another name, or another --directory") from error
    except OSError as error:
        raise TaskError(f"{folder} cannot be written ({error.strerror}); choose another --directory") from error
    note(f"{folder} is a whole task; change it, then: kernel-runner task check {folder}")


@task.command(epilog=example("kernel-runner task check tasks/problems/vectoradd"))
def check(  # noqa: C901 a list of questions, one after the other
    context: typer.Context,
    *,
    source: Annotated[Path, typer.Argument(metavar="DIR_OR_ZIP", exists=True)],
    gpu: Annotated[str, typer.Option("--gpu", metavar="T", help="GPU type whose cases run.")] = "CPU",
    emulate_cuda: evaluate.EmulateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check a task folder before it is published.

    First reads it as `leaderboard create` does; an error names file, key, what was found and what is expected (exit
    code 2). Then runs its code in the evaluation environment on this host's devices, without a container. Lines (exit
    code 1 if one fails):

    - a GPU type: it has tests and benchmarks, none twice; its memory holds them, by `memory` or `bytes` in runner.yml;
    `world_size` is one number, at most the type's devices. Shows a perfect kernel's times.

    - `cases`: each generates, also with the largest seed of a secret run, and fits the memory as the judge counts it.

    - `hidden cases`: there are some.

    - `seed`: the same seed gives the same inputs, another gives others in every timed case.

    - `reference`: `check_implementation` accepts `ref_kernel`, computed from copies of the inputs.

    - `output`: the reference's has elements, and no NaN.

    - `check of`: outputs with one NaN, shifted by one, of zeros, of their mean everywhere, and right for another seed
    are refused, each of several by itself. Accepted on all cases fails, on some warns.

    - `inputs`: an answer for another seed's values of one input is refused on some case. A note names those that
    do not depend on the seed.

    - `digits`: outputs with the digits of a narrower type than the task states are refused on some case. It states that
    of the output, or `math` in runner.yml.

    - `solutions/`: `correct/*.py` are accepted, `wrong/*.py` refused; each case runs twice, first with that seed.

    - `template`: parses; where this host has what it compiles for, also imports and defines `custom_kernel`.

    - `test_timeout`, `ranked_timeout`: longer than the judge's own work, on this host.

    A table shows each case's bytes and times. Solutions and templates of `lang: cu` are not tried. Without
    `eval_python`, or with an eval program of its own, the code does not run. A warning says so.
    """
    config = session(context).config
    registry = Registry.load(config.gpus_dir)
    gpu_type = registry.get(gpu)
    if emulate_cuda:
        gpu_type = evaluate.emulating(gpu_type)
    folder = load(source)
    if not as_json:
        out(render.task_page(folder))
    findings: list[Finding] = []
    measured: list[MeasuredCase] = []

    def report(finding: Finding) -> None:
        findings.append(finding)
        if not as_json:
            out(render_finding(finding))

    for finding in offered(folder, registry):
        report(finding)
    if config.eval_python is None:
        remedy = "set eval_python in the configuration, or KERNEL_RUNNER_EVAL_PYTHON"
        report(Finding(name="code", mark=Mark.WARNING, fact="not run: eval_python is not set", remedy=remedy))
    else:
        for message in rehearse(folder, source, gpu_type, config.require_eval_python()):
            if isinstance(message, MeasuredCase):
                measured.append(message)
            else:
                report(message)
    code = verdict_of(findings)
    if as_json:
        checks = [finding.to_json() for finding in findings]
        cases = [asdict(case) for case in measured]
        out_json({"ok": not code, **_document(folder), "checks": checks, "measured": cases})
    elif measured:
        out(render.measured_table(measured))
    raise typer.Exit(code)


def _document(folder: TaskFolder) -> dict[str, Any]:
    """What `task check` found: the counts that its table shows."""
    checked = folder.task
    types = tuple(dict.fromkeys((*folder.gpus, *checked.extra.cases)))
    cases = {gpu: checked.cases_for(gpu) for gpu in types}
    return {
        "name": folder.name,
        "lang": checked.lang.value,
        "harness": checked.harness.value,
        "ranking_by": checked.ranking_by.value,
        "gpus": list(folder.gpus),
        "files": sorted(checked.files),
        "templates": sorted(folder.templates),
        "tests": len(checked.tests),
        "benchmarks": len(checked.benchmarks),
        "cases": {
            gpu: {
                "tests": len(lists.tests or ()),
                "benchmarks": len(lists.benchmarks or ()),
                "hidden": len(lists.hidden or ()),
            }
            for gpu, lists in cases.items()
        },
    }
