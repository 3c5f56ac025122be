"""`task check`: finds faults of a task folder before participants do.

Owns the questions that need no code (`offered`) and the calls of `rehearsal`. That program runs the task's code
as a process in the evaluation environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tasks
from runner.base.environment import process_environment
from runner.base.errors import NotFoundError
from runner.base.gpu_types import GpuType, Registry, Vendor
from runner.base.marks import visible
from runner.base.units import duration, size
from runner.cli.arguments import read_submission
from runner.cli.finding import Finding, Mark
from runner.evaluation.speed_of_light import speed_of_light
from runner.extras.boards.fork_server import END_WITH_PARENT
from runner.task_format.case_memory import (
    memory_of,
    misfit,
    moved_bytes,
    needed_bytes,
    ranks_without_devices,
    tensor_bytes,
    unused_cases,
)
from runner.task_format.model import Case, CaseSet, Harness, Lang, TaskFolder
from sandbox.host.stage import stage
from sandbox.protocol import AUTHOR_PAGE_BYTES, AUTHOR_PAGE_FD, AuthorExit
from tasks.harness.judge.cases import LARGEST_SEED, spec_line

_PROGRAM = (
    f"{END_WITH_PARENT}; import sys; sys.path.insert(0, sys.argv[1]); from rehearsal import main; sys.exit(main())"
)
#: What the program needs, by its place below the folder that is on its path.
_CODE = {
    **{f"tasks/{name}": Path(tasks.__file__).parent / name for name in ("__init__.py", "harness")},
    "rehearsal.py": Path(__file__).with_name("rehearsal.py"),
    "runner/extras/boards/fork_server.py": Path(__file__).parents[1] / "fork_server.py",
}
#: Seconds for the interpreter to start and for what is not a submission.
_MARGIN_S = 180.0
#: Seconds for the rehearsal to end its own processes.
_GRACE_S = 5.0
#: Warm-ups and timed calls that the judge makes of a case at least.
_LEAST_CALLS = 5
#: How much is shown of what another program says.
_SAID_BYTES = 40


@dataclass(frozen=True, kw_only=True)
class MeasuredCase:
    """What one case takes; on the device that is here, so times are no ranking's."""

    spec: str
    input_bytes: int
    #: None where the reference was not run.
    output_bytes: int | None
    generate_ns: int
    reference_ns: int | None
    check_ns: int | None


def offered(folder: TaskFolder, registry: Registry) -> Iterator[Finding]:
    """Whether the cases of each GPU type that the task names fit it, as far as numbers tell."""
    gpus: dict[str, GpuType] = {}
    for name in dict.fromkeys((*folder.gpus, *folder.task.extra.cases)):
        try:
            gpu = registry.get(name)
        except NotFoundError as error:
            remedy = "correct the name, or describe the type in the registry of its hosts"
            yield Finding(name=name, mark=Mark.WARNING, fact=str(error), remedy=remedy)
        else:
            gpus[gpu.name] = gpu
    for gpu in gpus.values():
        yield _fit(folder, gpu)
        twice = _twice(folder.task.cases_for(gpu.name))
        if twice:
            remedy = "give one of them another seed or other arguments: it is made, timed and counted twice"
            yield Finding(name=gpu.name, mark=Mark.WARNING, fact=f"{twice} a second time", remedy=remedy)
        if folder.task.harness is Harness.BUILTIN and not folder.task.cases_for(gpu.name).hidden:
            remedy = "add tests to `hidden` in runner.yml that differ from the others in what a shortcut could rely on"
            yield Finding(name="hidden cases", mark=Mark.WARNING, fact=f"none for {gpu.name}", remedy=remedy)


def _fit(folder: TaskFolder, gpu: GpuType) -> Finding:
    own = folder.task.cases_for(gpu.name)
    cases = own.every
    fault = unused_cases(folder.task, gpu) or _missing(own)
    if fault:
        remedy = "give it tests and benchmarks in task.yml, or cases of its own in runner.yml"
        return Finding(name=gpu.name, mark=Mark.FAILED, fact=fault, remedy=remedy)
    if folder.task.multi_gpu:
        sizes = sorted({int(str(case["world_size"])) for case in cases})
        most = ranks_without_devices(gpu) if gpu.vendor is Vendor.NONE else gpu.count
        if len(sizes) > 1 or sizes[0] > most:
            fact = f"world_size {', '.join(map(str, sizes))}, expected one number for all cases, at most {most}"
            remedy = "give the type cases of its own in runner.yml, or do not offer the task on it"
            return Finding(name=gpu.name, mark=Mark.FAILED, fact=fact, remedy=remedy)
    for case in cases:
        problem = misfit(folder.task, case, gpu)
        if problem is not None:
            remedy = "give the type smaller cases in runner.yml, or do not offer the task on it"
            return Finding(name=gpu.name, mark=Mark.FAILED, fact=problem, remedy=remedy)
    if folder.task.extra.bytes is None:
        return Finding(name=gpu.name, mark=Mark.OK, fact=f"{len(cases)} cases")
    moved, largest = max(((moved_bytes(folder.task, case), case) for case in cases), key=lambda pair: pair[0])
    budget = tensor_bytes(gpu, folder.task.harness, needed_bytes=needed_bytes(folder.task, cases))
    # The judge keeps inputs twice; `bytes` counts what is read and written once, which is close to that from above.
    if 2 * moved > budget:
        fact = (
            f"case {spec_line(largest)} moves {size(moved)} by `bytes`, twice that is more than the {size(budget)} "
            f"that its tensors may hold of {memory_of(gpu, folder.task.harness).name}"
        )
        remedy = f"check with --gpu {gpu.name} on such a host, or give the type smaller cases in runner.yml"
        return Finding(name=gpu.name, mark=Mark.WARNING, fact=fact, remedy=remedy)
    best = _best(folder, gpu)
    return Finding(name=gpu.name, mark=Mark.OK, fact=f"{len(cases)} cases, the largest moves {size(moved)}{best}")


def _missing(cases: CaseSet) -> str:
    """Which lists of cases are empty that a ranked run needs; empty: none."""
    return ", ".join(f"no {kind}" for kind in ("tests", "benchmarks") if not getattr(cases, kind))


def _twice(cases: CaseSet) -> str:
    """The first case that one list has twice, with the list's name; empty: none."""
    for name in ("tests", "benchmarks", "hidden"):
        listed: tuple[Case, ...] = getattr(cases, name) or ()
        for index, case in enumerate(listed):
            if case in listed[:index]:
                return f"{name} has {spec_line(case)}"
    return ""


def _best(folder: TaskFolder, gpu: GpuType) -> str:
    """What perfect kernels would take, as the end of a sentence: an author sees whether the work is stated right."""
    lights = [speed_of_light(folder.task, case, gpu) for case in folder.task.cases_for(gpu.name).benchmarks or ()]
    times = [light.sol_ns for light in lights if light.sol_ns is not None]
    if not times:
        return ""
    limits = " and ".join(dict.fromkeys(light.limit for light in lights if light.limit is not None))
    return f", benchmarks take {duration(min(times))} to {duration(max(times))} at the speed of light ({limits})"


def rehearse(folder: TaskFolder, source: Path, gpu: GpuType, python: Path) -> Iterator[Finding | MeasuredCase]:
    """Run the task's code on the cases of a GPU type and report what it does, as it goes.

    Args:
        folder: the task.
        source: where it was loaded from; solutions are looked for if it is a folder.
        gpu: whose cases; the device is CUDA's or ROCm's where there is one, or an emulated one if the type says so.
        python: interpreter of the evaluation environment.
    """
    if folder.task.harness is not Harness.BUILTIN:
        fact = (
            "evaluated by its own eval program, in whose process a submission can forge verdict and times; neither "
            "cases nor solutions were tried"
        )
        remedy = "try solutions one by one with `kernel-runner eval`"
        if folder.task.lang is Lang.PY:
            remedy += ", or write `harness: builtin` in runner.yml"
        yield Finding(name="code", mark=Mark.WARNING, fact=fact, remedy=remedy)
        return
    if gpu.emulate_cuda and folder.task.multi_gpu:
        remedy = "check it without --emulate-cuda: its ranks share the cores then"
        yield Finding(name="code", mark=Mark.WARNING, fact="not run: one CUDA device is emulated", remedy=remedy)
        return
    own = folder.task.cases_for(gpu.name)
    cases = own.every
    missing = _missing(own)
    if missing:
        yield Finding(name="cases", mark=Mark.FAILED, fact=f"{missing} for {gpu.name}", remedy="give the task some")
        return
    compiled = folder.task.lang is Lang.CU
    solutions = {kind: {} if compiled else _solutions(source, kind) for kind in ("correct", "wrong")}
    yield from _lacking(source, solutions, compiled=compiled)
    trial_s = 2.0 * (folder.task.test_timeout_s + folder.task.benchmark_timeout_s)
    request = {
        "files": folder.task.judge_files,
        "worker_files": folder.task.worker_files,
        "submission_name": folder.task.submission_name,
        "seed": folder.task.seed,
        "ranks": int(str(cases[0]["world_size"])) if folder.task.multi_gpu else None,
        "memory_bytes": tensor_bytes(gpu, needed_bytes=needed_bytes(folder.task, cases)),
        "emulate_cuda": gpu.emulate_cuda,
        "lines": [spec_line(case) for case in cases],
        "timed_lines": [spec_line(case) for case in own.benchmarks or ()],
        "math": folder.task.extra.math,
        # Other data of the same shape first: an answer from memory is wrong then.
        "trial_lines": [spec_line(each) for case in cases for each in (_with_secret_seed(case), case)],
        "trial_timeout_s": trial_s,
        "templates": {} if compiled else folder.templates,
        **solutions,
    }
    limit_s = _MARGIN_S + trial_s * (1 + sum(map(len, solutions.values()))) + _MARGIN_S * len(folder.templates)
    measured: dict[str, MeasuredCase] = {}
    with tempfile.TemporaryDirectory(prefix="kernel-runner-") as place:
        for message in _converse(request, Path(place), python, limit_s):
            if isinstance(message, MeasuredCase):
                measured[message.spec] = message
            yield message
    yield from _slow(folder, own, measured)


def _slow(folder: TaskFolder, own: CaseSet, measured: Mapping[str, MeasuredCase]) -> Iterator[Finding]:
    """Whether the judge's own work alone exceeds a mode's time."""
    for key, limit_s, calls, cases in (
        ("test_timeout", folder.task.test_timeout_s, 1, (*(own.tests or ()), *(own.hidden or ()))),
        ("ranked_timeout", folder.task.ranked_timeout_s, _LEAST_CALLS, own.benchmarks or ()),
    ):
        costs = [measured[line] for line in map(spec_line, cases) if line in measured]
        needed_s = calls * sum(cost.generate_ns + (cost.check_ns or 0) for cost in costs) / 1e9
        if needed_s > limit_s:
            yield Finding(
                name=key,
                mark=Mark.WARNING,
                fact=f"inputs and checks of {calls} calls of each case take {needed_s:.0f} s here, of {limit_s:g} s",
                remedy="make reference and inputs faster or cases smaller, or raise the limit in task.yml",
            )


def _converse(
    request: Mapping[str, Any], place: Path, python: Path, limit_s: float
) -> Iterator[Finding | MeasuredCase]:
    # Never the daemon's own environment on the path: its packages are not those submissions get.
    root = stage(place / "stage", _CODE)
    inbox = place / "request.json"
    inbox.write_text(json.dumps(request), encoding="utf-8")
    page = os.memfd_create("author page")
    os.ftruncate(page, AUTHOR_PAGE_BYTES)
    with contextlib.closing(os.fdopen(page, "rb")), inbox.open("rb") as stdin, (place / "stderr").open("w+b") as stderr:
        try:
            process = subprocess.Popen(
                [str(python), "-P", "-c", _PROGRAM, str(root)],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=place,
                env={**process_environment(), AUTHOR_PAGE_FD: str(page)},
                pass_fds=(page,),
                # Ctrl-C does not reach it: one SIGINT comes from here, a second would cut its clearing up short.
                start_new_session=True,
            )
        except OSError as error:
            yield _no_python(python, str(error.strerror))
            return
        late = threading.Event()
        through = False

        def stop() -> None:
            late.set()
            _end(process)

        timer = threading.Timer(limit_s, stop)
        timer.daemon = True
        timer.start()
        try:
            for line in process.stdout or ():
                try:
                    message = json.loads(line)
                except ValueError:
                    yield _no_python(python, f"it says {line[:_SAID_BYTES].decode(errors='replace').strip()!r}")
                    return
                through = "end" in message
                if not through:
                    yield _parsed(message)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_S)
        finally:
            timer.cancel()
            _end(process)
            if process.stdout is not None:
                process.stdout.close()
        if late.is_set():
            fact, remedy = f"did not end within {limit_s:g} s", "see what waits in reference.py, or raise the timeouts"
            yield Finding(name="code", mark=Mark.FAILED, fact=fact, remedy=remedy)
        elif not through:
            stderr.seek(0)
            last_line = stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            ended = AuthorExit.read(page, f"exit code {process.returncode}")
            what, remedy = "ended early", f"see that {python} imports torch"
            if ended is not None:
                where = f" in {ended.place}" if ended.place else ""
                what, remedy = f"{ended.call} ended its process{where}", "correct reference.py"
            fact = f"{what} with {process.returncode}: {last_line}"
            yield Finding(name="code", mark=Mark.FAILED, fact=fact, remedy=remedy)


def _no_python(python: Path, reason: str) -> Finding:
    fact = f"{python} is no Python interpreter ({reason})"
    remedy = "set eval_python to the interpreter of an environment with torch"
    return Finding(name="code", mark=Mark.FAILED, fact=fact, remedy=remedy)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the rehearsal; asked politely, it ends what it started itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
    if process.poll() is None:
        process.kill()
        process.wait()


def _parsed(message: Mapping[str, Any]) -> Finding | MeasuredCase:
    if "case" in message:
        return MeasuredCase(**message["case"])
    values = dict(message["finding"])
    return Finding(mark=Mark(values.pop("mark")), fact=values.pop("found"), **values)


def _solutions(source: Path, kind: str) -> Mapping[str, str]:
    """File name -> text of a folder's submissions of one kind."""
    if not source.is_dir():
        return {}
    paths = visible(source / "solutions" / kind, ".py")
    return {path.name: read_submission(path).decode("utf-8", errors="replace") for path in paths}


def _lacking(source: Path, solutions: Mapping[str, Mapping[str, str]], *, compiled: bool) -> Iterator[Finding]:
    if compiled or not source.is_dir():
        fact, remedy = "not looked for in an archive", "check the folder"
        if compiled:
            fact, remedy = "not tried, nor are templates: lang is cu", "try them with `kernel-runner eval`"
        yield Finding(name="solutions", mark=Mark.WARNING, fact=fact, remedy=remedy)
        return
    remedies = {
        "correct": "write one, so that the check is tried with something it must accept",
        "wrong": "write one that is wrong in the least visible way, so that the check is tried with it",
    }
    for kind, files in solutions.items():
        if not files:
            yield Finding(name=f"solutions/{kind}", mark=Mark.WARNING, fact="holds no .py file", remedy=remedies[kind])


def _with_secret_seed(case: Case) -> Case:
    return {**case, "seed": LARGEST_SEED} if type(case.get("seed")) is int else case
