"""The queues that are compared: how each is installed, fed and asked whether it is done. None of their code is ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import psycopg

from tests.benchmarks.queue import ours, pgqueuer_side, procrastinate_side


class Side(Protocol):
    """What a contender's module offers."""

    #: Needed for it; None: always there.
    PACKAGE: str | None
    #: Says whether a job waits or runs.
    OPEN_SQL: str

    def install(self, url: str) -> None:
        """Make its tables in an empty database."""
        ...

    def insert(self, connection: psycopg.Connection[Any]) -> int:
        """Add one job in the transaction at hand; the key its worker will note."""
        ...

    def preload(self, connection: psycopg.Connection[Any], jobs: int) -> None:
        """Add many jobs."""
        ...


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One queue with the settings of its workers."""

    name: str
    side: Side
    module: str
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def there(self) -> bool:
        """Whether its package is installed."""
        return self.side.PACKAGE is None or importlib.util.find_spec(self.side.PACKAGE) is not None


def contender(name: str, **options: object) -> Contender:
    """A contender by name, its workers with these options."""
    sides: Mapping[str, Any] = {"ours": ours, "procrastinate": procrastinate_side, "pgqueuer": pgqueuer_side}
    side = sides[name]
    return Contender(name=name, side=side, module=side.__name__, options=options)


def peers() -> list[str]:
    """The peers whose packages are installed; says which are not."""
    found = []
    for name in ("procrastinate", "pgqueuer"):
        if contender(name).there:
            found.append(name)
        else:
            print(f"{name} is not installed (`make bench` installs it): left out")
    return found
