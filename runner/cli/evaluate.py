"""`eval`: evaluate one file against one task folder on this host, without a database.

For task authors, and for operators who want to see what a submission does on this host. It goes the way of every job
from the plan on (`runner.evaluation.evaluate`), with a Job record made for this purpose.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from runner.base.config import Config
from runner.base.errors import CancelledByRequest, ConfigError
from runner.base.gpu_types import GpuType, Registry, Vendor
from runner.base.model import Mode, Progress, Slot, SubmissionJob, Verdict
from runner.cli import render_submission
from runner.cli.app import ExitCode, app, example, note, out, out_json, session
from runner.cli.arguments import read_submission
from runner.cli.progress import ProgressLine
from runner.cli.view import from_result
from runner.devices import detect_slots
from runner.evaluation.evaluate import Evaluator
from runner.task_format import extra_to_stored, load, to_stored
from runner.task_format.model import TaskFolder
from sandbox.errors import NotReaped
from sandbox.host.engine import DockerEngine

EmulateOption = Annotated[
    bool,
    typer.Option("--emulate-cuda", help="Give a type without devices one emulated CUDA device."),
]


class LocalMode(StrEnum):
    """The modes that make sense without a leaderboard: there is no secret seed here."""

    TEST = "test"
    BENCHMARK = "benchmark"
    LEADERBOARD = "leaderboard"
    PROFILE = "profile"


@app.command(
    "eval",
    epilog=example("kernel-runner eval tasks/problems/vectoradd mine.py --mode benchmark"),
)
def evaluate(
    context: typer.Context,
    *,
    directory: Annotated[Path, typer.Argument(metavar="DIR_OR_ZIP", exists=True)],
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    gpu: Annotated[str, typer.Option("--gpu", metavar="T", help="GPU type.")] = "CPU",
    mode: Annotated[LocalMode, typer.Option("--mode", help="What to run.")] = LocalMode.TEST,
    emulate_cuda: EmulateOption = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print an object as in `jobs` of `status --json`; its `id` is null.")
    ] = False,
) -> None:
    """Evaluate a file on this host, without a database.

    The file runs as a submission does: same container, limits and harness. There is no secret run, and seeds are the
    task's own.

    With --emulate-cuda, programs that name a CUDA device run in host memory (docs/adding-a-task.md#without-a-gpu).
    Times mean little; compiled device code (Triton, CUDA) and mode `leaderboard` are refused.
    """
    config = session(context).config
    registry = Registry.load(config.gpus_dir)
    gpu_type = registry.get(gpu)
    if emulate_cuda:
        gpu_type = emulating(gpu_type)
        registry = Registry(gpu_type if entry.name == gpu_type.name else entry for entry in registry.all())
    job = make_job(load(directory), file.name, read_submission(file), gpu_type.name, Mode(mode.value))
    slot = find_slot(registry, config, gpu_type)
    with local_evaluator(config, registry) as (evaluator, cancel), ProgressLine() as line:
        line.show(f"starting a container for {gpu_type.name}")

        def forward(progress: Progress) -> None:
            line.show(render_submission.progress_text(progress))

        result = evaluator.run(job, slot, cancel=cancel, on_progress=forward)
    if as_json:
        out_json(from_result(job, result).to_json())
    else:
        out(render_submission.job_block(from_result(job, result)))
    raise typer.Exit(ExitCode.OK if result.verdict is Verdict.ACCEPTED else ExitCode.NOT_ACCEPTED)


@contextmanager
def local_evaluator(config: Config, registry: Registry) -> Iterator[tuple[Evaluator, threading.Event]]:
    """An evaluator without a daemon, and the event that Ctrl-C sets, which ends the command in order."""
    config.require_eval_python()
    # One run has no use for what waits beside it.
    config = config.model_copy(update={"warm_containers": 0, "build_workers": 0})
    engine = DockerEngine(config.docker_host, owner=f"{config.host_name}/eval")
    try:
        with _interruptible() as cancel:
            # Remove what killed calls have left; what will not go is no error here.
            with suppress(NotReaped):
                engine.reap_orphans()
            evaluator = Evaluator(engine, registry, config)
            try:
                yield evaluator, cancel
            finally:
                evaluator.close()
    except CancelledByRequest:
        note("kernel-runner: stopped; the container is gone")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        engine.close()


def emulating(gpu_type: GpuType) -> GpuType:
    """The type with a CUDA device that is emulated on its cores.

    Raises:
        typer.BadParameter: it has devices of its own.
    """
    if gpu_type.vendor is not Vendor.NONE:
        raise typer.BadParameter(
            f"found GPU type {gpu_type.name} (vendor {gpu_type.vendor}), expected one without devices, such as CPU",
            param_hint="--emulate-cuda",
        )
    return replace(gpu_type, emulate_cuda=True)


def make_job(folder: TaskFolder, file_name: str, code: bytes, gpu_type: str, mode: Mode) -> SubmissionJob:
    """A claimed job as the store would hand it out, for a board that exists only here."""
    now = datetime.now(UTC)
    return SubmissionJob(
        id=0,
        attempt=1,
        submission_id=0,
        leaderboard=folder.name,
        gpu_type=gpu_type,
        mode=mode,
        secret=False,
        user_id="local",
        file_name=file_name,
        code=code,
        task=to_stored(folder.task),
        extra=extra_to_stored(folder.task.extra),
        # No secret run is made, so this seed is never used.
        secret_seed=0,
        failures=0,
        created_at=now,
        started_at=now,
    )


def find_slot(registry: Registry, config: Config, gpu_type: GpuType) -> Slot:
    """A slot of this host for the type. A host with accelerators offers no CPU slots by itself; here it makes one.

    Raises:
        ConfigError: the host has none.
    """
    if gpu_type.vendor is Vendor.NONE:
        config = config.model_copy(update={"slots": "auto", "cpu_slots": 1})
        # Only the CPU type's are made by themselves; those of another type without devices are no different.
        slots = [replace(slot, gpu_type=gpu_type.name) for slot in detect_slots(registry, config) if not slot.devices]
    else:
        slots = list(detect_slots(registry, config, complete=False))
    chosen = next((slot for slot in slots if slot.gpu_type == gpu_type.name), None)
    if chosen is None:
        here = ", ".join(sorted({slot.gpu_type for slot in slots})) or "none"
        raise ConfigError(
            f"this host has no slot for GPU type {gpu_type.name}; found {here} "
            "(give --gpu one of these, or configure `slots`)"
        )
    return chosen


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that the container is removed in order; a second Ctrl-C does not wait for that."""
    cancel = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if cancel.is_set():
            signal.default_int_handler(number, frame)
        cancel.set()

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, previous)
