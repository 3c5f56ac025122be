"""What becomes of the driver's errors, and how often a transaction is run again; no server needed."""

from __future__ import annotations

from unittest.mock import Mock

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from runner.base.errors import DatabaseUnavailableError, KernelRunnerError, NotFoundError, SubmissionError
from runner.store import connection
from runner.store.connection import TRIES, Link


def error(sqlstate: str) -> psycopg.Error:
    """What the driver raises for an SQLSTATE."""
    return psycopg.errors.lookup(sqlstate)("what the server said")


@pytest.mark.parametrize(
    ("sqlstate", "name", "ours", "closes"),
    [
        ("08006", "connection failure", DatabaseUnavailableError, True),
        ("25006", "read-only: a standby, or a full disk", DatabaseUnavailableError, True),
        ("53100", "the server's disk is full", DatabaseUnavailableError, True),
        ("53200", "the server is out of memory", DatabaseUnavailableError, True),
        ("53300", "too many connections", DatabaseUnavailableError, True),
        ("57P01", "admin shutdown", DatabaseUnavailableError, True),
        ("57P02", "crash shutdown", DatabaseUnavailableError, True),
        ("57P03", "starting up", DatabaseUnavailableError, True),
        ("57P05", "idle session timeout", DatabaseUnavailableError, True),
        ("58030", "the server's disk fails", DatabaseUnavailableError, True),
        ("55P03", "lock timeout", DatabaseUnavailableError, False),
        ("57014", "statement timeout", DatabaseUnavailableError, False),
        ("40001", "serialization failure", DatabaseUnavailableError, False),
        ("40P01", "deadlock", DatabaseUnavailableError, False),
        ("42P01", "no such table: not migrated", DatabaseUnavailableError, False),
        ("42501", "no right", DatabaseUnavailableError, False),
        ("26000", "a prepared statement is gone", DatabaseUnavailableError, True),
        ("42P05", "a prepared statement of another client", DatabaseUnavailableError, True),
        ("0A000", "a prepared statement returns something else", DatabaseUnavailableError, True),
        ("22P02", "a value that does not parse", psycopg.DataError, False),
        ("23514", "a constraint", psycopg.IntegrityError, False),
        ("54000", "a value beyond the server's limits", psycopg.OperationalError, False),
        ("42601", "a syntax error of ours", psycopg.ProgrammingError, False),
    ],
)
def test_every_error_has_its_class(sqlstate: str, name: str, ours: type[Exception], *, closes: bool) -> None:
    """An outage is waited out, a bad value is not: it would be refused again and again."""
    found = error(sqlstate)
    assert isinstance(connection.translated(found, broken=False), ours), name
    assert isinstance(connection.translated(found, broken=False), KernelRunnerError) == issubclass(
        ours, KernelRunnerError
    )
    assert connection._is_outage(found) is closes, name


@pytest.mark.parametrize(("sqlstate", "ours"), [("KR001", SubmissionError), ("KR015", NotFoundError)])
def test_our_functions_speak_for_themselves(sqlstate: str, ours: type[Exception]) -> None:
    """Their refusals carry the message for the user. Whatever breaks the connection is an outage.

    The server ended an idle transaction: no class of errors that is waited out, but the connection is gone.
    """

    class Refusal(psycopg.errors.RaiseException):
        pass

    Refusal.sqlstate = sqlstate
    translated = connection.translated(Refusal("no leaderboard 'x'"), broken=False)
    assert (type(translated), str(translated)) == (ours, "no leaderboard 'x'")
    idle = error("25P03")
    assert connection.translated(idle, broken=False) is idle
    assert isinstance(connection.translated(idle, broken=True), DatabaseUnavailableError)


def sacrificed() -> DatabaseUnavailableError:
    """A deadlock's victim."""
    victim = connection.translated(error("40P01"), broken=False)
    assert isinstance(victim, DatabaseUnavailableError)
    return victim


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between tries."""
    monkeypatch.setattr(connection, "_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("error", "words", "count"),
    [
        (sacrificed(), f"at each of {TRIES} tries", TRIES),
        # Such a statement may have been executed.
        (DatabaseUnavailableError("server closed the connection"), "server closed the connection", 1),
    ],
)
def test_only_a_victim_is_run_again_and_not_for_ever(error: Exception, words: str, count: int) -> None:
    """In the end it is an outage: the caller waits and tries again."""
    action = Mock(side_effect=error)
    with pytest.raises(DatabaseUnavailableError, match=words):
        connection._insistently(action)
    assert action.call_count == count


def test_a_daemon_connects_to_a_server_that_takes_writes_unless_told_otherwise() -> None:
    """After a failover the address may lead to the standby; frontends may well read from one."""
    dsn = "postgresql://u@h/d"

    def wants(link: Link) -> object:
        return conninfo_to_dict(link._address).get("target_session_attrs")

    assert wants(Link(dsn, application_name="x", writes=True)) == "read-write"
    assert wants(Link(f"{dsn}?target_session_attrs=any", application_name="x", writes=True)) == "any"
    assert wants(Link(dsn, application_name="x")) is None


@pytest.mark.parametrize(
    ("given", "answer_s", "expected"),
    [
        ("", 1.0, "2"),
        ("", 5.0, "5"),
        ("", 20.0, "10"),
        ("", None, "10"),
        ("connect_timeout=3", 5.0, "3"),
        ("connect_timeout=30", 5.0, "5"),
        ("connect_timeout=0", 5.0, "5"),
        ("connect_timeout=0", None, "0"),
    ],
)
def test_who_wants_a_quick_answer_waits_no_longer_for_the_connection(
    monkeypatch: pytest.MonkeyPatch, given: str, answer_s: float | None, expected: str
) -> None:
    """Nor longer than the operator said."""
    used: list[str] = []

    def connect(conninfo: str, **_: object) -> None:
        used.append(str(conninfo_to_dict(conninfo)["connect_timeout"]))
        raise psycopg.OperationalError("nobody is there")

    monkeypatch.setattr(connection._Connection, "connect", connect)
    link = Link(given, application_name="test")
    with pytest.raises(DatabaseUnavailableError), link.open(answer_s=answer_s):
        pass
    assert used == [expected]
