"""What the tools answer: records for a model's context, so each is short, and what is absent or empty is left out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer


class Answer(BaseModel):
    """A record without what is optional and None or empty."""

    model_config = ConfigDict(frozen=True)

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {
            key: value
            for key, value in handler(self).items()
            if type(self).model_fields[key].is_required() or value not in (None, "", [], {})
        }


class GpuType(Answer):
    """A GPU type of a leaderboard and its ranking so far."""

    gpu_type: str
    ranked_users: int | None = None
    best_time: str | None = None


class Board(Answer):
    """A leaderboard in the list."""

    leaderboard: str
    deadline: str
    ended: bool
    gpu_types: list[GpuType]


class Boards(Answer):
    """The leaderboards."""

    leaderboards: list[Board]
    next_offset: Annotated[int | None, Field(description="There are more: pass this as offset.")] = None


class Place(Answer):
    """A place in the ranking."""

    rank: int | None = None
    user: str
    time: str
    submission_id: int
    yours: bool = False


class Ranking(Answer):
    """A page of a ranking, the fastest first."""

    leaderboard: str
    gpu_type: str
    places: list[Place]
    next_offset: int | None = None


class File(Answer):
    """A file to read on request."""

    name: str
    characters: int | None = None


class Text(Answer):
    """A part of a text."""

    text: str
    characters: Annotated[int, Field(description="Of the whole text.")]
    next_offset: Annotated[int | None, Field(description="The text goes on: pass this as offset.")] = None


class BoardDetails(Answer):
    """A leaderboard's task."""

    leaderboard: str
    deadline: str
    ended: bool
    gpu_types: list[GpuType]
    description: str = ""
    ranked_by: str = ""
    benchmarks: Annotated[
        list[dict[str, Any]], Field(description="Arguments of each timed case; best: the leader's mean time.")
    ] = []
    tests: Annotated[list[dict[str, Any]], Field(description="Arguments of each tested case.")] = []
    files: Annotated[list[File], Field(description="Read them with read_leaderboard_file.")] = []
    template: Annotated[str, Field(description="A submission to begin with.")] = ""
    template_name: str = ""
    leaders: Annotated[list[Place], Field(description="On leaders_gpu_type.")] = []
    leaders_gpu_type: str | None = None


class Difference(Answer):
    """An element that is wrong."""

    output: str | None = None
    index: str
    got: str
    expected: str
    off_by: str = ""


class Failure(Answer):
    """A case that failed."""

    case: str
    arguments: str = ""
    message: str = ""
    differences: list[Difference] = []
    tolerance: str = ""


class Timed(Answer):
    """A timed case."""

    arguments: str
    mean: Annotated[str, Field(description="Mean time with half its 95 % interval.")]
    speed_of_light: Annotated[str, Field(description="How near to the least possible time, and what bounds it.")] = ""
    remarks: str = ""


class Run(Answer):
    """One run: the tests, the benchmarks, the ranked run, or a profile of one benchmark."""

    mode: str
    gpu_type: str
    passed: bool
    cases: str = ""
    failures: list[Failure] = []
    times: list[Timed] = []
    roofline: str = ""
    stderr_end: str = ""
    compiler: str = ""


class Result(Answer):
    """How far a submission is and what came of it."""

    submission_id: int
    leaderboard: str
    state: Annotated[str, Field(description="waiting: not over yet; done.")]
    headline: str
    next: Annotated[str, Field(description="What to do now.")] = ""
    verdict: str | None = None
    time: Annotated[str | None, Field(description="The ranked time.")] = None
    measured_by: str = ""
    does_not_rank: str | None = None
    error: str | None = None
    runs: list[Run] = []
    secret_run_passed: dict[str, bool] = {}
    files: Annotated[list[str], Field(description="Read them with read_submission_file.")] = []
    page: str = ""


class Case(Answer):
    """A case of two submissions."""

    arguments: str
    this: str | None = None
    other: str | None = None
    times_other: Annotated[float | None, Field(description="This mean as a multiple of the other's.")] = None
    this_is: Annotated[str, Field(description="faster, slower, or cannot be told: the intervals do not separate them.")]


class Comparison(Answer):
    """Two submissions, case by case."""

    this: int
    other: int
    gpu_type: str
    summary: str
    cases: list[Case] = []
    note: str = ""


class Mine(Answer):
    """One of the user's submissions."""

    submission_id: int
    leaderboard: str
    file_name: str
    submitted: str
    verdict: str
    times: dict[str, str] = {}


class Submissions(Answer):
    """The user's submissions, the newest first."""

    submissions: list[Mine]
    next_offset: int | None = None


class Cancelled(Answer):
    """A submission that was asked to stop."""

    submission_id: int
    state: str
    next: str = ""
