"""Whatever another program wrote into the tables, every list, page and claim goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import psycopg
import pytest

from tests.acceptance.strangers.test_session_settings import COMMANDS, PAGES, daemon_of
from tests.integration.cli.conftest import Call, call, docker_host, evaluation_python
from tests.integration.extras.gateway.conftest import Gate, gate, open_gate
from tests.integration.store.conftest import Bench, bench, db, finish, store
from tests.plugins.postgres import daemon_login

__all__ = ["bench", "call", "db", "docker_host", "evaluation_python", "finish", "gate", "open_gate", "store"]

MOMENTS = ("infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "12000-01-01 00:00:00+00")
ODD_VALUES = {
    "a score that is no number": "UPDATE leaderboard.runs SET score = 'NaN'",
    "an infinite score": "UPDATE leaderboard.runs SET score = 'Infinity'",
    "a number beyond a double": "UPDATE leaderboard.runs SET result = '{\"benchmark.0.mean\": 1e400}'",
    "a number too long": "UPDATE leaderboard.leaderboard SET task = ('{\"n\": ' || repeat('9', 5000) || '}')::jsonb",
    "JSON too deep": "UPDATE leaderboard.leaderboard SET task = (repeat('[', 12000) || repeat(']', 12000))::jsonb",
    "a half of a character": 'UPDATE leaderboard.runs SET meta = \'{"stdout": "\\\\u0000"}\'',
}


@pytest.fixture
def board(bench: Bench, finish: Callable[..., None]) -> Bench:
    """A board with a finished submission, a waiting one, and a host."""
    bench.board()
    bench.register("host-a")
    bench.submit(mode="leaderboard")
    finish()
    bench.submit(user_id="u2", user_name="Bob")
    return bench


def all_go_on(call: Call, served: Gate, url: str, *, claimed: bool = True) -> None:
    """Every command that reads, every page, and a claim."""
    for command in COMMANDS:
        answer = call(*command, database=url)
        assert answer.code == 0, (command, answer.err)
        json.loads(answer.out, parse_constant=pytest.fail)
        plain = call(*command[:-1], database=url)
        assert plain.code == 0, (command, plain.err)
    for page in PAGES:
        assert served.ask("GET", page).status in {200, 303}, page
    with daemon_of(daemon_login(url)) as daemon:
        claims = daemon.store.claim(host="host-b", slots={"CPU": 1}, lease_s=60, instance="host-b")
        assert bool(claims.jobs) is claimed


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_moment_in_any_column_spoils_nothing(
    board: Bench, call: Call, open_gate: Callable[..., Gate], database_url: str, moment: str
) -> None:
    """In all columns of moments that other programs write, as the catalogue lists them."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE leaderboard.leaderboard DROP CONSTRAINT runner_deadline")
        columns = connection.execute(
            "SELECT a.attrelid::regclass::text, a.attname, a.atttypid = 'timestamptz'::regtype"
            " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " WHERE c.relkind = 'r' AND c.relnamespace = 'leaderboard'::regnamespace"
            " AND a.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype)"
        ).fetchall()
        assert len(columns) > 8
        for table, column, zoned in columns:
            value = moment if zoned else moment.replace("+00", "")
            connection.execute(f"UPDATE {table} SET {column} = %s".encode(), (value,))  # noqa: S608 - from the catalogue
        # What an earlier release let frontends give; the others of ours are the server's clock.
        connection.execute("UPDATE runner.job SET expires_at = %s WHERE state = 'done'", (moment,))
    served = open_gate(gateway_requests_per_minute=100_000)
    all_go_on(call, served, database_url, claimed=True)
    if moment == "infinity":
        assert re.search(r"identity .*never", call("leaderboard", "list", database=database_url).out)


@pytest.mark.parametrize("odd", ODD_VALUES)
def test_a_value_of_another_program_spoils_nothing(
    board: Bench, call: Call, open_gate: Callable[..., Gate], database_url: str, odd: str
) -> None:
    """What the type allows and Python does not load, or JSON does not say."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        try:
            connection.execute(ODD_VALUES[odd].encode())
        except psycopg.DataError:
            assert odd == "a half of a character"
    served = open_gate(gateway_requests_per_minute=100_000)
    all_go_on(call, served, database_url, claimed=not odd.startswith(("a number too long", "JSON")))


def test_a_moment_is_refused_at_the_door(board: Bench, database_url: str) -> None:
    """By the functions that frontends call, and by the column of deadlines."""
    call = "SELECT runner.submit('identity', 'u9', 'c.py', 'x'::bytea, 'test', '{{CPU}}', {name} => %s)"
    with psycopg.connect(database_url, autocommit=True) as connection:
        for moment in MOMENTS:
            for name in ("start_at", "expires_at"):
                with pytest.raises(psycopg.errors.DatabaseError, match=rf"{name} is ") as refused:
                    connection.execute(call.format(name=name).encode(), (moment,))
                assert refused.value.sqlstate == "KR029"
            with pytest.raises(psycopg.errors.CheckViolation, match="runner_deadline"):
                connection.execute("UPDATE leaderboard.leaderboard SET deadline = %s", (moment,))
