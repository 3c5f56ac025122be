"""A submission under the built-in harness: a judge evaluates what a worker computes, each under a user of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.base.errors import EvaluationError, TaskError
from runner.base.gpu_types.model import Vendor
from runner.base.marks import ENCODING
from runner.base.model import JobResult, TimingAssurance, Verdict
from runner.evaluation.build_cache import Build
from runner.evaluation.build_plan import PROGRAM, REFUSED, BuildPlan, make_parse_plan
from runner.evaluation.container_spec import pair_boot
from runner.evaluation.kinds.kind import Spent
from runner.evaluation.kinds.submission import Requests, Submission
from runner.evaluation.mode_result import ModeResult
from runner.evaluation.result_rows import NOT_PASSED_CODE, Evidence, mode_assurance
from runner.evaluation.verdict import ACCEPTED, Finding
from runner.task_format.case_memory import needed_bytes, ranks_without_devices, tensor_bytes
from runner.task_format.model import Harness
from sandbox.protocol import Judged, PairRequest, Step, StepResult
from sandbox.spec import Ending
from tasks.harness.judge.cases import spec_line
from tasks.harness.judge.report import result_lines
from tasks.harness.judge.request import Compiled, JudgeRequest, ModeRequest


class Kernel(Submission):
    """The judge's word is the verdict, where its numbers can be."""

    harness = Harness.BUILTIN
    ours = True
    line = staticmethod(spec_line)

    def shared(self) -> Mapping[str, str]:
        """The judge times both in the same way, so one row of calls is enough. It fails as a benchmark would."""
        return {"benchmark": "leaderboard"} if self.context.job.mode.ranked else {}

    def requests(self, modes: Sequence[ModeRequest], compiler: tuple[Step, ...]) -> Requests:
        """One request to judge and worker."""
        context = self.context
        return Requests(
            request=self._request(modes, compiler),
            built_request=self._request(modes, ()) if compiler else None,
            # Nsight Compute speaks with what it profiles by TCP.
            boot=pair_boot(context.environment, loopback=context.task.multi_gpu or self.capture is not None),
            # The judge gives the submission's import a limit of its own, before the first mode's.
            budget_s=context.build_timeout_s + sum(mode.timeout_s for mode in modes),
        )

    def _request(self, modes: Sequence[ModeRequest], compiler: tuple[Step, ...]) -> PairRequest:
        context, job, task = self.context, self.context.job, self.context.task
        ranks = self._ranks() if task.multi_gpu else None
        argv = next((step.argv for step in compiler if step.name == "compile"), ())
        name = context.device_name
        cache_bytes = None if name is None else context.gpu.figures_of(name).cache_bytes
        request = JudgeRequest(
            modes=tuple(modes),
            # Without the task's own eval program: the judge replaces it, and it may describe hidden cases.
            files=task.judge_files,
            worker_files=task.worker_files,
            submission_name=task.submission_name,
            submission=job.code.decode(ENCODING),
            seed=context.seed,
            ranks=ranks,
            device=context.device,
            build_timeout_s=context.build_timeout_s,
            memory_bytes=tensor_bytes(context.gpu, needed_bytes=needed_bytes(task, context.cases.every)),
            # Written between two timed calls: twice the size of all caches.
            flush_bytes=None if cache_bytes is None else int(2 * cache_bytes),
            rejects_forged_times=context.gpu.rejects_forged_times,
            tolerance=job.demand.tolerance,
            # The library that lang cu becomes, and how, unless it has been built.
            compiled=Compiled(program=PROGRAM, argv=argv) if self.is_compiled else None,
            capture=self.capture,
        )
        return PairRequest(payload=request.to_payload(), ranks=ranks, keep=self.keep)

    def _ranks(self) -> int:
        """How many ranks a task of several devices has on a GPU type: one per device, or some that share its cores.

        Raises:
            TaskError: its cases differ in it, or the slot has not so many devices.
        """
        context = self.context
        sizes = sorted({int(str(case["world_size"])) for case in context.cases.every})
        where = f"{context.board}: the cases for {context.job.gpu_type}"
        if len(sizes) != 1:
            raise TaskError(
                f"{where} have world_size {', '.join(map(str, sizes))}, expected one number for all "
                "(give the GPU type cases of its own in runner.yml)"
            )
        alone = context.gpu.vendor is Vendor.NONE
        most = ranks_without_devices(context.gpu) if alone else len(context.slot.devices)
        if sizes[0] > most:
            has = f"room for {most}" if alone else f"{most} devices"
            raise TaskError(
                f"{where} have world_size {sizes[0]}, but slot {context.slot.name} has {has} "
                "(offer the task on another GPU type, or give this one cases of its own in runner.yml)"
            )
        return sizes[0]

    # -- early check ---------------------------------------------------------------------------------------------

    def check_plan(self, cpus: tuple[int, ...]) -> BuildPlan | None:
        """Also what says whether Python is Python; not for several ranks: each would say that it is not."""
        if self.is_compiled or self.context.task.multi_gpu:
            return super().check_plan(cpus)
        return make_parse_plan(self.context, cpus=cpus)

    def refused_early(self, build: Build, spent: Spent) -> JobResult | None:
        """Of a submission that is no Python the result as the judge would say it.

        A container that broke, or was short of memory, says nothing.
        """
        report = build.report
        if self.is_compiled or report is None:
            return super().refused_early(build, spent)
        (step,) = report.steps if len(report.steps) == 1 else (None,)
        sound = report.ok and report.outcome.ending is Ending.COMPLETED and not report.outcome.oom_kills
        if step is None or not sound or step.exit_code != REFUSED:
            return None
        name = self.plan.run_names[0]
        judged = Judged(
            verdict=Verdict.COMPILE_ERROR,
            message=step.stdout,
            assurance={"correctness": "judge", "timing": TimingAssurance.CLAIMED.value},
            announced=self.plan.case_counts[name],
        )
        first = replace(
            step,
            name=name,
            command=f"judge {name}",
            exit_code=NOT_PASSED_CODE,
            stdout="",
            stdout_bytes=0,
            judged=judged,
        )
        return self.judge(replace(self.build_evidence(None, report, spent), steps=(first,)))

    # -- verdict and rows ----------------------------------------------------------------------------------------

    def _judged(self, step: StepResult) -> Judged:
        if step.judged is None:
            raise EvaluationError(f"job {self.context.job.id}: step {step.name!r} came without the judge's verdict")
        return step.judged

    def read(self, step: StepResult) -> ModeResult:
        """The judge's record of each case."""
        return ModeResult.of_judge(step.name, self._judged(step), asked=self.plan.case_counts[step.name])

    def finding(self, step: StepResult, reported: ModeResult) -> Finding:  # noqa: ARG002 the verdict says it all
        """The judge's verdict."""
        judged = self._judged(step)
        try:
            verdict = Verdict(judged.verdict)
        except ValueError as error:
            raise EvaluationError(f"the judge gave {step.name!r} the unknown verdict {judged.verdict!r}") from error
        if verdict is Verdict.INTERNAL_ERROR:
            raise EvaluationError(f"the judge could not evaluate {step.name!r}: {judged.message}")
        if verdict is Verdict.ACCEPTED:
            return ACCEPTED
        return Finding(verdict=verdict, message=judged.message or f"{step.name}: {verdict.value}")

    def implausible(self, step: StepResult, reported: ModeResult) -> str | None:
        """Its cases must be those that were asked for, none of them failed, and its times possible."""
        asked = self.plan.case_counts[step.name]
        failed = sum(case.status == "fail" for case in reported.cases)
        if not step.name.startswith("profile") and (failed or len(reported.cases) != asked):
            return f"it reports {len(reported.cases)} cases, {failed} of them failed, where {asked} were asked for"
        return super().implausible(step, reported)

    def lines(self, step: StepResult, reported: ModeResult) -> Mapping[str, str]:
        """The judge's numbers as text."""
        count = reported.tests if step.name == "test" else reported.benchmarks
        return result_lines(step.name, reported.cases, count=count, passed=reported.check == "pass")

    def assurance(self, step: StepResult, reported: ModeResult) -> Mapping[str, str]:
        """What the judge vouches for."""
        return mode_assurance(self._judged(step), reported)

    def _compilation_finding(self, evidence: Evidence) -> Finding | None:
        # Where nothing was built ahead, the worker compiled, and the judge said what came of it.
        return super()._compilation_finding(evidence) if evidence.compiled else None
