"""The database: the queue, results, leaderboards, migrations. The only place that knows psycopg, alembic and SQL.

`Store` is one connection in one thread; `migrate` brings a database to this release's version; `records` is what they
hand out. The rules of the queue (locks, fencing, final status) live in `queries.sql` and `migrations/sql`.
"""

from runner.errors import BoardError, SchemaDriftError
from runner.store.migrate import migrate, roles_sql
from runner.store.records import (
    ArtifactLine,
    BoardLine,
    BoardView,
    Completion,
    GpuTypeLine,
    HostLine,
    HostRecord,
    JobView,
    LeaseState,
    RankingLine,
    RunView,
    StatusLine,
    SubmissionView,
)
from runner.store.store import Store

__all__ = [
    "ArtifactLine",
    "BoardError",
    "BoardLine",
    "BoardView",
    "Completion",
    "GpuTypeLine",
    "HostLine",
    "HostRecord",
    "JobView",
    "LeaseState",
    "RankingLine",
    "RunView",
    "SchemaDriftError",
    "StatusLine",
    "Store",
    "SubmissionView",
    "migrate",
    "roles_sql",
]
