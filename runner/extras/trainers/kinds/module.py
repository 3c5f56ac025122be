"""A group of PyTorch modules: one reference, its candidates one after the other, in one container or one each.

A group has no leaderboard: its result is one item for each candidate (docs/trainers.md). Candidates that compile are
built before the slot is used, on cores that no slot uses. What is built goes to that candidate's worker alone. Of the
harness's report the daemon believes nothing that it can check: ids, words, numbers and lengths. A faulty value becomes
`internal_error`, so the candidate is evaluated again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from runner.base.gpu_types.model import GpuType, Vendor
from runner.base.model import Job, JobResult, Json, Verdict
from runner.evaluation.build_cache import Build
from runner.evaluation.build_plan import REFUSED, BuildPlan, compiles, plan_build
from runner.evaluation.container_spec import (
    CACHES,
    ContainerOwner,
    harness_process,
    job_labels,
    make_spec,
    may_share,
    pair_boot,
)
from runner.evaluation.context import GroupContext
from runner.evaluation.kinds.kind import Builds, Run, Spent
from runner.evaluation.plan import Plan
from runner.evaluation.verdict import host_short
from runner.extras.trainers.inside.judge import group as harness
from runner.extras.trainers.inside.judge.request import GroupRequest
from runner.task_format.case_memory import tensor_bytes
from sandbox.host.build_archive import BuildArchive, JoinedArchives
from sandbox.host.container import ContainerReport
from sandbox.protocol import MAX_ARCHIVE_BYTES, PairRequest, Step, StepResult, StepsRequest
from sandbox.spec import Ending, Outcome

#: How an item can end. `invalid` is the reference's fault, `internal_error` ours.
VERDICTS: Final = frozenset(
    {
        *("accepted", "wrong_answer", "compile_error", "runtime_error", "time_limit", "memory_limit"),
        *("rejected", "invalid", "internal_error"),
    }
)
#: The keys of an item's result that the daemon keeps; others are dropped, so that a report cannot grow without bound.
KEYS: Final = tuple(harness.Result.__dataclass_fields__)
_NUMBERS: Final = (*("reference_ns", "candidate_ns", "speedup", "speedup_low", "speedup_high", "speedup_device"),)
#: No text of a result is longer, and no list or object has more entries.
MAX_TEXT: Final = 4000
MAX_ENTRIES: Final = 100
#: How deep lists and objects may be nested.
_MAX_DEPTH: Final = 4
#: Added to what the candidates may take: imports of torch, preparing the reference, killing.
_MARGIN_S: Final = 60.0
_KILLED: Final = "signal 9"
_MEMORY: Final = "the candidate used up the container's memory"
#: The program that builds a candidate, and the name of its file.
_PREBUILD: Final = "runner.extras.trainers.inside.worker.prebuild"
_MODULE_FILE: Final = "candidate.py"
#: Characters of what compilers said that a result keeps.
_MOST_SAID: Final = 4000
#: Parts of a candidate's evaluation that the judge times, and more milliseconds than any takes.
_PARTS: Final = frozenset({"worker", "compile", "construct", "correctness", "timing", "reference_timing", "done"})
_MOST_MS: Final = 1e9

Rows = list[dict[str, Any]]


class Group:
    """Plans the containers of a group, and makes an item of each candidate."""

    ranked = False

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self._group: harness.Group | None = None
        self._rows: Rows = []
        self._phases: Counter[str] = Counter()
        #: The group's JSON form, cut to the candidates of the container that runs.
        self._part: Mapping[str, Any] = context.job.task
        try:
            self._group = harness.Group.from_message(context.job.task)
        except harness.GroupError as error:
            self._rows = harness.failed_results(context.job.task, "invalid", str(error))

    def build_plans(self, cpus: tuple[int, ...], *, beside: bool) -> Mapping[int, BuildPlan]:
        """The candidates that probably compile; none on the slot's own cores."""
        if self._group is None or not beside:
            return {}
        timeout_s = min(self.context.build_timeout_s, self._group.settings.timeout_s)
        return {
            candidate.id: build_plan_of(candidate, self.context, cpus, timeout_s)
            for candidate in self._group.candidates
            if compiles(candidate.code.encode("utf-8", "replace"))
        }

    def refused(self, builds: Builds, spent: Spent) -> JobResult | None:
        """The result of a group that cannot be read."""
        return self.decide(builds, spent) if self._group is None else None

    def plans(self, builds: Builds) -> Iterator[tuple[Plan, JoinedArchives | None]]:
        """One container, or one for each candidate; each with the archives that fit into a request.

        After a failure one for each: what it may have been can end no other candidate's judgement again.
        """
        group, gpu = self._group, self.context.gpu
        if group is None:
            return
        whole = self.context.job.task
        separate = [{**whole, "candidates": [candidate]} for candidate in whole["candidates"]]
        for part in separate if group.settings.separate_containers or self.context.job.failures else [whole]:
            self._part = part
            ids = [candidate["id"] for candidate in part["candidates"]]
            mine = {number: builds[number][0] for number in ids if number in builds}
            refused = {number: text for number in mine if (text := refusal_of(mine[number], gpu)) is not None}
            archives = archives_of({number: build for number, build in mine.items() if number not in refused})
            request = GroupRequest(
                group=part,
                device=self.context.device,
                memory_bytes=tensor_bytes(gpu),
                builds={str(number): text for number, text in ({**dict.fromkeys(archives), **refused}).items()},
            )
            sizes = {str(number): archive.size_bytes for number, archive in archives.items()}
            plan = self._plan(len(ids), PairRequest(payload=request.to_payload(), successive=True, archives=sizes))
            yield plan, JoinedArchives(list(archives.values())) if archives else None

    def _plan(self, count: int, request: PairRequest) -> Plan:
        context = self.context
        # The judge's own work beside a candidate may take as long as that, and so may a worker and the judge beside it
        # with the reference.
        timeout_s = 0.0 if self._group is None else self._group.settings.timeout_s
        wall_s = min(_MARGIN_S + 2 * (count + 1) * timeout_s, context.max_run_s)
        boot, labels = pair_boot(context.environment), job_labels(context.job)
        spec = make_spec(context, boot, wall_s=wall_s, labels=labels)
        owner = self._owner_of_container()
        return Plan(spec=spec, request=request, alone=True, kept_for=owner, follows=owner)

    def _owner_of_container(self) -> ContainerOwner | None:
        """The batch, whose groups share a container; None: this group has its own.

        A group that has failed is tried again in another container.
        """
        job = self.context.job
        separate = self._group is None or self._group.settings.separate_containers or job.failures
        return None if separate or not may_share(self.context) else ("batch", job.batch_id)

    def heard(self, run: Run) -> None:
        """Keep the results of a container."""
        self._phases.update(phases_of(run))
        memory_bytes = None if harness.CANDIDATES in run.phases else run.plan.spec.limits.memory_bytes
        self._rows += rows_of(self._part, run.report, before_candidates_bytes=memory_bytes)

    def decide(self, builds: Builds, spent: Spent) -> JobResult:
        """An item for each candidate that has a result; the others are evaluated again."""
        phases_ns = dict(self._phases)
        if self._group is not None:
            phases_ns |= {"build": spent.built_ns, "wait": spent.waited_ns}
        rows = [with_build(row, builds) for row in self._rows]
        return group_result(
            self.context.job, self.context.slot.name, rows, eval_ns=spent.elapsed_ns, phases_ns=phases_ns
        )


def build_plan_of(
    candidate: harness.Candidate, context: GroupContext, cpus: tuple[int, ...], timeout_s: float
) -> BuildPlan:
    """The build of a candidate on these cores: its file alone, in a container of its own."""
    argv = (*harness_process(context.environment, _PREBUILD), _MODULE_FILE, str(REFUSED), *candidate.entry_points)
    step = Step(name="compile", argv=argv, timeout_s=timeout_s, result_pipe=False)
    files = {_MODULE_FILE: candidate.code.encode("utf-8", "surrogatepass")}
    request = StepsRequest(files=files, steps=(step,), keep=tuple(CACHES.values()))
    labels = {**job_labels(context.job), "kernel-runner.build": f"candidate {candidate.id}"}
    return plan_build(context, request, cpus, labels)


def archives_of(builds: Mapping[int, Build]) -> dict[int, BuildArchive]:
    """The archives that fit into one request, by candidate. The others compile in their runs."""
    archives, left = {}, MAX_ARCHIVE_BYTES
    for number, build in builds.items():
        if build.archive is not None and build.archive.size_bytes <= left:
            archives[number] = build.archive
            left -= build.archive.size_bytes
    return archives


def refusal_of(build: Build, gpu: GpuType) -> str | None:
    """What compilers said of a candidate that they refused; None: they did not, or the run may see it otherwise.

    Where the type has a device, a file that asks for it may build something else without it.
    """
    step = next(iter(build.report.steps), None) if build.report is not None else None
    if gpu.vendor is not Vendor.NONE or step is None or step.exit_code != REFUSED:
        return None
    return step.stderr[-_MOST_SAID:].strip() or "the compilers refused it"


def with_build(row: Mapping[str, Any], builds: Builds) -> dict[str, Any]:
    """A result, with what its build took ahead."""
    if row["id"] not in builds:
        return dict(row)
    build, built_ns = builds[row["id"]]
    row = {**row, "build_ms": round((row["build_ms"] or 0.0) + built_ns / 1e6, 3)}
    if build.report is not None and build.report.outcome.oom_kills and row["verdict"] == "compile_error":
        row["verdict"], row["message"] = _killed(build.report.outcome)
    return row


def rows_of(group: Mapping[str, Any], report: ContainerReport, *, before_candidates_bytes: int | None = None) -> Rows:
    """A container's report as results, in the group's order.

    `before_candidates_bytes`: the container's memory, where it ended before any candidate had begun; None: one had.
    """
    reported = {
        row["id"]: row for step in report.steps if (row := _row_of(step)) is not None and row["verdict"] is not None
    }
    candidates = harness.Group.from_message(group).candidates
    oom = bool(report.outcome.oom_kills)
    # Killed for memory beside a candidate, it may have been the candidate's memory.
    ended = None if oom else report.author_exit
    short = report.outcome.host_short
    if oom and not short and before_candidates_bytes is not None:
        text = f"the reference needs more memory than the container has ({before_candidates_bytes} bytes)"
        return harness.failed_results(group, "invalid", text)
    rows = []
    for candidate in candidates:
        row = reported.get(candidate.id)
        if row is None:
            alone = oom and len(candidates) - len(reported) == 1
            stage = "correctness" if alone else "reference"
            verdict, text = _killed(report.outcome) if alone or short else ("internal_error", _why_lost(report))
            if ended is not None:
                verdict, text = "invalid", str(ended)
            row = harness.Result(id=candidate.id, verdict=verdict, stage=stage, message=text).to_message()
        elif oom and _looks_killed(row, alone=short or len(candidates) == 1):
            # Only the cgroup knows why the kernel killed a process.
            verdict, text = _killed(report.outcome)
            row = {**row, "verdict": verdict, "message": text}
        rows.append(row)
    return rows


def _killed(outcome: Outcome) -> tuple[str, str]:
    """The verdict where the kernel killed for memory, and why: the candidate used up its own, or the host had none."""
    return ("internal_error", host_short(outcome)) if outcome.host_short else ("memory_limit", _MEMORY)


def _looks_killed(row: Mapping[str, Any], *, alone: bool) -> bool:
    """Whether a result may be what a kill for memory looks like; of a helper only where no other candidate's was.

    A compiler that was killed has failed, and a candidate may wait for another process until its time is up.
    """
    return (row["verdict"] == "runtime_error" and _KILLED in row["message"]) or (
        row["verdict"] in ("compile_error", "time_limit") and alone
    )


def phases_of(run: Run) -> dict[str, int]:
    """Where the time of a group's container went, in nanoseconds."""
    phases: Counter[str] = Counter(container=run.ready_ns - run.asked_ns, removal=run.gone_ns - run.ended_ns)
    steps = [step for step in run.report.steps if step.judged is not None]
    for step in steps:
        parts = step.judged.details.get("parts_ms") if step.judged is not None else None
        for name, value in parts.items() if isinstance(parts, Mapping) else ():
            # The container says so; this is for people and statistics.
            if name in _PARTS and type(value) in (int, float) and 0 <= value < _MOST_MS:
                phases[name] += round(value * 1e6)
    if steps:
        phases["reference"] = max(0, steps[0].start_ns - steps[0].duration_ns)
        phases["import"] = max(0, run.ended_ns - run.ready_ns - steps[-1].start_ns)
    return dict(phases)


def _row_of(step: StepResult) -> dict[str, Any] | None:
    row = None if step.judged is None else step.judged.details.get("module")
    return row if isinstance(row, dict) and set(row) == set(KEYS) and type(row["id"]) is int else None


def _why_lost(report: ContainerReport) -> str:
    if report.outcome.ending is Ending.DEADLINE:
        return "the container's time ended before this candidate had a result"
    reason = report.message or report.outcome.detail or f"the container ended ({report.outcome.ending})"
    return f"the evaluation broke: {reason}"[:2000]


def group_result(
    job: Job,
    slot: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    eval_ns: int,
    phases_ns: Mapping[str, int] | None = None,
) -> JobResult:
    """The result of a group. A candidate without a result of its own is left out: it is evaluated again.

    `rows`: what the harness reports of candidates. `eval_ns`: how long it took, builds included; `phases_ns`: where
    that time went, for the job's report.
    """
    asked = [candidate["id"] for candidate in job.task["candidates"]]
    items: dict[int, Json] = {}
    for row in rows:
        number = row.get("id")
        if isinstance(number, int) and number in asked and number not in items:
            items[number] = _item(row)
    ours = [str(item["message"]) for item in items.values() if item["verdict"] == "internal_error"]
    missing = len(asked) - len(items)
    if missing:
        ours.append(f"{missing} of {len(asked)} candidates have no result")
    report = {
        "slot": slot,
        "items": len(asked),
        "internal_errors": len(ours),
        "causes": ours[:3],
        "phases_ns": dict(phases_ns or {}),
    }
    built_ns = min(eval_ns, (phases_ns or {}).get("build", 0))
    return JobResult(
        verdict=Verdict.INTERNAL_ERROR if ours else Verdict.ACCEPTED,
        runs=(),
        error=ours[0] if ours else None,
        report=report,
        build_ns=built_ns,
        eval_ns=eval_ns - built_ns,
        items=tuple(items.values()),
    )


def _item(row: Mapping[str, Any]) -> Json:
    """One result with all keys; what makes no sense is our fault."""
    item = {key: _plain(row.get(key), _MAX_DEPTH) for key in KEYS}
    item["id"] = row["id"]
    fault = _fault(item)
    if fault is not None:
        return {**dict.fromkeys(KEYS), "id": row["id"], "verdict": "internal_error", "message": fault}
    return item


def _fault(item: Mapping[str, Any]) -> str | None:
    """The fault of a result; None: no fault."""
    if item["verdict"] not in VERDICTS:
        return f"the harness reports the verdict {item['verdict']!r}, which is none"
    if not isinstance(item["message"], str):
        return f"the harness reports {item['verdict']} without a message"
    for key in _NUMBERS:
        value = item[key]
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            return f"the harness reports {key} {value!r}, expected a number above 0"
        # An interval may begin at 0: a short call, beside what its hand-over may have cost.
        if value == 0 and key != "speedup_low":
            return f"the harness reports {key} 0, expected a number above 0"
    if item["verdict"] == "accepted" and item["correct"] is not True:
        return "the harness reports an accepted candidate that is not correct"
    return None


def _plain(value: object, depth: int) -> object:
    """The value in JSON's own types, bounded; a number that is not finite is not known."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            # PostgreSQL stores neither.
            return value[:MAX_TEXT].replace("\0", "�").encode("utf-8", "replace").decode("utf-8")
        case Mapping() if depth:
            return {str(key)[:200]: _plain(item, depth - 1) for key, item in list(value.items())[:MAX_ENTRIES]}
        case list() | tuple() if depth:
            return [_plain(item, depth - 1) for item in value[:MAX_ENTRIES]]
        case _:
            return str(value)[:MAX_TEXT]
