"""pgqueuer: https://pgqueuer.readthedocs.io, with asyncpg and uvloop, as its own benchmark runs it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from tests.benchmarks.queue.worker import Notebook, say_ready

PACKAGE: Final = "pgqueuer"
OPEN_SQL: Final = "SELECT EXISTS (SELECT FROM pgqueuer)"


def install(url: str) -> None:
    """Its schema, durable, with the autovacuum settings it recommends."""

    async def make() -> None:
        import asyncpg
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(url)
        try:
            queries = Queries.from_asyncpg_connection(connection)
            await queries.install()
            await queries.optimize_autovacuum()
        finally:
            await connection.close()

    asyncio.run(make())


def insert(connection: psycopg.Connection[Any]) -> int:
    """One job by its own statement."""
    return _enqueue(connection, 1)


def preload(connection: psycopg.Connection[Any], jobs: int) -> None:
    """Many jobs by its own statement."""
    _enqueue(connection, jobs)


def _enqueue(connection: psycopg.Connection[Any], jobs: int) -> int:
    from pgqueuer.adapters.persistence.qb import QueryQueueBuilder

    statement = QueryQueueBuilder().build_enqueue_query()
    none = [None] * jobs
    values = ([0] * jobs, ["noop"] * jobs, none, ["0 seconds"] * jobs, none, none)
    found = psycopg.RawCursor(connection).execute(statement.encode(), values).fetchone()
    if found is None:
        raise RuntimeError("pgqueuer enqueued nothing")
    return int(found[1])


def main(options: Mapping[str, Any]) -> None:
    """Serve until SIGTERM."""
    import uvloop

    notebook = Notebook()

    async def serve() -> None:
        import asyncpg
        from pgqueuer import PgQueuer

        async def noop(job: Any) -> None:  # noqa: ANN401 - the peer's type
            notebook.note("start", job.id)

        connection = await asyncpg.connect(options["url"], server_settings={"application_name": "pgqueuer"})
        try:
            queue = PgQueuer.from_asyncpg_connection(connection)
            queue.entrypoint("noop")(noop)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, queue.shutdown.set)
            say_ready()
            await queue.run(batch_size=int(options["batch"]), max_concurrent_tasks=options.get("at_most"))
        finally:
            await connection.close()

    uvloop.run(serve())
    notebook.write(options["notes"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
