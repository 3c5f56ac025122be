"""What the store hands out about leaderboards, their rankings and their finals, as frozen records; pure.

Times are the database's, with time zone. Scores are seconds. Absent is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from runner.base.model import Demand, Json


@dataclass(frozen=True, kw_only=True)
class BoardLine:
    """A leaderboard in a list."""

    id: int
    name: str
    deadline: datetime
    gpus: tuple[str, ...]
    visibility: str
    submissions: int
    demand: Demand = field(default_factory=Demand)


@dataclass(frozen=True, kw_only=True)
class BoardView:
    """A leaderboard with its task."""

    id: int
    name: str
    deadline: datetime
    description: str
    gpus: tuple[str, ...]
    visibility: str
    creator_id: int
    forum_id: int
    submissions: int
    #: As stored; parse with `runner.task_format`.
    task: Json
    #: What `runner.yml` said, as stored; None for a board without one.
    extra: Json | None
    #: Whether ranked code is public once the deadline has passed.
    open_code: bool
    #: Language key -> full text.
    templates: Mapping[str, str] = field(default_factory=dict)
    demand: Demand = field(default_factory=Demand)


@dataclass(frozen=True, kw_only=True)
class RankingLine:
    """A place on a leaderboard."""

    rank: int
    leaderboard: str
    gpu_type: str
    user_id: str
    user_name: str | None
    submission_id: int
    file_name: str
    score_s: float
    submission_time: datetime
    #: The timing assurance, and the checker of the results: judge or in_process.
    timing: str
    correctness: str
    #: Submitted after the leaderboard's deadline, by an operator.
    late: bool = False


@dataclass(frozen=True, kw_only=True)
class FinalLine:
    """A place of a final, or a finalist who is out."""

    gpu_type: str
    #: Equal for those who cannot be told apart; None: out.
    rank: int | None
    user_id: str
    user_name: str | None
    submission_id: int
    #: Of the lower quartiles of all evaluations: the median, and its 95 % interval; None: there are none, or too few.
    score_s: float | None
    score_low_s: float | None
    score_high_s: float | None
    evaluations: int
    hosts: int
    #: The largest median of a host, or of a round, over the smallest.
    spread_hosts: float | None
    spread_rounds: float | None
    #: The verdict that put it out, and the round.
    fault: str | None
    rank_before: int
    final_id: int
    ended_at: datetime


@dataclass(frozen=True, kw_only=True)
class FinalPair:
    """Two of a final, by their numbers; 0 is the control, which is number 1 once more."""

    final_id: int
    first: int
    second: int
    control: bool
    #: The rounds in which both have a score on the same host, and those in which the first was faster.
    n: int
    wins: int
    #: The time of the second over that of the first: the median, and its 95 % interval.
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    #: The chance of such a count for equal kernels.
    error: float
    told_apart: bool
    #: The same of the mean times, of their lowest tenths; those who are told apart have the same order by it.
    mean_ratio: float | None
