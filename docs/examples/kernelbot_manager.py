"""KernelBot's submissions evaluated by kernel-runner: a manager with the interface of its background manager.

KernelBot's API stores a submission and hands it to its background manager, which runs it through a launcher inside the
API's process, and forgets what waits when that restarts. This one adds jobs to the queue and is done: daemons evaluate
them, write `leaderboard.runs` and the status, and KernelBot's API, website and command line show these as ever.

`start_kernelbot.py` puts it into KernelBot's API: `QueueManager(os.environ["DATABASE_URL"])`.
"""

import asyncio
from typing import Any

import psycopg


class QueueManager:
    """`start`, `stop`, `enqueue` and `queue_snapshot`, as the API calls them; holds nothing to be lost."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._accepting = False

    async def start(self) -> None:
        """Take submissions, if the queue is there."""
        await asyncio.to_thread(self._one, "SELECT count(*) FROM runner.host")
        self._accepting = True

    async def stop(self) -> None:
        """Take no more; what waits goes on waiting in the database, and what runs goes on."""
        self._accepting = False

    async def enqueue(self, req: Any, mode: Any, sub_id: int) -> tuple[int, int]:
        """Add the jobs of a submission that KernelBot has stored; its job status' number, and its own.

        Args:
            req: the processed request; its `gpus` are the GPU types that were asked for.
            mode: the submission mode, an enum whose `value` is `test`, `benchmark`, `profile` or `leaderboard`.
            sub_id: the submission's id.
        """
        if not self._accepting:
            raise RuntimeError("the API is going down; submit again in a minute")
        gpus = [str(getattr(gpu, "name", gpu)) for gpu in req.gpus]
        await asyncio.to_thread(self._one, "SELECT runner.enqueue(%s, %s, %s)", sub_id, mode.value, gpus)
        (status_id,) = await asyncio.to_thread(
            self._one, "SELECT id FROM leaderboard.submission_job_status WHERE submission_id = %s", sub_id
        )
        return status_id, sub_id

    async def queue_snapshot(self, sub_id: int | None = None) -> dict[str, Any]:
        """Where a submission stands."""
        found = await asyncio.to_thread(
            self._one, "SELECT state, phase, position FROM runner.status WHERE submission_id = %s", sub_id
        )
        state, phase, position = found or ("unknown", None, None)
        queued = state == "queued"
        return {
            "stage": "queued" if queued else "dispatched",
            "message": phase or state,
            "position": position if queued else None,
            "jobs_ahead": position - 1 if queued and position is not None else None,
        }

    def _one(self, statement: str, *parameters: Any) -> Any:
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            return connection.execute(statement, parameters).fetchone()
