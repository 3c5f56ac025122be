"""The database: the queue, results, migrations. The only place that knows psycopg and SQL.

A `QueueStore` or a `Store` is one connection in one thread; `migrate` brings a database to this release's version;
`records` is what they hand out. The rules of the queue (locks, fencing, final status) lie in `schema/functions`, its
tables in `schema/tables`, and the statements that Python sends in `queries.sql`.
"""

from runner.store.migrate import migrate
from runner.store.records import (
    POSITION_LIMIT,
    Claims,
    Completion,
    Ended,
    HostLine,
    HostRecord,
    LeaseState,
    QueueDepth,
    Reaped,
    Reclaimed,
    SubmissionView,
    Unreadable,
    Wakeup,
)
from runner.store.schema import roles_sql
from runner.store.session import direct_address
from runner.store.signals import Stop
from runner.store.store import QueueStore, Store

__all__ = [
    "POSITION_LIMIT",
    "Claims",
    "Completion",
    "Ended",
    "HostLine",
    "HostRecord",
    "LeaseState",
    "QueueDepth",
    "QueueStore",
    "Reaped",
    "Reclaimed",
    "Stop",
    "Store",
    "SubmissionView",
    "Unreadable",
    "Wakeup",
    "direct_address",
    "migrate",
    "roles_sql",
]
