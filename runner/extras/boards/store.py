"""Leaderboards: made, changed, deleted, listed, paused, ranked. Called by commands and frontends, never by a daemon.

In its records times are the database's, with time zone, and scores are seconds. Absent is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NotRequired, TypedDict, Unpack

from runner.base.errors import BoardError, NotFoundError
from runner.base.model import NEVER, Demand, Json, TimingAssurance
from runner.base.safe import visible
from runner.extras.boards.again import ResultStore
from runner.extras.boards.queries import QUERIES
from runner.extras.queries import SHARED
from runner.store.clean import clean_json, clean_text, to_jsonb
from runner.store.connection import Connection, Row, row, rows
from runner.task_format.model import HARNESS, Harness

#: Keys of task.yml that may not change under the submissions of a leaderboard without `force`.
_FROZEN_KEYS: Final = ("files", "config", "lang", "benchmarks")
#: Before a key of runner.yml, where it is named beside those of task.yml.
RUNNER_YML: Final = "runner.yml: "
#: The key of the evaluator, which never changes under submissions.
EVALUATOR: Final = f"{RUNNER_YML}harness"


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
class BoardView(BoardLine):
    """A leaderboard with its task."""

    description: str
    creator_id: int
    forum_id: int
    #: As stored; parse with `runner.task_format`.
    task: Json
    #: What `runner.yml` said, as stored; None for a board without one.
    extra: Json | None
    #: Whether ranked code is public once the deadline has passed.
    open_code: bool
    #: Language key -> full text.
    templates: Mapping[str, str] = field(default_factory=dict)


class Parts(TypedDict):
    """What a task is published with."""

    name: str
    deadline: datetime
    task: Json
    description: str
    gpus: Sequence[str]
    templates: Mapping[str, str]
    extra: Json | None
    #: As `runner.set_demand` has them; absent: as they are, or the defaults.
    timing: NotRequired[TimingAssurance | None]
    tolerance: NotRequired[float | None]
    #: As `runner.set_open_code` has it.
    open_code: NotRequired[bool | None]


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


class BoardStore(ResultStore):
    """A store that also publishes tasks, and reads rankings."""

    def create_board(
        self, *, creator_id: int = -1, forum_id: int = 0, visibility: str = "public", **parts: Unpack[Parts]
    ) -> int:
        """Publish a task; returns the leaderboard's id.

        Raises:
            BoardError: the name is taken or empty, or there is no GPU type.
        """
        check_board(parts["name"], parts["deadline"], parts["gpus"])
        name = parts["name"]
        check_new_name(name)
        with self._link.transaction() as connection:
            ids = {"creator_id": creator_id, "forum_id": forum_id}
            parameters = {**_own_columns(parts), "name": name, **ids, "visibility": visibility}
            created = row(connection, QUERIES["insert_board"], parameters)
            if created is None:
                raise BoardError(
                    f"leaderboard {name!r} exists already; update it, delete it first, or choose another name"
                )
            _write_parts(connection, created["id"], parts)
        return int(created["id"])

    def update_board(self, *, force: bool = False, **parts: Unpack[Parts]) -> int:
        """Publish a task anew under an existing name; returns the leaderboard's id.

        Raises:
            NotFoundError: no such leaderboard.
            BoardError: there are submissions and what they were measured with would change; `force` does it anyway,
                unless another evaluator would decide.
        """
        check_board(parts["name"], parts["deadline"], parts["gpus"])
        name = parts["name"]
        with self._link.transaction() as connection:
            rows(connection, QUERIES["lock_board"], {"name": name})
            board = row(connection, QUERIES["board_use"], {"name": name})
            if board is None:
                raise _no_board(name)
            changed = incomparable(
                board["task"], board["extra"], new_task=parts["task"], new_extra=parts["extra"], gpus=board["gpus"]
            )
            if board["submissions"] and EVALUATOR in changed:
                raise BoardError(other_evaluator(name, board["submissions"]))
            if board["submissions"] and changed and not force:
                raise BoardError(
                    f"leaderboard {name!r} has {board['submissions']} submissions and {', '.join(changed)} would "
                    "change: old and new scores would not compare; force the update, or create another leaderboard"
                )
            rows(connection, QUERIES["update_board"], {**_own_columns(parts), "id": board["id"]})
            _write_parts(connection, board["id"], parts)
        return int(board["id"])

    def delete_board(self, name: str, *, force: bool = False) -> None:
        """Remove a leaderboard with everything on it.

        With submissions it takes several transactions. From the first on the leaderboard is closed. After an error the
        rest of it can be removed by another call.

        Raises:
            NotFoundError: no such leaderboard.
            SubmissionError: it has submissions; `force` removes them too.
        """
        if not self.all(QUERIES["board"], name=name):
            raise _no_board(name)
        while self.all(SHARED["delete_board"], name=name, force=force)[0]["deleted"]:
            pass

    def boards(self) -> Sequence[BoardLine]:
        """All leaderboards, open ones first."""
        return [BoardLine(**_board(record)) for record in self.all(QUERIES["boards"])]

    def line(self, name: str) -> BoardLine:
        """A leaderboard as in the list, for logins that may read no task.

        Raises:
            NotFoundError: no such leaderboard.
        """
        line = next((line for line in self.boards() if line.name == name), None)
        if line is None:
            raise _no_board(name)
        return line

    def board(self, name: str) -> BoardView:
        """A leaderboard with its task.

        Raises:
            NotFoundError: no such leaderboard.
        """
        with self._link.transaction() as connection:
            record = row(connection, QUERIES["board"], {"name": name})
            if record is None:
                raise _no_board(name)
            templates = rows(connection, QUERIES["board_templates"], {"id": record["id"]})
        return BoardView(
            **_board(record),
            templates={template["lang"]: template["code"] for template in templates},
        )

    def ranking(self, leaderboard: str, gpu_type: str | None = None) -> Sequence[RankingLine]:
        """The best score that counts of every user, per GPU type.

        Raises:
            NotFoundError: no such leaderboard.
        """
        places = self.all(QUERIES["ranking"], leaderboard=leaderboard, gpu_type=gpu_type)
        if not places:
            self.line(leaderboard)
        return [RankingLine(score_s=float(place.pop("score")), **place) for place in places]

    def final_ranking(
        self, leaderboard: str, gpu_type: str | None = None
    ) -> tuple[Sequence[FinalLine], Sequence[FinalPair]]:
        """The order of a leaderboard's last finals, and how their pairs compare."""
        parameters = {"leaderboard": leaderboard, "gpu_type": gpu_type}
        with self._link.transaction() as connection:
            lines = rows(connection, QUERIES["final_ranking"], parameters)
            ids = sorted({line["final_id"] for line in lines})
            pairs = rows(connection, QUERIES["final_pairs"], {"ids": ids})
        return [FinalLine(**line) for line in lines], [FinalPair(**pair) for pair in pairs]

    def pause_board(self, leaderboard: str, *, reason: str) -> bool:
        """Let no host claim jobs of a leaderboard; what runs goes on. False: it was paused already.

        Raises:
            SubmissionError: no such leaderboard, or the reason is empty.
        """
        return bool(self.all(QUERIES["pause_board"], leaderboard=leaderboard, reason=reason)[0]["changed"])

    def resume_board(self, leaderboard: str) -> bool:
        """Let hosts claim jobs of a leaderboard again. False: it was not paused.

        Raises:
            SubmissionError: no such leaderboard.
        """
        return bool(self.all(QUERIES["resume_board"], leaderboard=leaderboard)[0]["changed"])


def incomparable(
    task: Json, extra: Json | None, *, new_task: Json, new_extra: Json | None, gpus: Sequence[str]
) -> Sequence[str]:
    """Changes that make a leaderboard's old and new scores incomparable.

    In task.yml these are the keys that KernelBot's `--force` guards. In runner.yml these are changes of the evaluator,
    of the files that a submission can see, and of the timed cases of the leaderboard's GPU types.

    `extra` is what runner.yml said; `gpus` are the GPU types it is ranked on so far: no other has scores.

    Returns:
        Keys as an author knows them, e.g. `benchmarks`, `runner.yml: harness`, `runner.yml: cases.CPU.benchmarks`.
    """
    extra, new_task, new_extra = extra or {}, _as_stored(new_task), _as_stored(new_extra or {})
    changed = [key for key in _FROZEN_KEYS if task.get(key) != new_task.get(key)]
    if _evaluator(task, extra) != _evaluator(new_task, new_extra):
        changed.append(EVALUATOR)
    if set(extra.get("private", ())) != set(new_extra.get("private", ())):
        changed.append(f"{RUNNER_YML}private")
    for gpu in gpus:
        own, new_own = (record.get("cases", {}).get(gpu, {}).get("benchmarks") for record in (extra, new_extra))
        before = task.get("benchmarks") if own is None else own
        after = new_task.get("benchmarks") if new_own is None else new_own
        # Where neither has cases of its own, `benchmarks` above is what changed.
        if (own, new_own) != (None, None) and before != after:
            changed.append(f"{RUNNER_YML}cases.{gpu}.benchmarks")
    return changed


def other_evaluator(name: str, submissions: int) -> str:
    """Why a leaderboard keeps its evaluator: what the judge decides never ranks with what a submission may forge."""
    return (
        f"leaderboard {name!r} has {submissions} submissions, and another evaluator would decide: scores of the judge "
        "and of an eval program never rank together; create another leaderboard"
    )


def _no_board(name: str) -> NotFoundError:
    what = f"leaderboard {name!r} does not exist" if name.strip() else "no leaderboard is named"
    return NotFoundError(f"{what}; `kernel-runner leaderboard list` shows those that do")


def _as_stored(value: Json) -> Json:
    return {key: clean_json(item) for key, item in value.items()}


def _evaluator(task: Json, extra: Json) -> object:
    """The evaluator of a task; an author may state the default."""
    main = task.get("files", {}).get(task.get("config", {}).get("main"))
    return extra.get("harness") or (Harness.BUILTIN if main == HARNESS else Harness.PROGRAM)


def check_new_name(name: str) -> None:
    """Refuse a name that no page could have as its address, or that reads as another.

    Raises:
        BoardError: it has a slash or what is not seen, or is dots alone.
    """
    if visible(name) != name:
        raise BoardError(f"leaderboard name {name!r}: expected visible text")
    if "/" in name or name in (".", ".."):
        raise BoardError(f"leaderboard name {name!r}: found a slash or dots alone, expected a part of an address")


def check_board(name: str, deadline: datetime, gpus: Sequence[str]) -> None:
    """Refuse what no leaderboard may have.

    Raises:
        BoardError: the name is no visible text, the deadline has no time zone or is too late, or GPU types are missing
            or named twice.
    """
    if not name.strip() or name != clean_text(name):
        raise BoardError(f"leaderboard name {name!r}: expected visible text")
    if deadline.tzinfo is None:
        raise BoardError(f"leaderboard {name!r}: deadline {deadline} has no time zone; say UTC if you mean it")
    if deadline > NEVER:
        raise BoardError(f"leaderboard {name!r}: deadline {deadline}, expected {NEVER:%Y-%m-%d} at the latest")
    if not gpus:
        raise BoardError(f"leaderboard {name!r}: no GPU type; name at least one it is ranked on")
    if len(set(gpus)) != len(gpus):
        raise BoardError(f"leaderboard {name!r}: a GPU type is named twice in {', '.join(gpus)}")


def _board(record: Row) -> dict[str, Any]:
    """The columns of a leaderboard as its record has them."""
    own = {key: value for key, value in record.items() if key not in ("timing", "tolerance")}
    demand = Demand(timing=TimingAssurance(record["timing"]), tolerance=record["tolerance"])
    return {**own, "gpus": tuple(record["gpus"]), "demand": demand}


def _own_columns(parts: Parts) -> Mapping[str, object]:
    """The columns of a leaderboard's own row that an update changes, too."""
    return {
        "deadline": parts["deadline"],
        "task": to_jsonb(parts["task"]),
        "description": clean_text(parts["description"]),
    }


def _write_parts(connection: Connection, board_id: int, parts: Parts) -> None:
    """What is in other rows; None leaves a setting as it is."""
    gpus = {"id": board_id, "gpus": list(parts["gpus"])}
    rows(connection, QUERIES["drop_board_gpus"], gpus)
    rows(connection, QUERIES["insert_board_gpus"], gpus)
    rows(connection, QUERIES["drop_board_templates"], {"id": board_id})
    for lang, code in parts["templates"].items():
        parameters = {"id": board_id, "lang": clean_text(lang), "code": clean_text(code)}
        rows(connection, QUERIES["insert_board_template"], parameters)
    extra = parts["extra"]
    harness = None if extra is None else extra.get("harness")
    rows(connection, QUERIES["save_board_extra"], {"id": board_id, "extra": to_jsonb(extra), "harness": harness})
    for query, settings in (("set_demand", ("timing", "tolerance")), ("set_open_code", ("open_code",))):
        values = {name: parts.get(name) for name in settings}
        if any(value is not None for value in values.values()):
            rows(connection, QUERIES[query], {"name": parts["name"], **values})
