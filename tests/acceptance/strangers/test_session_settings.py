"""Whatever sets a session's settings, commands, pages, claims and migrations are as with PostgreSQL's defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from runner.base.errors import DatabaseUnavailableError
from runner.extras.boards.store import BoardStore
from runner.store import QueueStore, migrate
from runner.store.probe import probe
from runner.store.session import WIRE
from tests.integration.cli.conftest import Call, call, docker_host, evaluation_python
from tests.integration.extras.gateway.conftest import Gate, gate, open_gate
from tests.integration.store.conftest import Bench, bench, db, finish, store
from tests.plugins.postgres import daemon_login
from tests.support.pooler import PGBOUNCER, Pooler

__all__ = ["bench", "call", "db", "docker_host", "evaluation_python", "finish", "gate", "open_gate", "store"]

#: A value of each setting that WIRE or the bounds of a session have, and that is another one.
HOSTILE: Mapping[str, str] = {
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Asia/Kathmandu",
    "client_encoding": "LATIN1",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "search_path": "runner, leaderboard",
    "quote_all_identifiers": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "jit": "on",
    "idle_session_timeout": "2s",
    "transaction_timeout": "2s",
    "statement_timeout": "2s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "2s",
}
#: Settings that a login may make, that are not text on the wire, and that an operator means.
MEANT = re.compile(
    r"default_transaction_read_only|row_security|transaction_\w+|session_replication_role|password_enc.*"
)
#: Numbers and moments that differ from one call to the next.
MOVING = re.compile(r'"(silent_s|queue_ms|age_s|ago_s|oldest_s|running_s)": [\d.]+|\d+ (s|ms|min)\b( ago)?|id="[^"]*"')
COMMANDS = (
    ("leaderboard", "list", "--json"),
    ("leaderboard", "show", "identity", "--json"),
    ("status", "1", "--json"),
    ("status", "2", "--json"),
    ("status", "--json"),
    ("host", "list", "--json"),
    ("user", "list", "--json"),
    ("failed", "--json"),
)
PAGES = ("/", "/board/identity", "/hosts", "/leaderboards", "/submissions/identity/CPU", "/view/1")


def settable(url: str) -> Mapping[str, str]:
    """Another value of each switch that a login may set for itself, as the server lists them."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT name, vartype, setting, enumvals FROM pg_settings WHERE context = 'user'"
            " AND vartype IN ('bool', 'enum')"
        ).fetchall()
    other = {
        name: ("off" if setting == "on" else "on")
        if kind == "bool"
        else next((value for value in reversed(values) if value != setting), setting)
        for name, kind, setting, values in rows
    }
    return {**{name: value for name, value in other.items() if not MEANT.fullmatch(name)}, **present(url)}


def present(url: str) -> Mapping[str, str]:
    """Those of HOSTILE that the server knows."""
    with psycopg.connect(url) as connection:
        names = {name.lower() for (name,) in connection.execute("SELECT name FROM pg_settings")}
    return {name: value for name, value in HOSTILE.items() if name.lower() in names}


def set_for(url: str, target: sql.Composable, values: Mapping[str, str]) -> None:
    """ALTER ... SET each of them."""
    with psycopg.connect(url, autocommit=True) as connection:
        for name, value in values.items():
            # A path is a list of names, not one.
            shown = sql.SQL(value) if name == "search_path" else sql.Literal(value)
            connection.execute(sql.SQL("ALTER {} SET {} TO {}").format(target, sql.Identifier(name), shown))


def database_of(url: str) -> sql.Composable:
    """`DATABASE name`."""
    return sql.SQL("DATABASE {}").format(sql.Identifier(str(conninfo_to_dict(url)["dbname"])))


@pytest.fixture
def board(bench: Bench, finish: Callable[..., None]) -> Bench:
    """A board with a finished submission, a waiting one, a host, and names that are not ASCII."""
    bench.board()
    bench.register("host-a")
    bench.submit(user_name="Ada Şükrü €", mode="leaderboard")
    finish()
    bench.submit(user_id="u2", user_name="Bob")
    return bench


def pages(gate: Gate) -> list[tuple[str, int, str]]:
    """What the gateway answers."""
    return [(path, (answer := gate.ask("GET", path)).status, MOVING.sub("", answer.text)) for path in PAGES]


def reads(call: Call, url: str) -> list[tuple[int, Any]]:
    """What the commands print."""
    answers = [call(*command, database=url) for command in COMMANDS]
    assert not any("Traceback" in answer.err for answer in answers)
    return [(answer.code, MOVING.sub("", answer.out)) for answer in answers]


@contextmanager
def daemon_of(login: str) -> Iterator[Bench]:
    """What a daemon with this login has of the database; its host is host-b."""
    opened = QueueStore(login, application_name="daemon")
    daemon = Bench(store=cast("BoardStore", opened), url=login)
    try:
        daemon.register("host-b")
        yield daemon
    finally:
        opened.close()


def claims(login: str) -> None:
    """A daemon's claim gets the job that waits, with its moments, and gives it back."""
    with daemon_of(login) as daemon:
        claimed = daemon.store.claim(host="host-b", slots={"CPU": 1}, lease_s=60, instance="host-b")
        assert [job.submission_id for job in claimed.jobs] == [2], claimed
        assert claimed.now_s is not None
        assert claimed.now_s != round(claimed.now_s, -3)
        daemon.store.release(claimed.jobs[0], reason="enough")


def test_every_setting_of_ours_has_a_hostile_value() -> None:
    """A setting that is added to a session is tried, too."""
    assert set(WIRE) <= set(HOSTILE)
    assert not set(WIRE.items()) & set(HOSTILE.items())


def test_settings_of_a_database_change_nothing(
    board: Bench, call: Call, open_gate: Callable[..., Gate], database_url: str
) -> None:
    """All at once, with every switch that a login may set: the server lists them."""
    before = reads(call, database_url)
    served = open_gate(gateway_requests_per_minute=100_000)
    shown = pages(served)
    assert {status for _, status, _ in shown} <= {200, 303}
    set_for(database_url, database_of(database_url), settable(database_url))
    assert reads(call, database_url) == before
    assert pages(open_gate(gateway_requests_per_minute=100_000)) == shown
    claims(daemon_login(database_url))
    with closing(board.other()) as other:
        assert Bench(store=other, url=database_url).submit(user_id="u3") == 3
    assert migrate(database_url) == ()
    assert probe(database_url).misread == ()


def test_settings_of_the_environment_and_of_an_address_change_nothing(
    board: Bench, call: Call, database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PGOPTIONS, PGDATESTYLE, PGTZ, PGCLIENTENCODING, a service file, and the address itself."""
    before = reads(call, database_url)
    options = " ".join(
        f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in present(database_url).items()
    )
    assert reads(call, make_conninfo(database_url, options=options, client_encoding="latin1")) == before
    monkeypatch.setenv("PGOPTIONS", options)
    monkeypatch.setenv("PGDATESTYLE", "German")
    monkeypatch.setenv("PGTZ", "America/St_Johns")
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    assert reads(call, database_url) == before
    given = conninfo_to_dict(database_url)
    lines = [f"{key}={value}\n" for key, value in given.items() if key != "application_name"]
    service = tmp_path / "services"
    service.write_text("".join(["[ours]\n", *lines, "client_encoding=latin1\n"]), encoding="utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    assert reads(call, "service=ours") == before
    claims(daemon_login(database_url))


@pytest.mark.skipif(PGBOUNCER is None, reason="a pooler is tested with PgBouncer: apt-get install pgbouncer")
def test_settings_change_nothing_through_a_pooler(board: Bench, database_url: str) -> None:
    """A pooler's sessions have the database's settings, and whatever another client left in them."""
    given = conninfo_to_dict(database_url)
    port = int(given.get("port") or 5432)
    set_for(database_url, database_of(database_url), present(database_url))
    host = f"{given['host']}:{port}"
    with Pooler(host=str(given["host"]), port=port, user=str(given["user"]), pool_size=2) as pooler:
        pooler.wait(database_url)
        pooled = pooler.url(database_url)
        assert probe(pooled, host).misread == ()
        through = BoardStore(pooled, application_name="test", direct_host=host)
        try:
            view = through.submission(1)
            assert view.status == board.store.submission(1).status
            assert through.ranking("identity") == board.store.ranking("identity")
            claimed = through.claim(host="host-a", slots={"CPU": 1}, lease_s=60, instance="host-a")
            assert [job.submission_id for job in claimed.jobs] == [2], claimed
        finally:
            through.close()


def test_a_session_that_does_not_keep_its_settings_is_refused(
    board: Bench, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that nobody named: `check` says so, and a claim costs its jobs nothing."""
    set_for(database_url, database_of(database_url), {"DateStyle": "SQL, DMY"})
    monkeypatch.setattr("runner.store.session.statement", lambda *_, **__: b"SELECT 1")
    assert "DateStyle is 'SQL, DMY', expected 'ISO, YMD'" in probe(database_url).misread
    with daemon_of(daemon_login(database_url)) as daemon:
        for _ in range(4):
            with pytest.raises(DatabaseUnavailableError, match=r"does not keep its settings: .*DateStyle"):
                daemon.claim(host="host-b", instance="host-b")
            assert daemon.store.recover(host="host-b", keep=(), instance="host-b")
    monkeypatch.undo()
    claims(daemon_login(database_url))
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT failures, state FROM runner.job ORDER BY id DESC").fetchone() == (0, "queued")
