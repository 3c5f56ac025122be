"""The database for daemons, frontends and operators, as methods that take and return records.

One `Store` is one connection, confined to one thread; it opens when first used and again after it broke. A second store
may listen on it in another thread. Every write
about a claimed job is fenced by (id, attempt, state running). Locks are taken in one order everywhere: user,
submission, jobs by id, job statuses by submission, share, clock, host. No policy lives here: when to claim, renew or
retry is the daemon's business.
"""

from __future__ import annotations

from runner.store.again import Again
from runner.store.boards import Boards
from runner.store.claims import Claiming
from runner.store.frontend import Frontend
from runner.store.hosts import Hosts
from runner.store.results import Results
from runner.store.signals import Signals
from runner.store.users import Users


class Store(Claiming, Results, Signals, Hosts, Frontend, Boards, Again, Users):
    """The database through one connection, for one thread.

    Every method raises `DatabaseUnavailableError` when PostgreSQL cannot be reached or goes away; the next call
    connects again.
    """
