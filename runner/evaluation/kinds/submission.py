"""The job of a submission: modes, cases and limits become a plan, steps become a verdict and rows. Pure.

Container code is untrusted even when it is ours: case counts, finiteness, positivity and time bounds are checked again
here. A verdict comes from the judge (`kernel`) or from the eval program's result lines (`program`), together with the
observations of engine and cgroup; never from an exit code alone.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from runner.base.errors import EvaluationError, TaskError
from runner.base.gpu_types.model import Vendor
from runner.base.model import Artifact, FinalJob, JobResult, Json, Mode, RunRecord, TimingAssurance, Verdict
from runner.evaluation import secret
from runner.evaluation.build_cache import Build
from runner.evaluation.build_plan import BuildPlan, compile_steps, make_build_plan, should_build
from runner.evaluation.container_spec import CACHES, WALL_MARGIN_S, ContainerOwner, job_labels, make_spec, may_share
from runner.evaluation.context import SubmissionContext
from runner.evaluation.kinds.kind import Builds, Run, Spent
from runner.evaluation.mode_result import ModeResult
from runner.evaluation.plan import Plan
from runner.evaluation.result_rows import RESULT_BYTES, Evidence, compilation_record, job_report, p25_s, run_record
from runner.evaluation.speed_of_light import SpeedOfLight, speed_of_light
from runner.evaluation.verdict import (
    ACCEPTED,
    Finding,
    check_ending,
    compilation_finding,
    implausible,
    memory_finding,
    missing_step,
)
from runner.task_format.case_memory import require_fit
from runner.task_format.model import Case, CuConfig, Harness, Ranking
from sandbox.host.build_archive import BuildArchive
from sandbox.host.container import ContainerReport
from sandbox.protocol import PairRequest, Request, Step, StepResult
from sandbox.spec import Boot
from tasks.harness.judge.request import ModeRequest
from tasks.harness.judge.stopping import Timing
from tasks.harness.shared.profilers import Capture

#: A job's error is one sentence for a status line.
_KEPT_ERROR_CHARACTERS = 4000
#: What a kill for memory looks like from within; only the cgroup knows. A compiler that was killed has failed, and a
#: program whose own process was may wait for it until its time is up.
_AFTER_A_KILL = frozenset({Verdict.RUNTIME_ERROR, Verdict.COMPILE_ERROR, Verdict.TIME_LIMIT})
_IN_PROCESS: Mapping[str, str] = {"correctness": "in_process", "timing": TimingAssurance.CLAIMED.value}


@dataclass(frozen=True, kw_only=True)
class Requests:
    """What a container is asked, how it boots, and how long its programs may take."""

    request: Request
    #: As in `Plan`.
    built_request: Request | None
    boot: Boot
    budget_s: float


class Submission(ABC):
    """Plans, decides and makes rows of one job; a subclass knows its harness."""

    harness: ClassVar[Harness]
    #: Whether what it lets pass must be possible and complete: what is not is our fault.
    ours: ClassVar[bool]
    #: A case as the harness reads it.
    line: Callable[[Case], str]

    def __init__(self, context: SubmissionContext) -> None:
        """Plan the job.

        Raises:
            TaskError: the task cannot be evaluated as asked: no cases, no eval program, a language the GPU type lacks.
        """
        self.context = context
        self.plan = self._make_plan()
        self._runs: list[Run] = []

    # -- what a harness knows ------------------------------------------------------------------------------------

    @abstractmethod
    def requests(self, modes: Sequence[ModeRequest], compiler: tuple[Step, ...]) -> Requests:
        """What to ask for these modes; `compiler`: what compiles the submission, unless it has been built.

        Raises:
            TaskError: the slot has not what the task needs.
        """

    def shared(self) -> Mapping[str, str]:
        """As `Plan.shared`."""
        return {}

    @abstractmethod
    def read(self, step: StepResult) -> ModeResult:
        """The report of a step.

        Raises:
            EvaluationError: it is not of the form that the harness gives it.
        """

    @abstractmethod
    def finding(self, step: StepResult, reported: ModeResult) -> Finding:
        """The verdict on a step by its report alone.

        Raises:
            EvaluationError: the harness could not evaluate it.
        """

    @abstractmethod
    def lines(self, step: StepResult, reported: ModeResult) -> Mapping[str, str]:
        """The report in KernelBot's keys."""

    def assurance(self, step: StepResult, reported: ModeResult) -> Mapping[str, str]:  # noqa: ARG002 a harness's
        """What a step's report is worth."""
        return _IN_PROCESS

    # -- plan ----------------------------------------------------------------------------------------------------

    def _make_plan(self) -> Plan:
        context = self.context
        lights = tuple(
            speed_of_light(context.task, case, context.gpu, device_name=context.device_name)
            for case in context.ranked_cases
        )
        modes, shared = self._modes(lights), self.shared()
        run_names = tuple(mode.name for mode in modes)
        require_fit(context.task, context.cases.every, context.gpu, owner=context.board)
        if context.gpu.emulate_cuda:
            self._refuse_what_is_not_emulated()
        asked = self.requests([mode for mode in modes if mode.name not in shared], compile_steps(context))
        wall_s = min(asked.budget_s + WALL_MARGIN_S, context.max_run_s)
        owner = self._container_owner() if isinstance(asked.request, PairRequest) else None
        return Plan(
            spec=make_spec(context, asked.boot, wall_s=wall_s, labels=job_labels(context.job)),
            request=asked.request,
            built_request=asked.built_request,
            run_names=run_names,
            shared=shared,
            case_counts={mode.name: len(mode.cases) for mode in modes},
            speeds_of_light={name: lights for name in run_names if name in ("benchmark", "leaderboard")},
            kept_for=owner if secret.precedes(context.job) else None,
            # One that has failed is tried again in another container.
            follows=owner if secret.follows(context.job) and not context.job.failures else None,
        )

    def _container_owner(self) -> ContainerOwner | None:
        """The submission, whose public and secret run may share a container; None: each has its own.

        The network inside, which several ranks have, remembers connections. Devices are inspected before it is known
        whether a public run is accepted.
        """
        context = self.context
        shared = may_share(context) and not context.task.multi_gpu and not context.slot.devices
        return ("submission", context.job.submission) if shared else None

    def _modes(self, lights: Sequence[SpeedOfLight]) -> tuple[ModeRequest, ...]:
        context, job, task = self.context, self.context.job, self.context.task
        test = ModeRequest(
            name="test", cases=self._lines(secret.tests_of(job, context.cases)), timeout_s=task.test_timeout_s
        )
        benchmark = ModeRequest(
            name="benchmark",
            cases=self._lines(context.ranked_cases),
            timeout_s=task.benchmark_timeout_s,
            floors=tuple(light.floor for light in lights),
            timing=None if task.extra.timing is None else Timing(**asdict(task.extra.timing)),
        )
        match job.mode:
            case Mode.TEST:
                modes: tuple[ModeRequest, ...] = (test,)
            case Mode.BENCHMARK:
                modes = (benchmark,)
            case Mode.PROFILE:
                modes = tuple(
                    ModeRequest(name=f"profile.{index}", cases=(line,), timeout_s=task.benchmark_timeout_s)
                    for index, line in enumerate(self._lines(context.cases.benchmarks or ()))
                    if job.options.benchmark in (None, index)
                )
            case Mode.LEADERBOARD | Mode.PRIVATE | Mode.FINAL:
                leaderboard = replace(benchmark, name="leaderboard", timeout_s=task.ranked_timeout_s)
                modes = (test, benchmark, secret.timed(job, leaderboard))
        if not modes and context.cases.benchmarks:
            raise TaskError(
                f"{context.board}: there is no benchmark {job.options.benchmark} on {job.gpu_type}: it has "
                f"{len(context.cases.benchmarks)}, counted from 0 (submit again for another)"
            )
        empty = [mode.name for mode in modes if not mode.cases]
        if empty or not modes:
            what = "tests" if empty == ["test"] else "benchmarks"
            raise TaskError(
                f"{context.board}: mode {job.mode} on {job.gpu_type} needs {what}, the task has none "
                f"(add `{what}` to task.yml, or `cases` for this GPU type to runner.yml)"
            )
        return modes

    def _lines(self, cases: Sequence[Case]) -> tuple[str, ...]:
        return tuple(self.line(case) for case in cases)

    def _refuse_what_is_not_emulated(self) -> None:
        context = self.context
        where = f"{context.board} on {context.gpu.name}, which emulates CUDA on the CPU"
        if context.job.mode.ranked:
            raise TaskError(
                f"{where}: nothing is ranked there (use mode test, benchmark or profile, or another GPU type)"
            )
        if context.task.multi_gpu:
            raise TaskError(
                f"{where}: one device is emulated, the task is for several (use a type without emulate_cuda)"
            )
        if self.is_compiled:
            raise TaskError(f"{where}: lang cu needs a device that runs compiled code (use another GPU type)")

    @property
    def keep(self) -> tuple[str, ...]:
        """Folders to keep of the run: the compilers' caches, where the submission's secret run is to get them."""
        gives = secret.precedes(self.context.job) and not self.is_compiled
        return tuple(CACHES.values()) if gives else ()

    @property
    def capture(self) -> Capture | None:
        """What a vendor's profiler captures; None: there is no device, or there are several."""
        context, options = self.context, self.context.job.options
        if context.job.mode is not Mode.PROFILE or context.gpu.vendor is Vendor.NONE or context.task.multi_gpu:
            return None
        return Capture(kernel=options.kernel, kernel_base=options.kernel_base, launches=options.launches)

    # -- build and run -------------------------------------------------------------------------------------------

    def build_plans(self, cpus: tuple[int, ...], *, beside: bool) -> Mapping[int, BuildPlan]:  # noqa: ARG002 anywhere
        """The submission, if a build probably saves time."""
        context = self.context
        if not should_build(context.job.code, context.task, context.gpu):
            return {}
        return {0: make_build_plan(context, cpus=cpus)}

    def plans(self, builds: Builds) -> Iterator[tuple[Plan, BuildArchive | None]]:
        """One container."""
        build = _build_of(builds)
        yield self.plan, None if build is None else build.archive

    def heard(self, run: Run) -> None:
        """Keep the run for the verdict: the last one counts."""
        self._runs.append(run)

    # -- verdict and rows ----------------------------------------------------------------------------------------

    def refused(self, builds: Builds, spent: Spent) -> JobResult | None:
        """The result if nothing was compiled that could run."""
        build = _build_of(builds)
        if build is None or build.report is None or build.archive is not None:
            return None
        return self.compile_failure(replace(self.build_evidence(build, build.report, spent), steps=()))

    @property
    def is_compiled(self) -> bool:
        """Whether nvcc makes a program of it, which needs no device."""
        return isinstance(self.context.task.config, CuConfig)

    def check_plan(self, cpus: tuple[int, ...]) -> BuildPlan | None:
        """What says early whether it need not run: its build, if it is compiled; None: only its run can say."""
        return self.build_plans(cpus, beside=True).get(0) if self.is_compiled else None

    def refused_early(self, build: Build, spent: Spent) -> JobResult | None:
        """The result if it need not run, of what `check_plan` made; None: it has to."""
        return self.refused({0: (build, spent.built_ns)}, spent)

    def build_evidence(self, build: Build | None, report: ContainerReport, spent: Spent) -> Evidence:
        """What a container that built shows."""
        return self._evidence(report, build, spent, spent.elapsed_ns - report.outcome.wall_ns)

    def compile_failure(self, evidence: Evidence) -> JobResult | None:
        """The result of a build that leaves nothing to run; None if the job has to be run to know.

        Only a compiler that no device takes part in has a verdict.
        """
        try:
            if self._compilation_finding(evidence) is None:
                return None
            return self.judge(evidence)
        except EvaluationError:
            # That container broke. The run compiles again, and if it breaks as well, it can be retried.
            return None

    def decide(self, builds: Builds, spent: Spent) -> JobResult:
        """The result of the run.

        Raises:
            EvaluationError: the container or the harness broke in a way the submission cannot have caused.
        """
        run = self._runs[-1]
        build = None if run.archive_broken else _build_of(builds)
        evidence = self._evidence(run.report, build, spent, run.ready_ns - self.context.started_ns)
        devices = {} if run.devices is None else {"devices": list(run.devices)}
        return self.judge(replace(evidence, runner={**evidence.runner, **devices}))

    def _evidence(self, report: ContainerReport, build: Build | None, spent: Spent, offset_ns: int) -> Evidence:
        return Evidence(
            steps=report.steps,
            compiled=() if build is None or build.report is None else build.report.steps,
            artifacts=tuple(
                Artifact(name=name, media_type=media_type, data=data) for name, media_type, data in report.artifacts
            ),
            ok=report.ok,
            message=report.message,
            author_exit=report.author_exit,
            outcome=report.outcome,
            request_offset_ns=max(0, offset_ns),
            built_ns=spent.built_ns,
            waited_ns=spent.waited_ns,
            system=self.context.system,
            runner={**self.context.runner, "sandbox": dict(report.attested), **self._profile_facts()},
        )

    def _profile_facts(self) -> Json:
        """What a profile was made of."""
        job = self.context.job
        if job.mode is not Mode.PROFILE:
            return {}
        options, source_sha256 = asdict(job.options), hashlib.sha256(job.code).hexdigest()
        config = json.dumps([source_sha256, job.task, job.extra, options], sort_keys=True)
        config_sha256 = hashlib.sha256(config.encode("utf-8", "surrogatepass")).hexdigest()
        return {"profile": {"options": options, "source_sha256": source_sha256, "config_sha256": config_sha256}}

    def judge(self, evidence: Evidence) -> JobResult:
        """The result that this evidence amounts to."""
        job, plan = self.context.job, self.plan
        check_ending(evidence)
        runs: list[RunRecord] = []
        # What a final measures is no run of the submission.
        final, scores = isinstance(job, FinalJob), {}
        assurance: Mapping[str, str] = _IN_PROCESS
        finding = self._compilation_finding(evidence)
        compilation = compilation_record(self.context.task, evidence)
        by_name = {step.name: step for step in evidence.steps}
        if len(by_name) != len(evidence.steps):
            raise EvaluationError(f"job {job.id}: the container reported a step twice")
        if finding is None:
            finding = ACCEPTED
            for name in plan.run_names:
                if finding.verdict is not Verdict.ACCEPTED and job.mode is not Mode.PROFILE:
                    # What a program runs after that, because it believes its own words, would be a row with a score.
                    break
                step = by_name.get(plan.shared.get(name, name))
                if step is None:
                    if finding.verdict is Verdict.ACCEPTED:
                        finding = missing_step(job, name, evidence)
                    break
                step = replace(step, name=name)
                reported = self.read(step)
                step_finding = self._step_finding(step, reported, evidence)
                assurance = self.assurance(step, reported)
                runs.append(
                    run_record(
                        step,
                        reported,
                        step_finding.verdict,
                        evidence,
                        lines=self.lines(step, reported),
                        compilation=compilation,
                        assurance=assurance,
                        scored_by=self.context.task if job.mode in (Mode.LEADERBOARD, Mode.FINAL) else None,
                        demand=secret.demand_of(job),
                        speeds_of_light=plan.speeds_of_light.get(name, ()),
                        most_bytes=RESULT_BYTES // len(plan.run_names),
                    )
                )
                if final and runs[-1].score_s is not None:
                    scores = {"score_s": runs[-1].score_s, "p25_s": p25_s(self.context.task, reported.timings)}
                if finding.verdict is Verdict.ACCEPTED:
                    finding = step_finding
        eval_ns = sum(by_name[name].duration_ns for name in plan.run_names if name in by_name)
        total_ns = evidence.request_offset_ns + evidence.outcome.wall_ns
        return JobResult(
            verdict=finding.verdict,
            runs=() if final else tuple(runs),
            # A program's result line may be megabytes long; all of it is in the run's result.
            error=None if finding.message is None else finding.message[:_KEPT_ERROR_CHARACTERS],
            report={**job_report(self.harness, evidence, assurance, eval_ns), **scores},
            build_ns=max(0, total_ns - evidence.waited_ns - eval_ns),
            eval_ns=eval_ns,
            artifacts=evidence.artifacts,
        )

    def _compilation_finding(self, evidence: Evidence) -> Finding | None:
        """The verdict when the compiler did not get as far as an executable; None when it did or there is none."""
        return compilation_finding(evidence) if self.is_compiled else None

    def _step_finding(self, step: StepResult, reported: ModeResult, evidence: Evidence) -> Finding:
        finding = self.finding(step, reported)
        if evidence.outcome.oom_kills and finding.verdict in _AFTER_A_KILL:
            return memory_finding(step.name)
        if finding.verdict is not Verdict.ACCEPTED:
            return finding
        problem = self.implausible(step, reported)
        if problem is None:
            return finding
        if self.ours:
            raise EvaluationError(f"job {self.context.job.id}: the judge accepted {step.name!r}, but {problem}")
        return Finding(verdict=Verdict.REJECTED, message=f"{step.name}: {problem}")

    def implausible(self, step: StepResult, reported: ModeResult) -> str | None:
        """The fault in a passed step's numbers, as the rest of a sentence; None: no fault."""
        asked = self.plan.case_counts[step.name]
        if step.name.startswith("profile"):
            return None
        if step.name == "test":
            tests = reported.tests
            return None if tests == asked else f"it reports {tests} tests where {asked} were asked for"
        lights = self.plan.speeds_of_light.get(step.name, ())
        # Some programs run only the last case in leaderboard mode, so fewer are possible where we trust the process.
        fewest = asked if self.ours else 1
        problem = implausible(step, reported, asked=asked, fewest=fewest, speeds_of_light=lights)
        last = step.name == "leaderboard" and self.context.task.ranking_by is Ranking.LAST
        if problem is None and last and reported.benchmarks != 1:
            return f"ranking_by last needs exactly one benchmark, it reports {reported.benchmarks}"
        return problem


def _build_of(builds: Builds) -> Build | None:
    return builds[0][0] if 0 in builds else None
