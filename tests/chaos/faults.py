"""What goes wrong, when, to whom, for how long: a plan drawn from a seed. Pure.

The plan is the same for the same seed and settings; what it hits is not, because processes run as they like.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos.proxy import Cut


class Kind(StrEnum):
    """A way to break something."""

    KILL = "daemon killed"
    TERM = "daemon restarted politely"
    FREEZE = "daemon frozen longer than its lease"
    DRAIN = "host drained"
    BACKENDS = "database connections terminated"
    CRASH = "PostgreSQL crashed"
    REFUSE = "network refuses"
    RESET = "network resets"
    BLACKHOLE = "network is a black hole"
    DEAF = "network loses the answers"
    FAILOVER = "PostgreSQL failed over to its standby"
    SNAPSHOT = "snapshot held open"
    NOTIFICATIONS = "notification queue filled"
    POOLER = "PgBouncer killed and restarted"
    MIGRATION = "schema migrated under way"


#: What only one fault at a time may use: a host's process, its network, its door.
_PART: Final = {
    Kind.KILL: "process",
    Kind.TERM: "process",
    Kind.FREEZE: "process",
    Kind.DRAIN: "door",
    Kind.REFUSE: "network",
    Kind.RESET: "network",
    Kind.BLACKHOLE: "network",
    Kind.DEAF: "network",
}
#: What only one fault at a time may use of what all hosts share.
_SHARED: Final = {Kind.SNAPSHOT: "snapshot", Kind.NOTIFICATIONS: "notifications", Kind.POOLER: "pooler"}
CUTS: Final = {Kind.REFUSE: Cut.REFUSE, Kind.RESET: Cut.RESET, Kind.BLACKHOLE: Cut.BLACKHOLE, Kind.DEAF: Cut.DEAF}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    at_s: float
    kind: Kind
    #: None: the database itself.
    host: str | None
    #: When it is over and mended; 0 for what is over at once.
    for_s: float
    #: Of a black hole: what it held up arrives in the end. Of a snapshot: its transaction has written.
    late: bool = False

    @property
    def end_s(self) -> float:
        """When it is mended."""
        return self.at_s + self.for_s

    def __str__(self) -> str:
        late = {Kind.BLACKHOLE: ", then everything arrives late", Kind.SNAPSHOT: ", after a write"}.get(self.kind, "")
        late = late if self.late else ""
        return f"{self.at_s:7.2f} s  {self.kind}: {self.host or 'database'} for {self.for_s:.2f} s{late}"


def draw(
    *,
    seed: int,
    hosts: Sequence[str],
    storm_s: float,
    gap_s: float,
    lease_s: float,
    kinds: Sequence[Kind] = tuple(Kind),
) -> tuple[Fault, ...]:
    """A plan: every kind once before any comes again, one every `gap_s` on average, all mended when the storm ends.

    None without `kinds`.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    free_s: dict[tuple[str, str], float] = {}
    faults: list[Fault] = []
    deck: list[Kind] = []
    now_s = gap_s
    while kinds:
        if not deck:
            deck = list(kinds)
            chance.shuffle(deck)
        kind = deck.pop()
        fault = _fault(chance, kind, now_s, hosts, free_s, lease_s)
        if fault.end_s > storm_s:
            break
        faults.append(fault)
        now_s += chance.uniform(0.3, 1.7) * gap_s
    return tuple(faults)


def _fault(  # noqa: PLR0917 - the state of one drawing
    chance: random.Random,
    kind: Kind,
    at_s: float,
    hosts: Sequence[str],
    free_s: dict[tuple[str, str], float],
    lease_s: float,
) -> Fault:
    for_s = _duration_s(chance, kind, lease_s)
    part = _PART.get(kind)
    if part is None:
        shared = _SHARED.get(kind)
        if shared is not None:
            at_s = max(at_s, free_s.get(("", shared), 0.0))
            free_s["", shared] = at_s + for_s
        late = kind is Kind.SNAPSHOT and chance.random() < 0.5
        return Fault(at_s=at_s, kind=kind, host=None, for_s=for_s, late=late)
    # Among the hosts whose part is whole; if all are broken, the one that is mended first.
    order = chance.sample(list(hosts), len(hosts))
    host = min(order, key=lambda name: max(at_s, free_s.get((name, part), 0.0)))
    at_s = max(at_s, free_s.get((host, part), 0.0))
    fault = Fault(at_s=at_s, kind=kind, host=host, for_s=for_s, late=kind is Kind.BLACKHOLE and chance.random() < 0.5)
    # A moment of peace, so that what was mended also works again at times.
    free_s[host, part] = fault.end_s + chance.uniform(0.5, 1.5) * lease_s
    return fault


def _duration_s(chance: random.Random, kind: Kind, lease_s: float) -> float:
    match kind:
        case Kind.KILL:
            return chance.uniform(0.1, 1.5) * lease_s
        case Kind.FREEZE:
            return chance.uniform(1.2, 2.2) * lease_s
        case Kind.DRAIN:
            return chance.uniform(0.5, 2.0) * lease_s
        case Kind.REFUSE | Kind.BLACKHOLE | Kind.DEAF:
            return chance.uniform(0.3, 2.0) * lease_s
        case Kind.CRASH | Kind.POOLER:
            return chance.uniform(0.0, 0.5) * lease_s
        case Kind.SNAPSHOT | Kind.NOTIFICATIONS:
            return chance.uniform(1.0, 3.0) * lease_s
        case Kind.TERM | Kind.BACKENDS | Kind.RESET | Kind.FAILOVER | Kind.MIGRATION:
            return 0.0
