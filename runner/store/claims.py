"""Who works on what: claims and the leases that come of them. Called by the daemon's loop and its lease keeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from runner.model import Job, JobState, Mode
from runner.store import queries
from runner.store.base import Base, expect
from runner.store.connection import Row
from runner.store.records import Claims, LeaseState, Reclaimed

#: A job whose lease expired so often is taken to be what kills its daemons.
MAX_RECLAIMS: Final = 5
#: What a claim says of the host; the rest of a row is a job.
_STANDING: Final = ("draining", "drain_reason", "registered", "overdue", "rivals")


class Claiming(Base):
    """The part of a store that hands out jobs and takes them back."""

    def claim(self, *, host: str, slots: Mapping[str, int], lease_s: float, at_most: int | None = None) -> Claims:
        """Take the best waiting jobs of one GPU type with free slots, as many as there are free slots for it.

        `slots` maps GPU types, aliases included, to free slots; `at_most` bounds the jobs in all. Of types whose best
        jobs have the same priority the one named first is served. The answer also says how the host stands, whether
        there was a job or not.

        When this raises, the server may have committed the claim all the same: `recover` before the next one.
        """
        parameters = {
            "host": host,
            "gpu_types": list(slots),
            "free": list(slots.values()),
            "lease_s": lease_s,
            "at_most": at_most,
        }
        found = self._link.all(queries.CLAIM, parameters)
        standing = {name: found[0][name] for name in _STANDING}
        return Claims(jobs=tuple(_job(claimed) for claimed in found if claimed["id"] is not None), **standing)

    def heartbeat(self, *, host: str, lease_s: float, held: Sequence[tuple[int, int]]) -> Sequence[LeaseState]:
        """Renew the leases on `held` (job id, attempt) for `lease_s` seconds and show that the host is alive.

        Waits for nobody: a job that somebody is writing right now keeps its lease as it is until the next heartbeat.
        """
        ids, attempts = _columns(held)
        parameters = {"host": host, "lease_s": lease_s, "ids": ids, "attempts": attempts}
        return [LeaseState(**found) for found in self._link.all(queries.HEARTBEAT, parameters)]

    def reclaim(self) -> Sequence[Reclaimed]:
        """Put jobs with expired leases back into the queue, a hundred at a time.

        That costs a job nothing, until it has happened MAX_RECLAIMS times: then it ends as `internal_error`.
        """
        return [
            Reclaimed(**{**found, "state": JobState(found["state"])})
            for found in self._link.all(queries.RECLAIM, {"max_reclaims": MAX_RECLAIMS})
        ]

    def recover(self, *, host: str, keep: Sequence[tuple[int, int]], died: bool = False) -> int:
        """Put every job that runs in the name of this host back into the queue, except (job id, attempt) in `keep`.

        For a daemon whose claim was never answered: that costs the jobs nothing. Or whose earlier process `died`: maybe
        it was one of them, so it counts as for `reclaim`. Returns how many they were. Must not run beside a claim of
        the same host.
        """
        ids, attempts = _columns(keep)
        max_reclaims = MAX_RECLAIMS if died else None
        parameters = {"host": host, "ids": ids, "attempts": attempts, "max_reclaims": max_reclaims}
        return int(expect(self._link.one(queries.RECOVER, parameters))["recovered"])

    def reserve(
        self, *, host: str, gpu_types: Sequence[str], smaller: Sequence[str], waited_s: float, hold_s: float
    ) -> str | None:
        """Ask for devices to be kept free for a job of these GPU types; returns the job's type, or None.

        A job is due when it has waited `waited_s` seconds, or when its priority is above every waiting job of the types
        in `smaller`, which would run on its devices meanwhile. A reservation of ours lasts `hold_s` seconds and is
        renewed as long as its job waits; a job that another live host has reserved is passed over.
        """
        parameters = {
            "host": host,
            "gpu_types": list(gpu_types),
            "smaller": list(smaller),
            "waited_s": waited_s,
            "hold_s": hold_s,
        }
        gpu_type = expect(self._link.one(queries.RESERVE, parameters))["gpu_type"]
        return None if gpu_type is None else str(gpu_type)


def _job(claimed: Row) -> Job:
    own = {name: value for name, value in claimed.items() if name not in _STANDING}
    return Job(**{**own, "mode": Mode(own["mode"])})


def _columns(held: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [job_id for job_id, _ in held], [attempt for _, attempt in held]
