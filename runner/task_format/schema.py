"""The keys of task.yml as pydantic models; those of runner.yml are `model.Extra`.

Rules that concern several keys (a main that is a file, world_size in every case) are checked in `build`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from runner.task_format.cases import CaseMapping, ProgramCase
from runner.task_format.model import DAY_S, Text

Texts = Annotated[list[Text], Field(default_factory=list)]
Cases = Annotated[list[CaseMapping], Field(default_factory=list)]
Seconds = Annotated[int, Field(gt=0, le=DAY_S)]
#: numpy's generators refuse larger seeds.
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]


class Document(BaseModel):
    """Keys that a file has, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FileEntry(Document):
    """One entry of `files`."""

    name: Text
    source: Text


class TaskCommon(Document):
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
    #: What accepted submissions are validated with.
    validation: Any = None


class Templates(Document):
    """`templates`: language -> source; the keys are KernelBot's."""

    CUDA: Text | None = None
    Python: Text | None = None
    Triton: Text | None = None
    HIP: Text | None = None
    CuteDSL: Text | None = None


class ValidationEntry(Document):
    """`validation`: the version of what a script demands, and the script's path."""

    version: Text
    script: Text


class TaskDocument(TaskCommon):
    """task.yml."""

    files: Annotated[list[FileEntry], Field(min_length=1)]
    validation: ValidationEntry | None = None
    description: Text
    templates: Templates = Templates()
    gpus: Texts


def _listed(value: object) -> object:
    return [] if value is None else value


def _limit(value: object) -> object:
    """Whole seconds; null, with which KernelBot sets no limit, is the longest."""
    if value is None:
        return DAY_S
    if isinstance(value, int | float) and not isinstance(value, bool):
        return min(math.ceil(value), DAY_S)
    return value


def _whole(value: object) -> object:
    """KernelBot hands a seed over as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _truth(value: object) -> object:
    return bool(value) if value is None or (isinstance(value, int) and value in (0, 1)) else value


def _set(value: object) -> object:
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


Limit = Annotated[Seconds, BeforeValidator(_limit)]


class StoredTaskDocument(TaskCommon):
    """`leaderboard.leaderboard.task`. KernelBot checks no types: what it runs is read, in its meaning."""

    files: Annotated[dict[Text, str], Field(min_length=1)]
    config: Annotated[dict[str, Any], BeforeValidator(_set)]
    tests: Annotated[Cases, BeforeValidator(_listed)]
    benchmarks: Annotated[Cases, BeforeValidator(_listed)]
    test_timeout: Limit = 180
    benchmark_timeout: Limit = 180
    ranked_timeout: Limit = 180
    seed: Annotated[Seed | None, BeforeValidator(_whole)] = None
    multi_gpu: Annotated[bool, BeforeValidator(_truth)] = False
    libraries: Annotated[Texts, BeforeValidator(_listed)]


class StoredProgramDocument(StoredTaskDocument):
    """The same with an eval program of its own, which alone reads cases and seed."""

    seed: Annotated[int | None, BeforeValidator(_whole)] = None
    tests: Annotated[list[ProgramCase], Field(default_factory=list), BeforeValidator(_listed)]
    benchmarks: Annotated[list[ProgramCase], Field(default_factory=list), BeforeValidator(_listed)]
