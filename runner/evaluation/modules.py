"""Evaluates a group of PyTorch modules on one slot: one container, one reference, its candidates one after the other.

The container's layout and policy are those of every job. A group has no leaderboard and no task: its result is one dict
for each candidate (docs/trainers.md). Candidates that compile are built before the slot is used, each in a container of
its own, on cores that no slot uses. What is built goes to that candidate's worker alone.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from runner.errors import CancelledByRequest, EvaluationError
from runner.evaluation.attempt import (
    HostResources,
    OnProgress,
    cool_down,
    execute_sampled,
    inspect_after,
    inspect_before,
)
from runner.evaluation.build_cache import Build
from runner.evaluation.build_plan import REFUSED, compiles, make_module_build_plan
from runner.evaluation.case_memory import tensor_bytes
from runner.evaluation.container_spec import job_labels, make_spec, pair_boot
from runner.evaluation.context import Place
from runner.evaluation.groups import FoundGroup
from runner.evaluation.plan import Plan
from runner.evaluation.reference_times import KeptTimes, key_of
from runner.gpu_types.model import GpuType, Vendor
from runner.logs import get_logger
from runner.model import Job, Progress
from runner.task_format.model import Harness
from sandbox.host.build_archive import BuildArchive, JoinedArchives
from sandbox.host.container import ContainerReport
from sandbox.protocol import MAX_ARCHIVE_BYTES, PairRequest, StepResult
from sandbox.spec import Ending
from tasks.harness.judge.modules.group import CANDIDATES, Candidate, Group, GroupError, Result, failed_results
from tasks.harness.judge.modules.reference_times import last_reported
from tasks.harness.judge.modules.request import payload_of

#: Added to what the candidates may take: imports of torch, preparing the reference, killing.
_MARGIN_S = 60.0
_KILLED = "signal 9"
_MEMORY = "the candidate used up the container's memory"
#: Characters of what compilers said that a result keeps.
_MOST_SAID = 4000
#: Parts of a candidate's evaluation that the judge times, and more milliseconds than any takes.
_PARTS = frozenset({"worker", "compile", "construct", "correctness", "timing", "reference_timing", "done"})
_MOST_MS = 1e9

_log = get_logger(__name__)

Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class GroupHost(Place):
    """What a group needs of the host that evaluates it."""

    #: What all evaluations of the host share.
    resources: HostResources
    #: Times of references that earlier groups have left.
    times: KeptTimes
    #: The operator's limit of one container's run.
    max_run_s: float
    #: The operator's limit of one candidate's build.
    build_timeout_s: float


def evaluate_group(
    host: GroupHost,
    group: Mapping[str, Any],
    *,
    gpu_type: str,
    cancelled: threading.Event,
    job: Job | None = None,
    on_progress: OnProgress | None = None,
) -> FoundGroup:
    """Judge a group on a slot, which evaluates no other job meanwhile.

    Args:
        host: what `Evaluator.group_host` says of it.
        group: its JSON form (docs/trainers.md).
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
    slot = host.slot
    if gpu_type != slot.gpu_type:
        raise EvaluationError(f"the group is for {gpu_type}, slot {slot.name} is of type {slot.gpu_type}")
    try:
        parsed = Group.from_message(group)
    except GroupError as error:
        return FoundGroup(rows=failed_results(group, "invalid", str(error)), phases_ns={})
    parts = _parts(group, parsed)
    resources = host.resources
    labels = {"kernel-runner.job": "group"} if job is None else job_labels(job)
    run = _Run(host=host, labels=labels, cancelled=cancelled, on_progress=on_progress)
    began_ns = time.monotonic_ns()
    run.build(parsed, job_id=None if job is None else job.id)
    built_ns = time.monotonic_ns()
    with resources.using(host):
        if parsed.settings.timed_calls:
            cool_down(host, resources, cancel=cancelled)
        run.phases.update(build=built_ns - began_ns, wait=time.monotonic_ns() - built_ns)
        rows = [row for part in parts for row in run.judge(part, parsed)]
    return FoundGroup(rows=rows, phases_ns=dict(run.phases))


@dataclass(kw_only=True)
class _Run:
    """The evaluation of one group."""

    host: GroupHost
    labels: Mapping[str, str]
    cancelled: threading.Event
    on_progress: OnProgress | None
    #: Where the time goes, in nanoseconds.
    phases: Counter[str] = field(default_factory=Counter)
    #: By candidate: its build, and the nanoseconds that it took.
    builds: dict[int, tuple[Build, int]] = field(default_factory=dict)

    def build(self, group: Group, *, job_id: int | None) -> None:
        """Build the candidates that probably compile, as many at a time as there are build workers.

        Raises:
            CancelledByRequest: it was cancelled, and the containers are gone.
            EngineUnavailableError: no engine answers.
        """
        cache = self.host.resources.builds
        wanted = [candidate for candidate in group.candidates if compiles(candidate.code.encode("utf-8", "replace"))]
        if not wanted or not cache.wanted or not cache.workers:
            return
        timeout_s = min(self.host.build_timeout_s, group.settings.timeout_s)

        def make(candidate: Candidate) -> tuple[Build, int]:
            plan = make_module_build_plan(
                candidate,
                self.host,
                cpus=cache.cpus(self.host.slot, beside=True),
                build_timeout_s=timeout_s,
                labels=self.labels,
            )
            return cache.build(plan, what={"job": job_id, "candidate": candidate.id}, cancel=self.cancelled)

        threads = ThreadPoolExecutor(cache.workers, thread_name_prefix="build")
        try:
            made = [(candidate.id, threads.submit(make, candidate)) for candidate in wanted]
            for done, (number, found) in enumerate(made):
                if self.on_progress is not None:
                    self.on_progress(Progress(phase="build", done=done, total=len(made)))
                self.builds[number] = found.result()
        finally:
            # After a failure no further build begins, and no thread outlives the evaluation.
            threads.shutdown(cancel_futures=True)

    def judge(self, part: Mapping[str, Any], group: Group) -> Rows:
        """The results of the candidates of one container.

        Raises:
            CancelledByRequest, EngineUnavailableError, EvaluationError: as `evaluate_group`.
        """
        host, slot, resources = self.host, self.host.slot, self.host.resources
        key = key_of(group, slot, image=host.environment.image, runtime=host.gpu.runtime)
        ids = [candidate["id"] for candidate in part["candidates"]]
        builds = {number: self.builds[number][0] for number in ids if number in self.builds}
        refused = {number: said for number in builds if (said := refusal_of(builds[number], host.gpu)) is not None}
        archives = archives_of({number: build for number, build in builds.items() if number not in refused})
        plan = make_group_plan(
            part,
            host,
            max_run_s=host.max_run_s,
            labels=self.labels,
            reference_times={} if group.settings.fresh_reference else host.times.get(key),
            builds={**dict.fromkeys(archives), **refused},
            archives={str(number): archive.size_bytes for number, archive in archives.items()},
        )
        begun = threading.Event()

        def on_progress(progress: Progress) -> None:
            if progress.phase == CANDIDATES:
                begun.set()
            if self.on_progress is not None:
                self.on_progress(progress)

        before = inspect_before(host, resources, ranked=False)
        began_ns = time.monotonic_ns()
        executed = execute_sampled(
            plan,
            host,
            resources,
            cancel=self.cancelled,
            on_progress=on_progress,
            archive=JoinedArchives(list(archives.values())) if archives else None,
        )
        with executed as (report, ready_ns, _):
            ended_ns = time.monotonic_ns()
        self.phases.update(phases_of(report, spans_ns=(began_ns, ready_ns, ended_ns, time.monotonic_ns())))
        inspect_after(host, resources, before, report)
        if report.outcome.ending is Ending.CANCELLED:
            raise CancelledByRequest("the group was cancelled")
        times = last_reported(report.steps)
        if times is not None and not host.times.put(key, times):
            _log.warning("reference_times_dropped", slot=slot.name)
        memory_bytes = None if begun.is_set() else plan.spec.limits.memory_bytes
        return [with_build(row, self.builds) for row in rows_of(part, report, before_candidates_bytes=memory_bytes)]


def archives_of(builds: Mapping[int, Build]) -> dict[int, BuildArchive]:
    """The archives that fit into one request, by candidate. The others compile in their runs."""
    found, left = {}, MAX_ARCHIVE_BYTES
    for number, build in builds.items():
        if build.archive is not None and build.archive.size_bytes <= left:
            found[number] = build.archive
            left -= build.archive.size_bytes
    return found


def refusal_of(build: Build, gpu: GpuType) -> str | None:
    """What compilers said of a candidate that they refused; None: they did not, or the run may see it otherwise.

    Where the type has a device, a file that asks for it may build something else without it.
    """
    step = next(iter(build.report.steps), None) if build.report is not None else None
    if gpu.vendor is not Vendor.NONE or step is None or step.exit_code != REFUSED:
        return None
    return step.stderr[-_MOST_SAID:].strip() or "the compilers refused it"


def with_build(row: Mapping[str, Any], builds: Mapping[int, tuple[Build, int]]) -> dict[str, Any]:
    """A result, with what its build took ahead."""
    if row["id"] not in builds:
        return dict(row)
    build, built_ns = builds[row["id"]]
    killed = build.report is not None and bool(build.report.outcome.oom_kills)
    told = {"verdict": "memory_limit", "message": _MEMORY} if killed and row["verdict"] == "compile_error" else {}
    return {**row, **told, "build_ms": round((row["build_ms"] or 0.0) + built_ns / 1e6, 3)}


def make_group_plan(
    group: Mapping[str, Any],
    place: Place,
    *,
    max_run_s: float,
    labels: Mapping[str, str],
    reference_times: Mapping[str, Any] | None = None,
    builds: Mapping[int, str | None] | None = None,
    archives: Mapping[str, int] | None = None,
) -> Plan:
    """Plan one container for a group. Pure.

    Args:
        group: its JSON form.
        place: where it runs.
        max_run_s: the operator's limit.
        labels: of the container.
        reference_times: what is known of its reference's times.
        builds: as `GroupRequest` has them.
        archives: as `PairRequest` has them.

    Raises:
        GroupError: the group cannot be read.
    """
    parsed = Group.from_message(group)
    # The judge's own work beside a candidate may take as long as that, and so may a worker and the judge beside it with
    # the reference.
    wall_s = _MARGIN_S + 2 * (len(parsed.candidates) + 1) * parsed.settings.timeout_s
    payload = payload_of(
        group,
        device=place.device,
        memory_bytes=tensor_bytes(place.gpu),
        reference_times=reference_times,
        builds=builds,
    )
    boot = pair_boot(place.environment)
    return Plan(
        spec=make_spec(place, boot, wall_s=min(wall_s, max_run_s), labels=dict(labels)),
        request=PairRequest(payload=payload, successive=True, archives=archives or {}),
        harness=Harness.BUILTIN,
        run_names=tuple(f"candidate.{candidate.id}" for candidate in parsed.candidates),
        case_counts={},
    )


def rows_of(group: Mapping[str, Any], report: ContainerReport, *, before_candidates_bytes: int | None = None) -> Rows:
    """A container's report as results, in the group's order. Pure.

    `before_candidates_bytes`: the container's memory, where it ended before any candidate had begun; None: one had.
    """
    found = {
        row["id"]: row for step in report.steps if (row := _row_of(step)) is not None and row["verdict"] is not None
    }
    parsed = Group.from_message(group)
    oom = bool(report.outcome.oom_kills)
    if oom and before_candidates_bytes is not None:
        text = f"the reference needs more memory than the container has ({before_candidates_bytes} bytes)"
        return failed_results(group, "invalid", text)
    lost = _why_lost(report)
    rows = []
    for candidate in parsed.candidates:
        row = found.get(candidate.id)
        if row is None:
            alone = oom and len(parsed.candidates) - len(found) == 1
            verdict, stage = ("memory_limit", "correctness") if alone else ("internal_error", "reference")
            text = _MEMORY if alone else lost
            row = Result(id=candidate.id, verdict=verdict, stage=stage, message=text).to_message()
        elif oom and _looks_killed(row, alone=len(parsed.candidates) == 1):
            # Only the cgroup knows why the kernel killed a process.
            row = {**row, "verdict": "memory_limit", "message": _MEMORY}
        rows.append(row)
    return rows


def _looks_killed(row: Mapping[str, Any], *, alone: bool) -> bool:
    """Whether a result may be what a kill for memory looks like; of compilers only where no other candidate's was."""
    return (row["verdict"] == "runtime_error" and _KILLED in row["message"]) or (
        row["verdict"] == "compile_error" and alone
    )


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
