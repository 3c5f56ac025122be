"""Evaluates a group of PyTorch modules on one slot: one container, one reference, its candidates one after the other.

The container's layout and policy are those of every job. A group has no leaderboard, no task and no build: its result
is one dict for each candidate (docs/trainers.md).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.errors import CancelledByRequest, EvaluationError
from runner.evaluation.attempt import HostResources, OnProgress, execute
from runner.evaluation.case_memory import tensor_bytes
from runner.evaluation.container_spec import Environment, job_labels, make_spec, pair_boot
from runner.evaluation.groups import FoundGroup
from runner.evaluation.plan import Plan
from runner.evaluation.reference_times import KeptTimes, key_of
from runner.gpu_types.model import GpuType, Vendor
from runner.logs import get_logger
from runner.model import Job, Slot
from runner.task_format.model import Harness
from sandbox.host.container import ContainerReport
from sandbox.protocol import PairRequest, StepResult
from sandbox.spec import Ending, SandboxSpec
from tasks.harness.judge.modules.group import Group, GroupError, Result, failed_results
from tasks.harness.judge.modules.reference_times import last_reported
from tasks.harness.judge.modules.request import payload_of

#: Added to what the candidates may take: imports of torch, preparing the reference, killing.
_MARGIN_S = 60.0
_KILLED = "signal 9"
#: Parts of a candidate's evaluation that the judge times, and more milliseconds than any takes.
_PARTS = frozenset({"worker", "compile", "construct", "correctness", "timing", "reference_timing", "done"})
_MOST_MS = 1e9

_log = get_logger(__name__)

Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class GroupHost:
    """What a group needs of the host that evaluates it."""

    #: What all evaluations of the host share.
    resources: HostResources
    #: Times of references that earlier groups have left.
    times: KeptTimes
    gpu: GpuType
    #: The inside of the type's containers.
    environment: Environment
    #: The operator's limit of one container's run.
    max_run_s: float
    #: The container that waits for the slot's next job.
    waiting: SandboxSpec


def evaluate_group(
    host: GroupHost,
    group: Mapping[str, Any],
    *,
    slot: Slot,
    gpu_type: str,
    cancelled: threading.Event,
    job: Job | None = None,
    on_progress: OnProgress | None = None,
) -> FoundGroup:
    """Judge a group on a slot, which evaluates no other job meanwhile.

    Args:
        host: what `Evaluator.group_host` says of it.
        group: its JSON form (docs/trainers.md).
        slot: where it runs.
        gpu_type: of the group; the slot's.
        cancelled: set by another thread to stop the run.
        job: for the containers' labels.
        on_progress: called from this thread whenever there is progress.

    Returns:
        One result for each candidate, in the group's order, and where the time went. A candidate of which nothing was
        heard has the verdict `internal_error`.

    Raises:
        CancelledByRequest: `cancelled` was set, and the container is gone.
        EngineUnavailableError: the engine went away, or refuses containers.
        EvaluationError: the slot cannot be used, or a container cannot be started.
    """
    if gpu_type != slot.gpu_type:
        raise EvaluationError(f"the group is for {gpu_type}, slot {slot.name} is of type {slot.gpu_type}")
    try:
        parsed = Group.from_message(group)
    except GroupError as error:
        return FoundGroup(rows=failed_results(group, "invalid", str(error)), phases_ns={})
    parts = _parts(group, parsed)
    resources = host.resources
    labels = {"kernel-runner.job": "group"} if job is None else job_labels(job)
    rows: Rows = []
    phases: Counter[str] = Counter()
    key = key_of(parsed, slot, image=host.environment.image, runtime=host.gpu.runtime)
    with resources.using(slot, host.waiting):
        for part in parts:
            plan = make_group_plan(
                part,
                gpu=host.gpu,
                slot=slot,
                environment=host.environment,
                max_run_s=host.max_run_s,
                labels=labels,
                reference_times={} if parsed.settings.fresh_reference else host.times.get(key),
            )
            began_ns = time.monotonic_ns()
            executed = execute(plan, slot, resources, cancel=cancelled, on_progress=on_progress)
            with executed as (report, ready_ns):
                ended_ns = time.monotonic_ns()
            phases.update(phases_of(report, spans_ns=(began_ns, ready_ns, ended_ns, time.monotonic_ns())))
            if report.outcome.ending is Ending.CANCELLED:
                raise CancelledByRequest("the group was cancelled")
            rows += rows_of(part, report)
            reported = last_reported(report.steps)
            if reported is not None and not host.times.put(key, reported):
                _log.warning("reference_times_dropped", slot=slot.name)
    return FoundGroup(rows=rows, phases_ns=dict(phases))


def make_group_plan(
    group: Mapping[str, Any],
    *,
    gpu: GpuType,
    slot: Slot,
    environment: Environment,
    max_run_s: float,
    labels: Mapping[str, str],
    reference_times: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan one container for a group. Pure.

    `reference_times`: what is known of its reference's times.

    Raises:
        GroupError: the group cannot be read.
    """
    parsed = Group.from_message(group)
    # The reference may take as long as a candidate.
    wall_s = _MARGIN_S + (len(parsed.candidates) + 1) * parsed.settings.timeout_s
    device = "cpu" if gpu.vendor is Vendor.NONE and not gpu.emulate_cuda else "cuda"
    payload = payload_of(group, device=device, memory_bytes=tensor_bytes(gpu), reference_times=reference_times)
    boot = pair_boot(environment)
    return Plan(
        spec=make_spec(gpu, slot, environment, boot, wall_s=min(wall_s, max_run_s), labels=dict(labels)),
        request=PairRequest(payload=payload, successive=True),
        harness=Harness.BUILTIN,
        run_names=tuple(f"candidate.{candidate.id}" for candidate in parsed.candidates),
        case_counts={},
    )


def rows_of(group: Mapping[str, Any], report: ContainerReport) -> Rows:
    """A container's report as results, in the group's order. Pure."""
    found = {
        row["id"]: row for step in report.steps if (row := _row_of(step)) is not None and row["verdict"] is not None
    }
    parsed = Group.from_message(group)
    oom = bool(report.outcome.oom_kills)
    lost = _why_lost(report)
    rows = []
    for candidate in parsed.candidates:
        row = found.get(candidate.id)
        if row is None:
            alone = oom and len(parsed.candidates) - len(found) == 1
            verdict, stage = ("memory_limit", "correctness") if alone else ("internal_error", "reference")
            text = "the candidate used up the container's memory" if alone else lost
            row = Result(id=candidate.id, verdict=verdict, stage=stage, message=text).to_message()
        elif oom and row["verdict"] == "runtime_error" and _KILLED in row["message"]:
            # Only the cgroup knows why the kernel killed a process.
            row = {**row, "verdict": "memory_limit", "message": "the candidate used up the container's memory"}
        rows.append(row)
    return rows


def phases_of(report: ContainerReport, *, spans_ns: tuple[int, int, int, int]) -> dict[str, int]:
    """Where the time of a group's container went, in nanoseconds. Pure.

    Args:
        report: the container's.
        spans_ns: when the container was asked for, was ready, had reported and was gone, on one clock.
    """
    began_ns, ready_ns, ended_ns, gone_ns = spans_ns
    phases: Counter[str] = Counter(container=ready_ns - began_ns, removal=gone_ns - ended_ns)
    steps = [step for step in report.steps if step.judged is not None]
    for step in steps:
        parts = step.judged.details.get("parts_ms") if step.judged is not None else None
        for name, value in parts.items() if isinstance(parts, Mapping) else ():
            # The container says so; this is for people and statistics.
            if name in _PARTS and type(value) in (int, float) and 0 <= value < _MOST_MS:
                phases[name] += round(value * 1e6)
    if steps:
        phases["reference"] = max(0, steps[0].start_ns - steps[0].duration_ns)
        phases["import"] = max(0, ended_ns - ready_ns - steps[-1].start_ns)
    return dict(phases)


def _row_of(step: StepResult) -> dict[str, Any] | None:
    row = None if step.judged is None else step.judged.details.get("module")
    expected = set(Result.__dataclass_fields__)
    return row if isinstance(row, dict) and set(row) == expected and type(row["id"]) is int else None


def _why_lost(report: ContainerReport) -> str:
    if report.outcome.ending is Ending.DEADLINE:
        return "the container's time ended before this candidate had a result"
    said = report.message or report.outcome.detail or f"the container ended ({report.outcome.ending})"
    return f"the evaluation broke: {said}"[:2000]


def _parts(group: Mapping[str, Any], parsed: Group) -> Sequence[Mapping[str, Any]]:
    """What goes into one container each: the group, or every candidate alone."""
    if not parsed.settings.separate_containers:
        return (group,)
    return [{**group, "candidates": [candidate]} for candidate in group["candidates"]]
