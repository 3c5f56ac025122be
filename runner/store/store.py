"""The database for daemons (`QueueStore`), and for frontends and operators as well (`Store`).

A store is one connection, confined to one thread; it opens when first used and again after it broke. Every write about
a claimed job is fenced by (id, attempt, state running). Locks are taken in one order everywhere: user, submission, jobs
by id, job statuses by submission, share, clock, host. No policy lives here: the daemon decides when to claim, renew or
retry.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.store.claims import Claiming
from runner.store.connection import Row
from runner.store.frontend import Frontend
from runner.store.hosts import Hosts
from runner.store.operations import Operations
from runner.store.queries import Query
from runner.store.results import Results
from runner.store.signals import Signals


class QueueStore(Claiming, Results, Signals, Hosts):
    """The queue through one connection, for one thread: all that a daemon may do.

    Every method raises `DatabaseUnavailableError` when PostgreSQL cannot be reached or goes away; the next call
    connects again.
    """


class Store(QueueStore, Frontend, Operations):
    """The queue, and the actions of frontends and operators: submissions, pauses."""

    def all(self, query: Query, /, **values: object) -> Sequence[Row]:
        """Every row of a statement of a guest."""
        return self._fetch(query, values)
