"""A validation: the task's own script runs a ranked submission in its own process, and says how many shapes pass.

The script is a third party's program beside the submission, so its line is what that process says: the daemon checks
its form alone. It changes no run, score or ranking. A script that does not get as far as such a line gives a failed
validation with a sentence. Under the judge the submission never sees the reference; here it does. So of a task that the
judge evaluates, only operators read the words of that process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from runner.base.errors import TaskError
from runner.base.model import JobResult, Verdict
from runner.evaluation.build_plan import BuildPlan
from runner.evaluation.container_spec import WALL_MARGIN_S, job_labels, make_spec
from runner.evaluation.context import ValidationContext
from runner.evaluation.kinds.kind import Builds, Run, Spent
from runner.evaluation.plan import Plan
from runner.evaluation.result_rows import Evidence, job_report
from runner.evaluation.verdict import Finding, check_ending, memory_finding, missing_step
from runner.task_format.model import HARNESS, SUBMISSION, Harness, Validation
from runner.task_format.problems import validate
from sandbox.protocol import Step, StepResult, StepsRequest
from sandbox.spec import Boot

#: The step's name, and the script's among the task's files, as KernelBot has it.
STEP: Final = "validation"
SCRIPT: Final = "validation.py"
#: KernelBot gives the script this long.
SCRIPT_TIMEOUT_S: Final = 900.0
#: A longer line is no result.
MAX_LINE_CHARS: Final = 256 << 10
#: How deep lists and objects of the line may be nested.
_MAX_DEPTH: Final = 16
_MAX_SHAPES: Final = 1_000_000
#: A larger one is none, and would fill a page with digits.
_MAX_SPEEDUP: Final = 1e6
#: A job's error is one sentence for a status line.
_MAX_REASON_CHARS: Final = 1000


class NoResult(ValueError):
    """The script's last line is no result; the message says why, as the end of a sentence."""


class _Line(BaseModel):
    """What the line must hold. KernelBot's scripts write more, which is kept."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    passed_shapes: Annotated[int, Field(ge=0, le=_MAX_SHAPES)]
    total_shapes: Annotated[int, Field(gt=0, le=_MAX_SHAPES)]
    fully_validated: bool
    geomean_sync_wall_speedup: Annotated[float | None, Field(ge=0, le=_MAX_SPEEDUP)] = None
    results: list[Any] = Field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a script said, as `runner.end_validations` reads it."""

    passed_shapes: int
    total_shapes: int
    fully_validated: bool
    geomean_sync_wall_speedup: float | None
    #: The whole line.
    result: Mapping[str, Any]


class Validating:
    """Plans the script's run and checks its line."""

    def __init__(self, context: ValidationContext) -> None:
        """Plan the job.

        Raises:
            TaskError: the task has no validation, or one of a form that this release does not know.
        """
        self.context = context
        where = f"leaderboard {context.job.leaderboard!r}"
        if context.task.validation is None:
            raise TaskError(f"{where}: the task has no validation any more")
        self._contract = validate(Validation, context.task.validation, where=where, prefix="task.validation")
        version = self._contract.version
        #: As `->>` gives it in SQL.
        self._version = version if isinstance(version, str) else json.dumps(version)
        self._runs: list[Run] = []

    def build_plans(self, cpus: tuple[int, ...], *, beside: bool) -> Mapping[int, BuildPlan]:  # noqa: ARG002 none
        """None: the script compiles what it runs."""
        return {}

    def refused(self, builds: Builds, spent: Spent) -> None:
        """It always runs."""

    def plans(self, builds: Builds) -> Iterator[tuple[Plan, None]]:  # noqa: ARG002 none
        """One container, with the task's files, the submission and the script."""
        context = self.context
        job, files = context.job, context.task.files
        sources = {
            name: job.code if text == SUBMISSION else text.encode() for name, text in files.items() if text != HARNESS
        }
        step = Step(
            name=STEP,
            argv=(context.environment.python, SCRIPT),
            env={"KERNELBOT_VALIDATION_CONFIG": json.dumps({"version": self._contract.version})},
            timeout_s=SCRIPT_TIMEOUT_S,
            result_pipe=False,
        )
        wall_s = min(SCRIPT_TIMEOUT_S + WALL_MARGIN_S, context.max_run_s)
        request = StepsRequest(files={**sources, SCRIPT: self._contract.source.encode()}, steps=(step,))
        spec = make_spec(context, Boot(kind="steps"), wall_s=wall_s, labels=job_labels(job))
        yield Plan(spec=spec, request=request), None

    def heard(self, run: Run) -> None:
        """Keep the run."""
        self._runs.append(run)

    def decide(self, builds: Builds, spent: Spent) -> JobResult:  # noqa: ARG002 none
        """What the script said, or why it said nothing.

        Raises:
            EvaluationError: the container broke in a way that nothing in it can have caused.
        """
        (run,) = self._runs
        job, outcome = self.context.job, run.report.outcome
        evidence = Evidence(
            steps=run.report.steps,
            artifacts=(),
            ok=run.report.ok,
            message=run.report.message,
            author_exit=run.report.author_exit,
            outcome=outcome,
            request_offset_ns=max(0, run.ready_ns - self.context.started_ns),
            waited_ns=spent.waited_ns,
            system={},
            runner={},
        )
        check_ending(evidence)
        step = next((step for step in evidence.steps if step.name == STEP), None)
        end = End.of(missing_step(job, STEP, evidence)) if step is None else end_of(step)
        if step is not None and outcome.oom_kills and end.verdict in {Verdict.RUNTIME_ERROR, Verdict.TIME_LIMIT}:
            end = End.of(memory_finding(STEP))
        eval_ns = 0 if step is None else step.duration_ns
        public = end.sentence if self.context.task.harness is Harness.BUILTIN else end.error
        record = {"error": public} if end.report is None else asdict(end.report)
        total_ns = evidence.request_offset_ns + outcome.wall_ns
        return JobResult(
            verdict=end.verdict,
            runs=(),
            error=end.error,
            report={
                **job_report(Harness.PROGRAM, evidence, {}, eval_ns),
                "validation": {"contract_version": self._version, **record},
            },
            build_ns=max(0, total_ns - evidence.waited_ns - eval_ns),
            eval_ns=eval_ns,
        )


@dataclass(frozen=True, kw_only=True)
class End:
    """How a script ended."""

    verdict: Verdict
    #: Of ours, for anybody; None: it said what counts.
    sentence: str | None = None
    #: What the script, or the submission beside it, put into the reason.
    words: str | None = None
    report: Report | None = None

    @classmethod
    def of(cls, finding: Finding) -> End:
        """That its container had no result of it."""
        return cls(verdict=finding.verdict, sentence=finding.message)

    @property
    def error(self) -> str | None:
        """The whole sentence."""
        return self.sentence if self.words is None else f"{self.sentence}: {self.words}"


def end_of(step: StepResult) -> End:
    """How the script ended, and what it said if that counts."""
    if step.timed_out:
        sentence = f"the validation script was killed at its time limit ({step.duration_ns / 1e9:.0f} s)"
        return End(verdict=Verdict.TIME_LIMIT, sentence=sentence)
    if step.output_limit:
        written = step.stdout_bytes + step.stderr_bytes
        sentence = f"the validation script was killed after writing {written} bytes of output"
        return End(verdict=Verdict.OUTPUT_LIMIT, sentence=sentence)
    if step.exit_code != 0:
        how = f"by signal {step.signal}" if step.exit_code is None else f"with exit code {step.exit_code}"
        return End(verdict=Verdict.RUNTIME_ERROR, sentence=f"the validation script ended {how}", words=_reason(step))
    try:
        return End(verdict=Verdict.ACCEPTED, report=read_line(_last_line(step.stdout)))
    except NoResult as error:
        sentence = "the validation script's last line of output is no result"
        return End(verdict=Verdict.RUNTIME_ERROR, sentence=sentence, words=str(error))


def read_line(line: str) -> Report:
    """What a script's line of JSON says.

    Raises:
        NoResult: it is too long, no JSON object, or says what cannot be.
    """
    document = _json_object(line)
    if document.get("status") == "failed":
        raise NoResult(f"it says that the validation failed: {_shown(document.get('failure_reason', 'no reason'))}")
    try:
        figures = validate(_Line, document, where="the line")
    except TaskError as error:
        raise NoResult(_shown(str(error).partition("\n")[0])) from error
    if figures.passed_shapes > figures.total_shapes:
        raise NoResult(f"{figures.passed_shapes} of {figures.total_shapes} shapes passed")
    if figures.fully_validated and figures.passed_shapes < figures.total_shapes:
        raise NoResult(f"fully_validated is true, but {figures.passed_shapes} of {figures.total_shapes} shapes passed")
    return Report(**figures.model_dump(exclude={"results"}), result=document)


def _json_object(line: str) -> Mapping[str, Any]:
    if not line:
        raise NoResult("there is none")
    if len(line) > MAX_LINE_CHARS:
        raise NoResult(f"it has {len(line)} characters, expected {MAX_LINE_CHARS} at most")
    try:
        document = json.loads(line, parse_constant=_no_number, parse_float=_finite)
    except NoResult:
        raise
    except (ValueError, RecursionError) as error:
        raise NoResult(f"it is not JSON ({_shown(error)})") from error
    if not isinstance(document, dict):
        raise NoResult("it is JSON, but no object")
    if not _is_shallow(document, _MAX_DEPTH):
        raise NoResult(f"it is nested more than {_MAX_DEPTH} deep")
    return document


def _no_number(word: str) -> NoReturn:
    raise NoResult(f"it holds {word}, which is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NoResult(f"it holds {_shown(text)}, which is too large")
    return value


def _is_shallow(value: object, depth: int) -> bool:
    inside: Sequence[object] = (
        [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return not inside or (depth > 0 and all(_is_shallow(item, depth - 1) for item in inside))


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2].strip()


def _reason(step: StepResult) -> str:
    """What the script gives as its reason, else the last line of its errors."""
    try:
        reason = _json_object(_last_line(step.stdout)).get("failure_reason")
    except NoResult:
        reason = None
    return _shown(reason or _last_line(step.stderr) or "it printed no reason")


def _shown(value: object) -> str:
    return str(value)[:_MAX_REASON_CHARS]
