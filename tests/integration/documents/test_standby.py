"""The commands of "Fail-over and restore" are run as the page shows them, on real servers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from runner.base.model import JobState
from runner.extras.boards.store import BoardStore
from runner.store import migrate
from tests.chaos.loss import skip_numbers
from tests.chaos.server import Server
from tests.integration.documents.commands import ROOT, shown
from tests.integration.store.conftest import Bench
from tests.support.waiting import PATIENCE_S

_SECTION = re.compile(r"^## Fail-over and restore\n(.*?)^## ", re.MULTILINE | re.DOTALL)


class Operator:
    """Types the page's commands, as the user of the servers."""

    def __init__(self, primary: Server, new: Server, folder: Path) -> None:
        self._folder = folder
        self.data = folder / "standby"
        self.environment = {
            "PATH": f"{primary.programs}:{os.environ['PATH']}",
            "PRIMARY": primary.url("postgres"),
            "STANDBY": f"host={self.data} port=5432 user=postgres dbname=postgres",
            "STANDBY_DATA": str(self.data),
            "NEW": new.url("postgres"),
        }
        self._user = primary.user
        if self._user is not None:
            shutil.chown(folder, self._user, self._user)

    def type(self, command: str) -> str:
        """What the command prints."""
        # A server that was started writes there for as long as it runs.
        with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self._folder,
                env=self.environment,
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                check=False,
                timeout=PATIENCE_S,
            )
            said.seek(0)
            text = said.read()
        assert done.returncode == 0, f"{command}\n{text}"
        return text


@pytest.fixture
def primary() -> Iterator[Server]:
    """The server of a site, with one submission that waits."""
    with Server() as made:
        made.start()
        migrate(made.url("postgres"))
        with psycopg.connect(made.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE ROLE gpu07 LOGIN; ALTER ROLE gpu07 SET statement_timeout = '60s'")
        yield made


@pytest.fixture
def new() -> Iterator[Server]:
    """An empty server."""
    with Server() as made:
        made.start()
        yield made


@pytest.fixture
def operator(primary: Server, new: Server) -> Iterator[Operator]:
    """In a folder that the servers' user reaches."""
    folder = primary.folder.parent / "operator"
    folder.mkdir()
    made = Operator(primary, new, folder)
    yield made
    if (made.data / "postmaster.pid").exists():
        made.type('pg_ctl --pgdata="$STANDBY_DATA" -m immediate stop')


def submitted(url: str) -> int:
    """A submission to a leaderboard."""
    store = BoardStore(url, application_name="test")
    try:
        bench = Bench(store=store, url=url)
        bench.board()
        return bench.submit()
    finally:
        store.close()


def check(url: str, submission: int) -> None:
    """It is there and waits, and the next one gets a number that is far from its number."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(skip_numbers().encode())
    store = BoardStore(url, application_name="test")
    try:
        assert store.submission(submission).status.state is JobState.QUEUED
        assert Bench(store=store, url=url).submit(user_id="u2") > submission + 1_000_000
    finally:
        store.close()


def test_the_commands_of_the_page(primary: Server, new: Server, operator: Operator) -> None:
    """A standby that is synchronous takes over; a dump with its roles is restored; the queue is there in both."""
    found = _SECTION.search((ROOT / "docs" / "operations.md").read_text(encoding="utf-8"))
    assert found is not None
    commands = [each.command for each in shown() if each.page == "docs/operations.md" and each.command in found[1]]
    submission = submitted(primary.url("postgres"))
    for command in commands:
        if command.endswith('"$STANDBY_DATA" start'):
            # On a machine of its own the standby would have the primary's settings; here it needs its own socket.
            (operator.data / ".s.PGSQL.5432.lock").unlink()
            with (operator.data / "postgresql.conf").open("a", encoding="utf-8") as file:
                file.write(f"unix_socket_directories = '{operator.data}'\n")
        if "pg_stat_replication" in command:
            until_s = time.monotonic() + PATIENCE_S
            while not re.search(r"\bsync\b", operator.type(command)):
                assert time.monotonic() < until_s, operator.type(command)
        said = operator.type(command)
        if "pg_is_in_recovery" in command:
            assert " f " in said
            check(operator.environment["STANDBY"], submission)
    check(new.url("postgres"), submission)
    with psycopg.connect(new.url("postgres"), autocommit=True) as connection:
        settings = connection.execute("SELECT useconfig FROM pg_user WHERE usename = 'gpu07'").fetchone()
    assert settings == (["statement_timeout=60s"],)
    assert len(commands) == 10
