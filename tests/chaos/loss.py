"""A database that goes back to an earlier moment while daemons work: a fail-over that loses commits, a restored dump.

Everything between that moment and the loss is gone: submissions that were answered, claims, results. Then the frontend
repeats what it was answered, with the same keys, and the daemons deliver what their spools hold. The books must be
right again, but for results that are lost; those are counted.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import psycopg

from tests.chaos import ledger
from tests.chaos.producer import Producer
from tests.chaos.server import Cluster, Server
from tests.chaos.storm import Settings, Storm

_PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
#: A result waits for its commit for so long at most, however busy the machine is.
_COMMIT_S: Final = 30.0
#: How long the database is away, so that runs end meanwhile.
_AWAY_S: Final = 2.0
_TICK_S: Final = 0.05
#: In the old primary's folder, which stays until the new one is there.
_DUMP: Final = "yesterday.dump"
_ROLES: Final = "roles.sql"


class How(StrEnum):
    """What the database comes back from."""

    STANDBY = "a standby that was behind"
    DUMP = "a dump"


class Loss(Storm):
    """A storm whose one fault is the loss. `run` may be called once."""

    def __init__(self, settings: Settings, how: How) -> None:
        super().__init__(replace(settings, kinds=()))
        self._how = how
        # However long it takes to set the database aside: some submissions come afterwards, and are lost.
        self._hold_after = settings.submissions // 2
        self._lost_s = (0.0, 0.0)
        self._placed_again = 0

    def _blow(self) -> None:
        """Work, set aside what will be left, work, and lose that work."""
        storm_s = self._settings.storm_s
        begun_s = time.monotonic()
        if self._how is How.STANDBY:
            self._cluster.add_standby()
        self._work_until(begun_s + 0.4 * storm_s)
        kept_s = time.time()
        keep(self._cluster, self._how)
        placed = self._frontend.placed
        self._frontend.go_on.set()
        self._work_until(begun_s + 0.8 * storm_s)
        # The first may have been stored before.
        while not self._frontend.finished and self._frontend.placed <= placed + 1:
            self._work_until(time.monotonic() + _TICK_S)
        self._cluster.crash()
        time.sleep(_AWAY_S)
        with self._watch.looking_away():
            go_back(self._cluster, self._how)
        self._lost_s = (kept_s - _COMMIT_S, time.time())
        self._work_until(begun_s + storm_s)

    def _settle(self, frontend: Producer) -> float:
        while not frontend.finished:
            self._look()
            time.sleep(_TICK_S)
        self._placed_again = frontend.repeat()
        return super()._settle(frontend)

    def _amend(self, books: ledger.Books) -> ledger.Books:
        """A result whose job the database no longer has is dropped, with a line in the log: that is no loss."""
        logged = {name: [line for line in host.log() if isinstance(line, dict)] for name, host in self._hosts.items()}
        dropped = {
            (name, line["job"], line["attempt"])
            for name, lines in logged.items()
            for line in lines
            if line.get("event") == "spooled_result_dropped"
        }
        kept = {
            line["nonce"]
            for name, lines in books.journals.items()
            for line in lines
            if (name, line["job"], line["attempt"]) in dropped
        }
        self.extra = {
            "submissions lost and placed again": self._placed_again,
            "spooled results of jobs that are gone": len(kept),
            "spooled results committed": sum(
                line.get("event") == "spooled_result_committed" for lines in logged.values() for line in lines
            ),
        }
        return replace(books, stale=books.stale | kept, lost_s=self._lost_s)


def skip_numbers() -> str:
    """The statement that operators run, so that no number is given twice: as the page shows it."""
    (statement,) = re.findall(r"```sql\n(SELECT setval.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(statement)


def keep(cluster: Cluster, how: How) -> None:
    """Set aside the database as it is now: in a dump; or in the standby, which gets nothing more of the primary's log.

    Raises:
        RuntimeError: there is no standby.
    """
    if how is How.DUMP:
        primary = cluster.primary
        primary.run("pg_dump", "--format=custom", f"--file={primary.folder / _DUMP}", primary.url("postgres"))
        roles = f"--file={primary.folder / _ROLES}"
        primary.run("pg_dumpall", "--roles-only", roles, "--dbname", primary.url("postgres"))
        return
    cluster.wait_until_streamed()
    if cluster.standby is None:
        raise RuntimeError("there is no standby")
    cluster.standby.set("primary_conninfo", "")


def go_back(cluster: Cluster, how: How) -> None:
    """Have the address lead to what was kept, in place of a primary that was crashed."""
    if how is How.STANDBY:
        cluster.fail_over(_skip_numbers)
        return
    made = Server()
    try:
        made.start()
        # One role is there already.
        made.run("psql", "--quiet", f"--dbname={made.url('postgres')}", f"--file={cluster.primary.folder / _ROLES}")
        dump = str(cluster.primary.folder / _DUMP)
        made.run("pg_restore", "--exit-on-error", f"--dbname={made.url('postgres')}", dump)
        _skip_numbers(made)
    except BaseException:
        made.close()
        raise
    cluster.replace(made)


def _skip_numbers(server: Server) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(skip_numbers().encode())
