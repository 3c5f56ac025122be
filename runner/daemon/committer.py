"""Commits the results of a host's slots together: what comes while a commit is under way goes with the next one.

Owns one connection and no thread: a slot that has a result commits for all that wait, as soon as the commit before is
done. So a host at rest commits each result at once, and a busy one pays for one commit what would have been many. Must
not decide what becomes of a result that cannot be committed: each slot gets its own outcome. Called by the slots.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from runner.daemon.ports import StoreFactory
from runner.errors import DatabaseUnavailableError
from runner.model import Job, JobResult
from runner.store import Completion, Store

#: No more results than this in one transaction.
MAX_RESULTS: Final = 32
#: A commit that takes longer holds up nobody: the next result goes on a connection of its own.
TURN_S: Final = 1.0
#: The connection is closed after so long without a result.
IDLE_S: Final = 5.0


class _Waiting:
    """A result and what became of it."""

    def __init__(self, job: Job, result: JobResult) -> None:
        self.given = (job, result)
        self.outcome: Completion | Exception | None = None
        #: Its submission is held by somebody, and nobody else shall wait for that.
        self.alone = False

    def over(self) -> bool:
        """Whether nobody else can do anything for it any more."""
        return self.alone or self.outcome is not None


class Committer:
    """Threadsafe; `complete` comes back when the result is committed, or with the reason why it is not."""

    def __init__(self, store_factory: StoreFactory, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store_factory("commit")
        self._clock = clock
        self._used_s = clock()
        #: Guards what follows, and tells that a commit is over.
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        #: Somebody has the connection.
        self._taken = False
        self._closed = False

    def complete(self, job: Job, result: JobResult, *, alone: Store) -> Completion:
        """Commit a result, together with those of other slots; on the connection `alone` if that takes too long.

        Raises:
            StaleAttemptError: the attempt is over; nothing was written but evidence.
            DatabaseUnavailableError: the database is away.
        """
        mine = _Waiting(job, result)
        with self._changed:
            self._waiting.append(mine)
        while not mine.over():
            with self._changed:
                if not self._changed.wait_for(lambda: mine.over() or not self._taken, TURN_S):
                    self._waiting = [one for one in self._waiting if one is not mine]
                    break
                if mine.over():
                    break
                self._taken = True
                # Nothing waits if whoever took mine was ended in the middle of it: then it is committed again.
                batch = self._waiting[:MAX_RESULTS] or [mine]
                self._waiting = self._waiting[MAX_RESULTS:]
            try:
                self._commit(batch)
            finally:
                self._give_back()
        if mine.outcome is None:
            # Its submission is held by somebody, or a commit under way takes long: if that one holds it, it is
            # committed twice, which is no error.
            return alone.complete(job, result)
        if isinstance(mine.outcome, Exception):
            raise mine.outcome
        return mine.outcome

    def rest(self) -> None:
        """Close the connection if nothing has been committed for a while."""
        with self._changed:
            if self._taken or self._clock() - self._used_s < IDLE_S:
                return
            self._taken = True
        self._store.close()
        self._give_back()

    def close(self) -> None:
        """Close the connection; a run that does not let go in time may still commit, and leaves none open."""
        self._closed = True
        self._store.close()

    def _give_back(self) -> None:
        if self._closed:
            self._store.close()
        with self._changed:
            self._taken = False
            self._changed.notify_all()

    def _commit(self, batch: Sequence[_Waiting]) -> None:
        """Commit and leave everyone's outcome; one that cannot be written, or has to wait, spoils no other."""
        self._used_s = self._clock()
        outcomes: Sequence[Completion | Exception | None]
        try:
            outcomes = self._store.complete_all([one.given for one in batch])
        except DatabaseUnavailableError as error:
            # An error of its own for each: they are raised in different threads.
            outcomes = [DatabaseUnavailableError(str(error)) for _ in batch]
        except Exception as error:  # noqa: BLE001 - handed to the slot, which logs it with the job's ids
            if len(batch) > 1:
                for one in batch:
                    self._commit([one])
                return
            outcomes = [error]
        for one, outcome in zip(batch, outcomes, strict=True):
            one.outcome = outcome
            one.alone = outcome is None
