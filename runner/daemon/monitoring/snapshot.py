"""The state of a daemon at one moment, as a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runner.model import Slot


@dataclass(frozen=True, kw_only=True)
class DaemonSnapshot:
    """A daemon's slots and what it holds, at a moment."""

    #: Each with whether it is busy.
    slots: tuple[tuple[Slot, bool], ...]
    #: By name of the slot, why it is not used, or not ranked on.
    quarantined: Mapping[str, str]
    degraded: Mapping[str, str]
    #: Jobs that are this host's.
    leases: int
    #: Results that are neither in the database nor in the spool.
    unwritten: int
