"""One PostgreSQL connection that comes back: opened when needed, thrown away when it breaks.

Called by the modules of `runner.store` only. Turns the driver's errors into ours; knows no table. What becomes of them:

    no connection, server away, starting, stopping, full, read-only   DatabaseUnavailableError; the connection is closed
    a lock or statement timeout, no schema, no right, a sequence      DatabaseUnavailableError
      that is behind its table
    deadlock, serialization failure, a prepared statement is gone     run again a few times, then as above
    one of our functions refuses (SQLSTATE class KR)                  SubmissionError or NotFoundError
    anything else, e.g. a value PostgreSQL does not take              the driver's own error: a bug or a bad value
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from runner.base.errors import DatabaseUnavailableError, MissingRightError, NotFoundError, SubmissionError
from runner.store import session
from runner.store.queries import Query

Row = dict[str, Any]
Connection = psycopg.Connection[Row]
_T = TypeVar("_T")

#: Nothing the store sends takes long; what does is stuck, and a stuck daemon is worse than a failed statement.
BOUNDS: Final = {
    "statement_timeout": "60s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
}
#: A frozen server, or a proxy before a dead one, keeps the connection alive and answers nothing. It counts as away
#: after this time, which is a little more than statement_timeout.
ANSWER_S: Final = 75.0
#: The longest time between two calls of `waiting` while an answer is waited for.
LOOK_S: Final = 15.0
#: The same for an attempt to connect, which asks the resolver and then each address that it names.
CONNECT_S: Final = 180.0
#: A peer that vanished is noticed within about 45 s.
_TRANSPORT: Final = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "15",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "45000",
}
#: Of addresses with several servers the one that takes writes.
WRITES: Final = {"target_session_attrs": "read-write"}
#: How often a statement or transaction is tried that PostgreSQL gives up for another one's sake, and the longest pause.
TRIES: Final = 5
_PAUSE_S: Final = 0.1
#: Limits of the server that a value exceeds. The driver counts them among the operational errors, but they are no
#: outage: the same value fails every time.
_LIMITS: Final = "54"
#: Server errors after which another connection would do no better, so that this one is kept.
_TIMEOUTS: Final = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)
_SACRIFICED: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
#: A statement that was prepared is there no longer, or returns something else since a migration. It was not executed.
FORGOTTEN: Final = (
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
    psycopg.errors.FeatureNotSupported,
)
#: Where PostgreSQL gives up a commit that would notify, because its queue of notifications has just been filled. Tried
#: again, it does not notify (`tell.sql`).
_NOTIFIES: Final = "PreCommit_Notify"
#: What to do if `is_behind`.
BEHIND: Final = "; a sequence is behind its table, as logical replication leaves it (run `kernel-runner migrate`)"
#: What to do where nothing can be written.
READ_ONLY: Final = "name the primary in the database's address, or turn default_transaction_read_only off"
#: The class of the SQLSTATEs our functions raise.
_OURS: Final = "KR"
_UNKNOWN_SUBMISSION: Final = "KR015"
#: What a statement of ours meets, and what to do then.
_REMEDIES: Final = (
    (
        (
            psycopg.errors.UndefinedTable,
            psycopg.errors.UndefinedColumn,
            psycopg.errors.UndefinedFunction,
            psycopg.errors.InvalidSchemaName,
        ),
        (
            "; this database is not migrated, or by another release of kernel-runner (run `kernel-runner migrate`, or "
            "correct DATABASE_URL)"
        ),
    ),
    (
        psycopg.errors.ReadOnlySqlTransaction,
        f"; {READ_ONLY}",
    ),
    (
        psycopg.errors.InsufficientPrivilege,
        (
            "; the database user lacks a right (set DATABASE_URL to a login of the role for this, such as "
            "runner_frontend or runner_operator, see `kernel-runner migrate --roles`; for tasks to the schema's owner)"
        ),
    ),
)


# A rollback that fails because the connection is gone is the same error once more, and that one we report.
logging.getLogger("psycopg").setLevel(logging.ERROR)


class _SacrificedError(DatabaseUnavailableError):
    """PostgreSQL gave the transaction up so that another could go on; it may be run again."""


class _Connection(psycopg.Connection[Row]):
    """A connection on which no answer is waited for without end."""

    #: How long it is waited for, if not ANSWER_S.
    answer_s: float | None = None
    #: Told, several times a second, that this thread waits here and does not hang.
    waiting: Callable[[float], object] | None = None
    #: Whether it has subscribed to notifications.
    listens: bool = False

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - whatever the driver passes
        super().__init__(*arguments, **named)
        #: Notifications that came with answers and are not taken yet.
        self.heard: deque[psycopg.Notify] = deque()
        self.add_notify_handler(self.heard.append)

    def hear(self) -> None:
        """Add every notification that has come to `heard`; waits for none.

        Raises:
            psycopg.OperationalError: the connection is gone.
        """
        self.pgconn.consume_input()
        while (note := self.pgconn.notifies()) is not None:
            self.heard.append(psycopg.Notify(note.relname.decode(), note.extra.decode(), note.be_pid))

    def wait(self, gen: PQGen[RV], *arguments: Any, **named: Any) -> RV:  # noqa: ANN401 - whatever the driver passes
        """Drive one exchange with the server; every statement comes through here."""
        return super().wait(self._bounded(gen), *arguments, **named)

    def _bounded(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        answer_s = self.answer_s or ANSWER_S
        until_s = time.monotonic() + answer_s
        try:
            awaited = next(gen)
            while True:
                # The driver looks in several times a second, with 0 if nothing has come.
                ready = yield awaited
                if self.waiting is not None:
                    self.waiting(LOOK_S)
                if not ready and time.monotonic() > until_s:
                    self.close()
                    raise psycopg.OperationalError(f"the server did not answer within {answer_s:g} s")
                awaited = gen.send(ready)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # a generator's value has no type here


class Link:
    """A connection in autocommit mode, for one thread.

    With `writes` a server that takes none counts as away, unless the connection string names `target_session_attrs`.

    Through a pooler each `open` block is one transaction that begins with our settings, unless it is `bare`: then who
    uses it begins transactions, or listens.
    """

    def __init__(
        self,
        dsn: str,
        *,
        application_name: str,
        writes: bool = False,
        waiting: Callable[[float], object] | None = None,
        bare: bool = False,
    ) -> None:
        self._bare = bare
        defaults = {**_TRANSPORT, **WRITES} if writes else _TRANSPORT
        self._address = session.conninfo(dsn, application_name=application_name, **defaults)
        self._waiting = waiting
        self._connection: _Connection | None = None

    def close(self) -> None:
        """Close the connection, if there is one; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def open(self, *, answer_s: float | None = None) -> Iterator[_Connection]:
        """The connection, opened if need be; the driver's errors leave as ours.

        `answer_s`: how long an answer is waited for, if not ANSWER_S, and the connection no longer than that.

        Raises:
            DatabaseUnavailableError: it cannot be reached, went away, takes no writes, gave up waiting for a lock, is
                not migrated, or refuses this user.
            SubmissionError: one of our functions refused.
            NotFoundError: one of our functions knows no such submission.
        """
        if self._connection is None or self._connection.closed:
            self._connection = self._connect(answer_s)
        connection = self._connection
        connection.answer_s = answer_s
        connection.waiting = self._waiting
        try:
            with nullcontext() if self._bare else session.scope(connection, bounds=BOUNDS):
                yield connection
        except psycopg.Error as error:
            ours = translated(error, broken=connection.closed)
            if connection.closed or _is_outage(error):
                self.close()
            if ours is error:
                raise
            raise ours from error

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """As `open`, in a transaction that commits at the end and rolls back on any exception."""
        with self.open() as connection, connection.transaction():
            yield connection

    def run(self, action: Callable[[Connection], _T]) -> _T:
        """What `action` returns, called in a transaction.

        Called again when PostgreSQL gives the transaction up for another one's sake, so it must have no effect but in
        the database.
        """

        def once() -> _T:
            with self.transaction() as connection:
                return action(connection)

        return _insistently(once)

    def all(
        self, query: Query, parameters: Mapping[str, Any] | None = None, *, answer_s: float | None = None
    ) -> Sequence[Row]:
        """Every row of a statement, in its own transaction; run again like `run`'s."""

        def once() -> Sequence[Row]:
            with self.open(answer_s=answer_s) as connection:
                return rows(connection, query, parameters)

        return _insistently(once)

    def taken(self, query: Query, parameters: Mapping[str, Any], *, answer_s: float) -> Sequence[Row]:
        """As `all`, for a statement whose rows must not be lost to a session that reads otherwise than it should.

        Raises:
            DatabaseUnavailableError: among others, for such a session. The next call is on a new connection.
        """

        def once() -> Sequence[Row]:
            with self.open(answer_s=answer_s) as connection:
                cursor = connection.execute(query.sql, parameters)
                try:
                    return cursor.fetchall()
                except Exception:
                    try:
                        session.require_wire(connection)
                    except DatabaseUnavailableError:
                        self.close()
                        raise
                    raise

        return _insistently(once)

    def _connect(self, answer_s: float | None) -> _Connection:
        address = self._address if answer_s is None else _bounded(self._address, answer_s)
        if self._waiting is not None:
            self._waiting(CONNECT_S)

        def opened(connection: _Connection) -> None:
            connection.answer_s = answer_s

        try:
            connection = session.connect(
                address,
                bounds=BOUNDS,
                connection_class=_Connection,
                opened=opened,
                row_factory=dict_row,
            )
        except psycopg.Error as error:
            raise translated(error, broken=True) from error
        if self._waiting is not None:
            self._waiting(LOOK_S)
        return connection


def _bounded(address: str, answer_s: float) -> str:
    """An address whose attempts to connect take no longer than an answer may."""
    # The driver gives no attempt less than two seconds; 0 stands for no bound.
    bound_s = max(2, math.ceil(answer_s))
    given = str(conninfo_to_dict(address)["connect_timeout"])
    if given.isdigit() and 0 < int(given) <= bound_s:
        return address
    return make_conninfo(address, connect_timeout=bound_s)


def rows(connection: Connection, query: Query, parameters: Mapping[str, Any] | None = None) -> Sequence[Row]:
    """Every row of a statement; empty for one that returns none."""
    cursor = connection.execute(query.sql, parameters)
    return cursor.fetchall() if cursor.description is not None else ()


def row(connection: Connection, query: Query, parameters: Mapping[str, Any] | None = None) -> Row | None:
    """The first row of a statement; None if there is none."""
    fetched = rows(connection, query, parameters)
    return fetched[0] if fetched else None


def _insistently(action: Callable[[], _T]) -> _T:
    for _ in range(TRIES - 1):
        try:
            return action()
        except _SacrificedError:
            time.sleep(random.uniform(0.0, _PAUSE_S))  # noqa: S311 - two that met must not meet again
    return action()


def is_behind(error: psycopg.Error) -> bool:
    """Whether a sequence gave a number that its table has already; each try takes the next one."""
    return isinstance(error, psycopg.errors.UniqueViolation) and (error.diag.constraint_name or "").endswith("_pkey")


def _is_outage(error: psycopg.Error) -> bool:
    """Whether the server cannot be worked with now, so that the connection is worth nothing."""
    # Read-only: a failover is under way, or the server's disk is full.
    if isinstance(error, (psycopg.errors.ReadOnlySqlTransaction, psycopg.InterfaceError, *FORGOTTEN)):
        return True
    survives = isinstance(error, (*_TIMEOUTS, *_SACRIFICED)) or (error.sqlstate or "").startswith(_LIMITS)
    return isinstance(error, psycopg.OperationalError) and not survives


def translated(error: psycopg.Error, *, broken: bool = False) -> Exception:
    """The error in our words; itself if it says that a value or a statement is wrong.

    `broken`: the connection is gone.
    """
    reason = error.diag.message_primary or str(error).strip() or type(error).__name__
    if (error.sqlstate or "").startswith(_OURS):
        return _refusal(error)
    if isinstance(error, (*_SACRIFICED, *FORGOTTEN)) or error.diag.source_function == _NOTIFIES:
        return _SacrificedError(f"PostgreSQL: {reason}, at each of {TRIES} tries")
    remedy = BEHIND if is_behind(error) else next((text for kinds, text in _REMEDIES if isinstance(error, kinds)), "")
    if remedy and error.diag.context:
        # Which function; it may be one of others, as of a trigger.
        reason += f" ({error.diag.context.partition(chr(10))[0]})"
    if broken or remedy or _is_outage(error) or isinstance(error, _TIMEOUTS):
        is_right = isinstance(error, psycopg.errors.InsufficientPrivilege)
        return (MissingRightError if is_right else DatabaseUnavailableError)(f"PostgreSQL: {reason}{remedy}")
    return error


def _refusal(error: psycopg.Error) -> SubmissionError | NotFoundError:
    message = error.diag.message_primary or str(error)
    text = f"{message}. {error.diag.message_hint}" if error.diag.message_hint else message
    return NotFoundError(text) if error.sqlstate == _UNKNOWN_SUBMISSION else SubmissionError(text)
