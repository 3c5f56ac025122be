"""A submission under a third party's eval program, which runs it in one process and reports what it likes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from runner.base.gpu_types.model import Vendor
from runner.base.model import Mode, Verdict
from runner.evaluation.build_plan import PROGRAM, task_files
from runner.evaluation.container_spec import harness_process
from runner.evaluation.kinds.submission import Requests, Submission
from runner.evaluation.mode_result import ModeResult
from runner.evaluation.result_rows import without_assurance
from runner.evaluation.verdict import ACCEPTED, Finding
from runner.task_format.cases import program_line
from runner.task_format.model import CuConfig, Harness, PyConfig
from sandbox.protocol import Step, StepResult, StepsRequest
from sandbox.spec import Boot
from tasks.harness.judge.request import ModeRequest
from tasks.harness.shared.profilers import NCU_FILES, NOTHING_CAPTURED

CASES_FILE: Final = "cases.txt"


class Program(Submission):
    """The program's words are the verdict, together with what init observed."""

    harness = Harness.PROGRAM
    ours = False
    line = staticmethod(program_line)

    def requests(self, modes: Sequence[ModeRequest], compiler: tuple[Step, ...]) -> Requests:
        """One program after the other."""
        context = self.context
        config = context.task.config
        program = (context.environment.python, config.main) if isinstance(config, PyConfig) else (f"./{PROGRAM}",)
        env: dict[str, str] = {}
        if context.task.multi_gpu:
            env["POPCORN_GPUS"] = str(max(1, len(context.slot.devices)))
        if context.seed is not None:
            env["POPCORN_SEED"] = str(context.seed)
        steps = tuple(
            Step(
                name=mode.name,
                argv=(*self._profiled(mode.name), *program, mode.name.partition(".")[0], CASES_FILE),
                env=env,
                timeout_s=mode.timeout_s,
                files={CASES_FILE: ("\n".join(mode.cases) + "\n").encode()},
                continue_if="always" if context.job.mode is Mode.PROFILE else "passed",
                artifacts=tuple(f"{mode.name}.{suffix}" for suffix in NCU_FILES) if self._captures else (),
            )
            for mode in modes
        )
        # No source goes in where a build comes along. A Python submission is imported all the same.
        built = StepsRequest(files={}, steps=steps) if isinstance(config, CuConfig) else None
        return Requests(
            request=StepsRequest(files=task_files(context), steps=compiler + steps, keep=self.keep),
            built_request=built,
            boot=Boot(kind="steps"),
            budget_s=sum(step.timeout_s for step in compiler + steps),
        )

    @property
    def _captures(self) -> bool:
        """Whether Nsight Compute runs the program, if it is there: They mark a call for it alone."""
        return self.capture is not None and self.context.gpu.vendor is Vendor.NVIDIA

    def _profiled(self, name: str) -> tuple[str, ...]:
        """What the command line of a mode begins with."""
        if self.capture is None or not self._captures:
            return ()
        return (*harness_process(self.context.environment, "profile"), name, json.dumps(asdict(self.capture)))

    def read(self, step: StepResult) -> ModeResult:
        """The program's result lines."""
        return ModeResult.of_program(step.result, asked=self.plan.case_counts[step.name])

    def finding(self, step: StepResult, reported: ModeResult) -> Finding:
        """What the program's own words and init's observations amount to."""
        if step.timed_out:
            seconds = step.duration_ns / 1e9
            message = f"{step.name}: killed at the time limit ({seconds:.0f} s)"
            return Finding(verdict=Verdict.TIME_LIMIT, message=message)
        if step.output_limit:
            return Finding(
                verdict=Verdict.OUTPUT_LIMIT,
                message=f"{step.name}: killed after writing {step.stdout_bytes + step.stderr_bytes} bytes of output",
            )
        if reported.check == "pass":
            nothing = step.result.get(NOTHING_CAPTURED)
            lost = Finding(verdict=Verdict.RUNTIME_ERROR, message=f"{step.name}: {nothing}")
            return ACCEPTED if nothing is None else lost
        if reported.failure is not None:
            return Finding(verdict=Verdict.WRONG_ANSWER, message=f"{step.name}: {reported.failure}")
        if reported.check == "fail":
            message = f"{step.name}: the eval program reports check: fail"
            return Finding(verdict=Verdict.WRONG_ANSWER, message=message)
        how = f"by signal {step.signal}" if step.exit_code is None else f"with exit code {step.exit_code}"
        # A program that has begun its report has read its cases: then 113 is another program's exit code.
        unread = step.exit_code == 113 and not step.result
        reason = " (the eval program could not read its cases)" if unread else ""
        return Finding(
            verdict=Verdict.INVALID if reason else Verdict.RUNTIME_ERROR,
            message=f"{step.name}: the eval program ended {how} without a result{reason}",
        )

    def lines(self, step: StepResult, reported: ModeResult) -> Mapping[str, str]:  # noqa: ARG002 as they came
        """What the program wrote. Its assurance is left out, as it can give none."""
        return without_assurance(step.result)
