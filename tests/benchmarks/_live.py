"""What benchmarks of the whole runner share: a database of their own, and what must be true of each submission."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from development.stack import Stack, state_directory
from runner.base.model import Verdict
from runner.store import migrate
from runner.store.records import SubmissionView


@contextmanager
def database(name: str) -> Iterator[str]:
    """A migrated database of a benchmark's own; stopped afterwards."""
    directory = state_directory(f"bench-{name}")
    stack = Stack(directory)
    stack.stop_all()
    shutil.rmtree(directory / "postgres", ignore_errors=True)
    try:
        url = stack.start_postgres()
        migrate(url, roles=True)
        yield url
    finally:
        stack.stop_all()


def accepted(view: SubmissionView) -> SubmissionView:
    """The same, if it was accepted.

    Raises:
        RuntimeError: it was not; its times say nothing.
    """
    if view.status.verdict is not Verdict.ACCEPTED:
        raise RuntimeError(
            f"submission {view.status.submission_id}: {view.status.verdict}: {[job.error for job in view.jobs]}"
        )
    return view
