"""How much memory a case's tensors have on a GPU type, and which cases cannot fit. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runner.base.errors import TaskError
from runner.base.gpu_types.model import GpuType, Vendor
from runner.task_format.model import Case, Harness, Task
from runner.task_format.work import WorkError, work

#: The part of its memory that one case's tensors may fill (inputs, outputs, copies); torch takes the rest.
_TENSOR_MEMORY_SHARE = 0.5
#: What a rank without a device needs beside tensors: two processes with torch, and room to breathe.
_RANK_GIB = 0.75


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory that a case's tensors share on a GPU type."""

    gib: float
    #: Whose it is, as words in a sentence.
    name: str


def memory_of(gpu: GpuType, harness: Harness) -> Memory:
    """What bounds a case's tensors: its devices' own memory, and the container's where they must pass through that."""
    container = Memory(gib=gpu.memory_gib, name=f"the {gpu.memory_gib:g} GiB of {gpu.name}'s container")
    if gpu.vendor is Vendor.NONE or gpu.device.memory_gib is None:
        return container
    each = f"{gpu.count} x {gpu.device.memory_gib:g} GiB" if gpu.count > 1 else f"{gpu.device.memory_gib:g} GiB"
    devices = Memory(gib=gpu.device.memory_gib * gpu.count, name=f"the {each} of {gpu.name}'s device memory")
    # Under the built-in harness inputs and outputs cross between judge and worker in the host's memory.
    return min(devices, container, key=lambda memory: memory.gib) if harness is Harness.BUILTIN else devices


def tensor_bytes(gpu: GpuType, harness: Harness = Harness.BUILTIN, *, needed_bytes: float = 0) -> int:
    """How many bytes of tensors a case may hold on a GPU type, in judge and workers together.

    Args:
        gpu: the type.
        harness: who judges.
        needed_bytes: what the task's largest case needs by its `memory`: a larger share of what there is.
    """
    return int(max(memory_of(gpu, harness).gib * (1 << 30) * _TENSOR_MEMORY_SHARE, needed_bytes))


def moved_bytes(task: Task, case: Case) -> float:
    """What a case reads and writes by the task's `bytes`; 0 where that says nothing, as it may for a test."""
    if task.extra.bytes is None:
        return 0.0
    try:
        return work(task.extra.bytes, case)
    except WorkError:
        return 0.0


def needed_bytes(task: Task, cases: Iterable[Case]) -> float:
    """What the largest of some cases needs by the task's `memory`; 0 where that says nothing."""
    expression = task.extra.memory
    return 0 if expression is None else max((work(expression, case) for case in cases), default=0)


def misfit(task: Task, case: Case, gpu: GpuType) -> str | None:
    """Why a case cannot fit a GPU type whatever a submission does, as a sentence; None if it may."""
    memory = memory_of(gpu, task.harness)
    # A value that is read and then written in place counts twice in `bytes`.
    stated, moved = needed_bytes(task, [case]), moved_bytes(task, case) / 2
    least_gib = max(stated, moved) / (1 << 30)
    if least_gib <= memory.gib:
        return None
    need = (
        f"needs {least_gib:.4g} GiB of memory (its `memory`)"
        if stated >= moved
        else f"has at least {least_gib:.4g} GiB of tensors (half of its `bytes`)"
    )
    line = "; ".join(f"{name}: {value}" for name, value in case.items())
    return f"case {line} {need}, more than {memory.name}"


def unused_cases(task: Task, gpu: GpuType) -> str | None:
    """Which of a task's cases no run on a GPU type uses, as a sentence: those under an alias; None: none."""
    alias = next((alias for alias in gpu.aliases if alias in task.extra.cases), None)
    return alias and f"runner.yml has cases for {alias}, expected them for {gpu.name}, whose alias it is"


def require_fit(task: Task, cases: Iterable[Case], gpu: GpuType, *, owner: str) -> None:
    """Refuse cases that cannot fit a GPU type.

    Raises:
        TaskError: what the first of them needs, what the type has, and how to mend it. It begins with `owner`.
    """
    for case in cases:
        problem = misfit(task, case, gpu)
        if problem is not None:
            raise TaskError(
                f"{owner}: {problem} (give this GPU type smaller cases in runner.yml, or do not offer the leaderboard "
                "on it)"
            )


def ranks_without_devices(gpu: GpuType) -> int:
    """For how many ranks a type without accelerator has room."""
    return int(gpu.memory_gib / _RANK_GIB)
