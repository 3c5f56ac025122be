"""The keys of task.yml, runner.yml and competition files as pydantic models.

Rules that concern several keys (a main that is a file, world_size in every case) are checked in `build`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from runner.dates import EXPECTED, DateError, read_date
from runner.gpu_types.model import Dtype
from runner.task_format.cases import name_problem, value_problem

_DAY_S = 86_400


def _case(value: object) -> object:
    if not isinstance(value, dict):
        raise PydanticCustomError("case", "a mapping of argument names to values")
    return value


def _case_name(value: object) -> object:
    expected = name_problem(value)
    if expected is not None:
        raise PydanticCustomError("case_name", "{expected}", {"expected": expected})
    return value


def _case_value(value: object) -> object:
    expected = value_problem(value)
    if expected is not None:
        raise PydanticCustomError("case_value", "{expected}", {"expected": expected})
    return value


def _define(value: object) -> object:
    # In YAML the 4 of -DN=4 is an integer. Booleans and floats have other forms in C, and are refused.
    return str(value) if type(value) is int else value


def _deadline(value: object) -> object:
    if value is None or value == "":
        return None
    try:
        return read_date(str(value), zone=UTC)
    except DateError:
        raise PydanticCustomError("date", "{expected}", {"expected": EXPECTED}) from None


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(default_factory=list)]
CaseName = Annotated[str, BeforeValidator(_case_name)]
CaseValue = Annotated[Any, BeforeValidator(_case_value)]
CaseMapping = Annotated[dict[CaseName, CaseValue], BeforeValidator(_case), Field(min_length=1)]
Cases = Annotated[list[CaseMapping], Field(default_factory=list)]
Seconds = Annotated[int, Field(gt=0, le=_DAY_S)]
#: Three calls are the least for a spread. With more than a thousand the statistics take longer than the calls.
Runs = Annotated[int, Field(ge=3, le=1000)]
Duration = Annotated[float, Field(ge=0, le=_DAY_S)]
#: numpy's generators refuse larger seeds.
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FileEntry(_Document):
    """One entry of `files`."""

    name: Text
    source: Text


class PyConfigDocument(_Document):
    """`config` of a Python task."""

    main: Text


class CuConfigDocument(_Document):
    """`config` of a CUDA C++ task."""

    sources: Annotated[list[Text], Field(min_length=1)]
    include_dirs: Texts
    defines: dict[Text, Annotated[str, BeforeValidator(_define)]] = Field(default_factory=dict)
    compile_flags: Texts


class TaskCommon(_Document):
    """The keys that task.yml and a stored task share, with KernelBot's defaults."""

    lang: Literal["py", "cu"]
    config: dict[str, Any]
    tests: Cases
    benchmarks: Cases
    test_timeout: Seconds = 180
    benchmark_timeout: Seconds = 180
    ranked_timeout: Seconds = 180
    ranking_by: Literal["last", "mean", "geom"] = "last"
    seed: Seed | None = None
    multi_gpu: bool = False
    libraries: Texts
    #: What KernelBot validates submissions with. It is kept, and not used here.
    validation: dict[str, Any] | None = None


class Templates(_Document):
    """`templates`: language -> source; the keys are KernelBot's."""

    CUDA: Text | None = None
    Python: Text | None = None
    Triton: Text | None = None
    HIP: Text | None = None
    CuteDSL: Text | None = None


class TaskDocument(TaskCommon):
    """task.yml."""

    files: Annotated[list[FileEntry], Field(min_length=1)]
    description: Text
    templates: Templates = Templates()
    gpus: Texts


class StoredTaskDocument(TaskCommon):
    """`leaderboard.leaderboard.task`."""

    files: Annotated[dict[Text, str], Field(min_length=1)]
    validation: Any = None


class CaseSetDocument(_Document):
    """Cases for one GPU type."""

    tests: list[CaseMapping] | None = None
    benchmarks: list[CaseMapping] | None = None
    hidden: list[CaseMapping] | None = None


class TimingDocument(_Document):
    """`timing` of runner.yml."""

    width: Annotated[float | None, Field(gt=0, le=1)] = None
    min_runs: Runs | None = None
    max_runs: Runs | None = None
    min_kernel_s: Duration | None = None
    max_kernel_s: Duration | None = None
    min_wall_s: Duration | None = None
    max_wall_s: Duration | None = None
    noisy: Annotated[float | None, Field(gt=0, le=10)] = None
    refuse: Annotated[float | None, Field(gt=0, le=10)] = None
    mode: Literal["single", "batch", "both"] | None = None
    batch_size: Annotated[int | None, Field(ge=2, le=256)] = None


class ExtraDocument(_Document):
    """runner.yml, and `runner.board.extra`."""

    harness: Literal["builtin", "program"] | None = None
    cases: dict[Text, CaseSetDocument] = Field(default_factory=dict)
    hidden: Cases
    private: Texts
    flops: Text | None = None
    math: Annotated[Dtype | None, Field(strict=False)] = None
    bytes: Text | None = None
    written: Text | None = None
    timing: TimingDocument | None = None


class ProblemDocument(_Document):
    """One entry of a competition file."""

    name: Text
    directory: Text
    deadline: Annotated[datetime | None, BeforeValidator(_deadline)] = None
    gpus: Texts


class CompetitionDocument(_Document):
    """A competition file."""

    name: Text
    description: str = ""
    #: Unused, as in KernelBot.
    deadline: Any = None
    problems: Annotated[list[ProblemDocument], Field(min_length=1)]
