"""procrastinate: https://procrastinate.readthedocs.io, with an asynchronous task, the kind it runs concurrently."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from tests.benchmarks.queue.worker import Notebook, say_ready

PACKAGE: Final = "procrastinate"
OPEN_SQL: Final = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
_INSERT: Final = (
    "SELECT procrastinate_defer_jobs_v1(array_agg("
    "ROW('default', 'noop', 0, NULL, NULL, '{}', NULL)::procrastinate_job_to_defer_v1))"
    " FROM generate_series(1, %(jobs)s)"
)


def install(url: str) -> None:
    """Its schema."""
    from procrastinate.schema import SchemaManager

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SchemaManager.get_schema().encode())


def insert(connection: psycopg.Connection[Any]) -> int:
    """One job by its own function."""
    found = connection.execute(_INSERT, {"jobs": 1}).fetchone()
    if found is None:
        raise RuntimeError("procrastinate deferred nothing")
    return int(found[0][0])


def preload(connection: psycopg.Connection[Any], jobs: int) -> None:
    """Many jobs by its own function."""
    connection.execute(_INSERT, {"jobs": jobs})


def main(options: Mapping[str, Any]) -> None:
    """Serve until SIGTERM."""
    import procrastinate
    import uvloop

    notebook = Notebook()

    async def noop(context: Any) -> None:  # noqa: ANN401 - the peer's type
        notebook.note("start", context.job.id)

    async def serve() -> None:
        slots = int(options["slots"])
        app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(
                conninfo=options["url"],
                kwargs={"application_name": "procrastinate"},
                # Its documentation leaves the pool to the user; a connection for every job at work serves it best
                # under load, and the pool's own minimum when idle.
                min_size=int(options.get("pool_min", 1)),
                max_size=slots + 2,
            )
        )
        app.task(name="noop", pass_context=True)(noop)
        async with app.open_async():
            say_ready()
            await app.run_worker_async(concurrency=slots)

    uvloop.run(serve())
    notebook.write(options["notes"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
