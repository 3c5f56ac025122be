"""What may be exported: the options, and the rules by which they are refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runner.base.errors import DataError
from runner.extras.data import manifest
from runner.extras.data.people import Exclusions, Identity
from runner.extras.data.snapshot import DataBoard, People

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is to be exported, where to, and how."""

    target: Path
    #: Names of leaderboards; none: all of them.
    boards: tuple[str, ...] = ()
    #: Open and closed leaderboards too, and no licence.
    private: bool = False
    licence: str | None = None
    identity: Identity = Identity.NAME
    key: bytes | None = field(default=None, repr=False)
    exclusions: Exclusions = field(default_factory=Exclusions)
    #: Signed statements too, which name hosts and users.
    receipts: bool = False
    #: The flat file is NAME_submissions.parquet; None: the name of the only leaderboard, else `kernels`.
    name: str | None = None
    #: Leaderboard -> what a reader should know before trusting its scores.
    notes: Mapping[str, str] = field(default_factory=dict)

    def note_of(self, board: DataBoard) -> str | None:
        """What a reader should know of this leaderboard, which is named by its name or its number."""
        return self.notes.get(board.name, self.notes.get(str(board.id)))


def named(boards: Sequence[DataBoard], names: Collection[str]) -> Sequence[DataBoard]:
    """The leaderboards of these names or numbers; without any, all.

    Raises:
        DataError: there is no such leaderboard.
    """
    by_name = {str(board.id): board for board in boards} | {board.name: board for board in boards}
    for name in names:
        if name not in by_name:
            raise DataError(f"there is no leaderboard {name!r}; `kernel-runner leaderboard list` shows those that are")
    ids = {by_name[name].id for name in names}
    return [board for board in boards if not names or board.id in ids]


def chosen(boards: Sequence[DataBoard], options: Options) -> Sequence[DataBoard]:
    """The leaderboards to export.

    Raises:
        DataError: one is unknown, or a public export may not have it, or needs a licence.
    """
    if options.receipts and options.identity is Identity.PSEUDONYM:
        raise DataError("receipts name users, so an export with pseudonyms has none; leave out --receipts")
    selected = named(boards, options.boards)
    named(boards, options.notes)
    if options.private:
        return selected
    kept_back = [f"{board.name} ({_why_closed(board)})" for board in selected if not board.code_open]
    if kept_back:
        raise DataError(
            f"a public export may not have leaderboards whose code is not public: {', '.join(kept_back)}. Choose "
            "others with --leaderboard, or export for yourself with --private"
        )
    if not (options.licence or "").strip():
        raise DataError("a public export needs a licence, e.g. --licence cc-by-4.0; --private does without")
    return selected


def _why_closed(board: DataBoard) -> str:
    """Why the code of a leaderboard is not public."""
    if board.open:
        return f"open until {manifest.moment(board.deadline_us)}"
    return board.visibility if board.visibility != "public" else "its owner keeps code closed"


def refuse_addresses(people: Sequence[People], options: Options) -> None:
    """Refuse to publish users' addresses of electronic mail.

    Raises:
        DataError: a user has one in an id, which this export would show.
    """
    addresses = sum(line.addresses for line in people)
    if addresses and not options.private and options.identity is not Identity.PSEUDONYM:
        raise DataError(
            f"{addresses} users have an address of electronic mail in their id, which a public export may not show; "
            "use --identity pseudonym"
        )


def flat_name(boards: Sequence[DataBoard], options: Options) -> str:
    """The data set's name, which the flat file's begins with.

    Raises:
        DataError: it cannot be one.
    """
    name = options.name or (re.sub(r"[^A-Za-z0-9._-]", "_", boards[0].name) if len(boards) == 1 else "kernels")
    if not _NAME.fullmatch(name):
        raise DataError(
            f"{name!r} cannot be the name of a data set: use letters, digits, dot, dash and underscore (--name)"
        )
    return name
