"""Task records: the content of a `task.yml` and a `runner.yml`, and what their keys may hold. Pure.

The stored form (`leaderboard.leaderboard.task`) has KernelBot's keys and no others. What only this project understands
is stored beside it, in `runner.board`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from runner.base.gpu_types.model import Dtype
from runner.task_format.cases import CaseMapping

DAY_S = 86_400
Text = Annotated[str, Field(min_length=1)]

#: Stands in `files` for the user's file. Its key is the name of that file inside the container.
SUBMISSION = "@SUBMISSION@"
#: Stands in `files` for the built-in eval program.
HARNESS = "@HARNESS@"
#: Always private: the submission must not know what it holds.
REFERENCE = "reference.py"

#: One case: argument name -> int, bool, str, float or a list of ints, as the YAML says.
Case = Mapping[str, object]


class Lang(StrEnum):
    """Language of a task's submissions."""

    PY = "py"
    CU = "cu"


class Ranking(StrEnum):
    """How the score of a leaderboard run is computed from its benchmark means."""

    LAST = "last"
    MEAN = "mean"
    GEOM = "geom"


class Harness(StrEnum):
    """The evaluator: the built-in judge, or the task's own eval program (in process with the submission)."""

    BUILTIN = "builtin"
    PROGRAM = "program"


def _define(value: object) -> object:
    # In YAML the 4 of -DN=4 is an integer. Booleans and floats have other forms in C, and are refused.
    return str(value) if type(value) is int else value


@dataclass(frozen=True, kw_only=True)
class PyConfig:
    """`config` of a `lang: py` task."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    main: Text


@dataclass(frozen=True, kw_only=True)
class CuConfig:
    """`config` of a `lang: cu` task. `compile_flags` are stored for KernelBot, and ignored here as well as there."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    sources: Annotated[tuple[Text, ...], Field(min_length=1)]
    include_dirs: tuple[Text, ...] = ()
    defines: Mapping[Text, Annotated[str, BeforeValidator(_define)]] = field(default_factory=dict)
    compile_flags: tuple[Text, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CaseSet:
    """Cases that replace the task's own on one GPU type (from `runner.yml`); an absent list keeps the task's."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    tests: tuple[CaseMapping, ...] | None = None
    benchmarks: tuple[CaseMapping, ...] | None = None
    #: Tests of secret runs alone.
    hidden: tuple[CaseMapping, ...] | None = None

    @property
    def every(self) -> tuple[Case, ...]:
        """Tests, benchmarks and hidden tests."""
        return (*(self.tests or ()), *(self.benchmarks or ()), *(self.hidden or ()))


#: Three calls are the least for a spread. With more than a thousand the statistics take longer than the calls.
_Runs = Annotated[int, Field(ge=3, le=1000, strict=True)]
_Duration = Annotated[float, Field(ge=0, le=DAY_S, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """`timing` of runner.yml: how the judge times a case. None leaves the mode's value."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    width: Annotated[float | None, Field(gt=0, le=1, strict=True)] = None
    min_runs: _Runs | None = None
    max_runs: _Runs | None = None
    min_kernel_s: _Duration | None = None
    max_kernel_s: _Duration | None = None
    min_wall_s: _Duration | None = None
    max_wall_s: _Duration | None = None
    noisy: Annotated[float | None, Field(gt=0, le=10, strict=True)] = None
    refuse: Annotated[float | None, Field(gt=0, le=10, strict=True)] = None


@dataclass(frozen=True, kw_only=True)
class Extra:
    """The content of `runner.yml`. The defaults are those of a task without one."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    #: None: the built-in harness if, and only if, the eval program's source is @HARNESS@.
    harness: Harness | None = None
    #: GPU type -> cases.
    cases: Mapping[Text, CaseSet] = field(default_factory=dict)
    #: Tests of secret runs alone, after the others.
    hidden: tuple[CaseMapping, ...] = ()
    #: Names of task files that only the judge may see, besides the reference and the eval program.
    private: tuple[Text, ...] = ()
    #: Work per case as expressions over its arguments, for the speed of light: operations; the narrowest data type
    #: whose units may do them; bytes read or written; bytes written.
    flops: Text | None = None
    math: Dtype | None = None
    bytes: Text | None = None
    written: Text | None = None
    #: Bytes that a case needs at once, in judge and submission together, as such an expression; None: estimated.
    memory: Text | None = None
    #: How long the built-in harness times a case, and which noise is too much; None: the defaults of the mode.
    timing: Timing | None = None


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What accepted submissions are validated with: a program, and the version of what it demands."""

    #: As `unknown_keys` says, a later KernelBot's keys are kept and not used.
    __pydantic_config__ = ConfigDict(extra="ignore")

    #: A number where KernelBot's author wrote one.
    version: Text | int | float
    source: Text


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task as stored on a leaderboard."""

    #: Name -> full text, or SUBMISSION, or HARNESS. Exactly one SUBMISSION.
    files: Mapping[str, str]
    lang: Lang
    config: PyConfig | CuConfig
    tests: tuple[Case, ...] = ()
    benchmarks: tuple[Case, ...] = ()
    test_timeout_s: int = 180
    benchmark_timeout_s: int = 180
    ranked_timeout_s: int = 180
    ranking_by: Ranking = Ranking.LAST
    seed: int | None = None
    multi_gpu: bool = False
    libraries: tuple[str, ...] = ()
    #: As stored. What is no `Validation`, a later KernelBot's, is kept and cannot be used.
    validation: object = None
    extra: Extra = field(default_factory=Extra)

    @property
    def submission_name(self) -> str:
        """The file name of the submission inside the container."""
        return next(name for name, text in self.files.items() if text == SUBMISSION)

    @property
    def harness(self) -> Harness:
        """The evaluator of this task."""
        if self.extra.harness is not None:
            return self.extra.harness
        main = self.config.main if isinstance(self.config, PyConfig) else None
        return Harness.BUILTIN if main is not None and self.files.get(main) == HARNESS else Harness.PROGRAM

    @property
    def judge_files(self) -> Mapping[str, str]:
        """The files of the built-in judge: all but the submission, and the eval program, which the judge replaces."""
        main = self.config.main if isinstance(self.config, PyConfig) else None
        return {name: text for name, text in self.files.items() if text not in (SUBMISSION, HARNESS) and name != main}

    @property
    def worker_files(self) -> tuple[str, ...]:
        """The names of those of the judge's files that the submission may see."""
        hidden = {REFERENCE, *self.extra.private}
        return tuple(name for name in self.judge_files if name not in hidden)

    def cases_for(self, gpu_type: str) -> CaseSet:
        """The tests, benchmarks and hidden tests used on a GPU type."""
        override = self.extra.cases.get(gpu_type, CaseSet())
        return CaseSet(
            tests=self.tests if override.tests is None else override.tests,
            benchmarks=self.benchmarks if override.benchmarks is None else override.benchmarks,
            hidden=self.extra.hidden if override.hidden is None else override.hidden,
        )


@dataclass(frozen=True, kw_only=True)
class TaskFolder:
    """A task folder or archive as its author wrote it: the task, and what is published with a leaderboard."""

    name: str
    task: Task
    description: str
    #: Language key of `templates` (CUDA, Python, Triton, HIP, CuteDSL) -> full text.
    templates: Mapping[str, str]
    gpus: tuple[str, ...]
