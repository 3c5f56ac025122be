"""What a data export and its checks read: one snapshot of the database, in pieces, never the whole.

`snapshot` opens a transaction that only reads and sees the database as it is at its first statement, so it also works
on a replica. Rows come as tuples. Knows nothing of files and formats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import dict_row, tuple_row

from runner.base.errors import DatabaseUnavailableError
from runner.extras.data.queries import QUERIES
from runner.extras.queries import SHARED
from runner.extras.receipts import HostKey
from runner.store import schema, session
from runner.store.base import expect
from runner.store.connection import Link, Row, row, rows

_CONFLICT: Final = (
    "the server cancelled the export, as a replica does that has to replay what the export still reads; nothing was "
    "exported. Run it again, or set hot_standby_feedback = on or a longer max_standby_streaming_delay there"
)
#: A statement of an export sorts and joins whole tables before its first row comes.
_ANSWER_S: Final = 3600.0
_NAME: Final = "kernel-runner data"
_ROWS_AT_ONCE: Final = 5000
#: Lets the statements of an export take their time.
_SETTINGS: Final = session.statement(
    {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0", "work_mem": "64MB"}, local=True
)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The snapshot's time in microseconds since 1970, and its server."""

    at_us: int
    server: str
    replica: bool


@dataclass(frozen=True, kw_only=True)
class DataBoard:
    """A leaderboard; its deadline in microseconds since 1970."""

    id: int
    name: str
    deadline_us: int
    open: bool
    visibility: str
    lang: str | None
    ranking_by: str
    description: str
    gpu_types: tuple[str, ...]
    demanded_timing: str
    #: Whether its ranked code is public (`runner.open_board`).
    code_open: bool


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which rows are wanted."""

    boards: tuple[int, ...]
    #: Users and submissions to leave out.
    users: frozenset[str] = field(default=frozenset())
    submissions: frozenset[int] = field(default=frozenset())

    def parameters(self) -> Mapping[str, Any]:
        """As the statements take it."""
        return {"boards": list(self.boards), "users": sorted(self.users), "submissions": sorted(self.submissions)}


@dataclass(frozen=True, kw_only=True)
class People:
    """The submissions of a leaderboard, and how many of them each reason leaves out."""

    leaderboard_id: int
    submissions: int
    users: int
    by_user: int
    by_submission: int
    #: How many users have an id that holds an address of electronic mail.
    addresses: int
    #: Different users and codes of the submissions that the scope does not leave out.
    pairs: int


@dataclass(frozen=True, kw_only=True)
class Oddity:
    """What one check found; the ids are None where it is not about one."""

    check: str
    #: unusable, suspect or reported.
    severity: str
    problem_name: str
    submission_id: int | None
    run_id: int | None
    runner: str | None
    user_id: str | None
    reason: str


class Snapshot:
    """Reads one state of the database, for one thread."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def moment(self) -> Moment:
        """When it was taken, and of which server."""
        return Moment(**expect(row(self._connection, QUERIES["moment"])))

    def boards(self) -> Sequence[DataBoard]:
        """All leaderboards, by id."""
        records = rows(self._connection, QUERIES["boards"])
        return [DataBoard(**{**line, "gpu_types": tuple(line["gpu_types"])}) for line in records]

    def people(self, scope: Scope) -> Sequence[People]:
        """How many submissions there are, and how many the scope leaves out; a leaderboard without any is not there."""
        records = rows(self._connection, QUERIES["people"], scope.parameters())
        return [People(**line) for line in records]

    def unknown(self, scope: Scope) -> Sequence[str]:
        """Users and submissions that the scope leaves out, and that are not in the database."""
        return [line["name"] for line in rows(self._connection, QUERIES["unknown"], scope.parameters())]

    def host_keys(self) -> Sequence[HostKey]:
        """The public keys that hosts have registered, oldest first."""
        return [HostKey(**key) for key in rows(self._connection, SHARED["host_keys"])]

    def code(self, ids: Sequence[int]) -> Mapping[int, bytes]:
        """The code of these ids; one that is not there is left out."""
        with self._connection.cursor(binary=True, row_factory=tuple_row) as cursor:
            cursor.execute(QUERIES["code"].sql, {"ids": list(ids)})
            return dict(cursor.fetchall())

    def oddities(self, boards: Sequence[int]) -> Iterator[Oddity]:
        """What the checks of the database find, by severity, check and submission."""
        names = [column.name for column in fields(Oddity)]
        for lines in self.stream("findings", Scope(boards=tuple(boards))):
            for line in lines:
                yield Oddity(**dict(zip(names, line, strict=True)))

    def stream(self, name: str, scope: Scope) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a statement of `queries.sql`, with the columns that it names."""
        with self._connection.cursor(f"dataset_{name}", row_factory=tuple_row) as cursor:
            cursor.execute(QUERIES[name].sql, scope.parameters(), binary=True)
            while lines := cursor.fetchmany(_ROWS_AT_ONCE):
                yield lines


@contextmanager
def snapshot(dsn: str) -> Iterator[Snapshot]:
    """A snapshot, open as long as the context.

    Raises:
        ConfigError: the address cannot be parsed.
        DatabaseUnavailableError: the database cannot be reached, is not migrated, refuses this user, or is a replica
            that had to cancel what was read.
    """
    link = Link(dsn, application_name=_NAME, bare=True)
    try:
        with link.open(answer_s=_ANSWER_S) as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            connection.row_factory = dict_row
            with connection.transaction():
                connection.execute(_SETTINGS)
                yield Snapshot(connection)
    except DatabaseUnavailableError as error:
        if "conflict with recovery" in str(error):
            raise DatabaseUnavailableError(_CONFLICT) from error
        raise
    finally:
        link.close()


def queries_sha256() -> str:
    """The SHA-256 of the statements and views that an export is read with: equal hashes, equal rules."""
    texts = [query.sql.decode() for _, query in sorted(QUERIES.items())]
    views = sorted(text for text in schema.objects() if "CREATE OR REPLACE VIEW" in text)
    return hashlib.sha256("\0".join([*texts, *views]).encode()).hexdigest()
