"""Daemons as the database knows them: who serves what, and which GPU types there are."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from runner.errors import HostNameTakenError
from runner.model import Mode, Verdict
from runner.store import queries
from runner.store.base import Base
from runner.store.clean import to_jsonb
from runner.store.connection import Row, row, rows
from runner.store.records import GpuTypeLine, HostLine, HostRecord, LatestLine, QueueDepth, RunningLine, ThroughputLine


class Hosts(Base):
    """The part of a store that keeps the list of hosts."""

    def register_host(self, host: HostRecord) -> None:
        """Announce a daemon, or its new version and slots. Whether it is draining stays as it is.

        Raises:
            HostNameTakenError: a daemon with another identity goes by this name and was seen within a minute.
        """
        parameters = {
            "name": host.name,
            "version": host.version,
            "slots": to_jsonb(list(host.slots)),
            "instance": host.instance,
            "gpu_types": list(host.gpu_types),
        }

        def register(connection: psycopg.Connection[Row]) -> Row | None:
            if row(connection, queries.REGISTER_HOST, parameters) is not None:
                return None
            return row(connection, queries.HOST_NOW, {"name": host.name})

        taken = self._link.run(register)
        if taken is not None:
            raise HostNameTakenError(
                f"host name {host.name!r} belongs to another daemon: expected instance {host.instance}, found "
                f"{taken['instance']}, seen {taken['silent_s']:.0f} s ago. Give one of the two another host_name; if "
                "that daemon is gone for good, wait a minute"
            )

    def unregister_host(self, name: str, *, instance: str) -> None:
        """Note that a daemon stops. Its row stays, and whether it is draining with it.

        Nothing, if another daemon goes by the name now.
        """
        self._link.all(queries.UNREGISTER_HOST, {"name": name, "instance": instance})

    def sync_gpu_types(self, types: Sequence[tuple[str, str, Sequence[str], str]]) -> None:
        """Publish a registry: (name, vendor, aliases, description) each. Types of other hosts stay."""

        def sync(connection: psycopg.Connection[Row]) -> None:
            # In one order everywhere, or two daemons that start together could block each other.
            for name, vendor, aliases, description in sorted(types, key=lambda entry: entry[0]):
                parameters = {"name": name, "vendor": vendor, "aliases": list(aliases), "description": description}
                rows(connection, queries.SYNC_GPU_TYPE, parameters)

        self._link.run(sync)

    def hosts(self) -> Sequence[HostLine]:
        """The daemons that have announced themselves."""
        return [
            HostLine(**{**found, "gpu_types": tuple(found["gpu_types"])}) for found in self._link.all(queries.HOSTS)
        ]

    def gpu_types(self) -> Sequence[GpuTypeLine]:
        """The GPU types that any daemon's registry knows."""
        return [
            GpuTypeLine(**{**found, "aliases": tuple(found["aliases"])}) for found in self._link.all(queries.GPU_TYPES)
        ]

    def queue_depths(self) -> Sequence[QueueDepth]:
        """What waits, by GPU type; types for which nothing waits are left out."""
        return [QueueDepth(**found) for found in self._link.all(queries.QUEUE_DEPTHS)]

    def running(self, *, limit: int) -> Sequence[RunningLine]:
        """What the hosts hold now, by host."""
        return [
            RunningLine(**{**found, "mode": Mode(found["mode"])})
            for found in self._link.all(queries.RUNNING, {"limit": limit})
        ]

    def latest(self, *, limit: int) -> Sequence[LatestLine]:
        """The newest verdicts of the hosts in the list, newest first."""
        return [
            LatestLine(**{**found, "mode": Mode(found["mode"]), "verdict": Verdict(found["verdict"])})
            for found in self._link.all(queries.LATEST, {"limit": limit})
        ]

    def throughput(self) -> Sequence[ThroughputLine]:
        """How much each host has done lately."""
        return [ThroughputLine(**found) for found in self._link.all(queries.THROUGHPUT)]
