"""What statements read: pages, index entries, and rows of tables that are walked. Nothing is timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

#: One claim in twenty looks for aged jobs as well, by chance. Not the next one.
NOT_AGED = b"SELECT setseed(0.5)"
#: The next one.
AGED = b"""
DO $$
DECLARE
    v_seed double precision := 0;
BEGIN
    LOOP
        PERFORM setseed(v_seed);
        EXIT WHEN random() < 0.05;
        v_seed := v_seed + 0.001;
    END LOOP;
    PERFORM setseed(v_seed);
END
$$
"""
#: What the transaction at hand has read so far, by index and by walking tables from end to end.
READ = """
SELECT i.indexrelname AS name, false AS walked, pg_stat_get_xact_tuples_returned(i.indexrelid) AS number
FROM pg_stat_user_indexes i
UNION ALL
SELECT t.relname, true, t.seq_tup_read FROM pg_stat_xact_user_tables t
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a statement read."""

    pages: int
    #: Index -> entries.
    entries: Mapping[str, int]
    #: Table -> rows, of those walked from end to end.
    walked: Mapping[str, int]


class Meter:
    """A connection that works like a store's, and what its statements cost. Everything is rolled back."""

    def __init__(self, db: psycopg.Connection[dict[str, Any]]) -> None:
        self.db = db
        db.prepare_threshold = 0
        db.execute(NOT_AGED)
        assert db.execute("SELECT random() >= 0.05 AS passes").fetchone() == {"passes": True}

    def cost(self, query: bytes, parameters: Mapping[str, object] | None = None, *, after: bytes = NOT_AGED) -> Cost:
        """Run a statement twice: what is known afterwards, and what costs nothing any more, is no matter.

        `after`: a statement that is run before, and is not counted.
        """
        self._cost(query, parameters, after)
        return self._cost(query, parameters, after)

    def _cost(self, query: bytes, parameters: Mapping[str, object] | None, after: bytes) -> Cost:
        with self.db.transaction(force_rollback=True):
            self.db.execute(after)
            before = self._read()
            plan = self.db.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query, parameters).fetchall()
            read = self._read() - before
        node = plan[0]["QUERY PLAN"][0]["Plan"]
        return Cost(
            pages=node["Shared Hit Blocks"] + node["Shared Read Blocks"],
            entries={name: number for (name, walked), number in read.items() if not walked},
            # Tables of a few rows are read as a whole, and should be.
            walked={name: number for (name, walked), number in read.items() if walked and number > 100},
        )

    def _read(self) -> Counter[tuple[str, bool]]:
        return Counter({(row["name"], row["walked"]): row["number"] for row in self.db.execute(READ)})
