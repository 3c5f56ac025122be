"""Daemons in the database: the GPU types they serve, their load, and the deletion of old records."""

from __future__ import annotations

from collections.abc import Sequence

from runner.base.errors import HostNameTakenError
from runner.store.base import Base, typed
from runner.store.clean import to_jsonb
from runner.store.records import (
    GpuTypeLine,
    HostLine,
    HostRecord,
    QueueDepth,
    Reaped,
)


class Hosts(Base):
    """The part of a store about hosts and what they do."""

    def register_host(self, host: HostRecord) -> None:
        """Announce a daemon, or its new version and slots. Whether it is draining stays as it is.

        Raises:
            HostNameTakenError: a daemon with another identity goes by this name and was seen within a minute, or the
                name is bound to another login.
        """
        parameters = {**vars(host), "slots": to_jsonb(list(host.slots)), "gpu_types": list(host.gpu_types)}
        refusals = self._all("register", **parameters)
        if not refusals:
            return
        (taken,) = refusals
        if taken["owner_login"] is not None:
            raise HostNameTakenError(
                f"host name {host.name!r} belongs to the database login {taken['owner_login']!r}, and this daemon has "
                "another one. Give this host another host_name, or let an operator bind the name to this daemon's "
                f"login (SELECT runner.move_host({host.name!r}, LOGIN))"
            )
        raise HostNameTakenError(
            f"host name {host.name!r} belongs to another daemon: expected instance {host.instance}, found "
            f"{taken['owner_instance']}, seen {taken['silent_s']:.0f} s ago. Give one of the two another host_name; if "
            "that daemon is gone for good, wait a minute"
        )

    def unregister_host(self, name: str, *, instance: str) -> None:
        """Note that a daemon stops. Its row stays, and whether it is draining with it.

        Nothing, if another daemon goes by the name now.
        """
        self._all("unregister", name=name, instance=instance)

    def sync_gpu_types(self, types: Sequence[tuple[str, str, Sequence[str], str]]) -> Sequence[str]:
        """Publish a registry: (name, vendor, aliases, description) each. Types of other hosts stay.

        Returns:
            The types that were not stored: a type of the owner or of another login has one of their names.
        """
        given = [
            {"name": name, "vendor": vendor, "aliases": list(aliases), "description": text}
            for name, vendor, aliases, text in types
        ]
        refused: list[str] = self._one("publish_gpu_types", types=to_jsonb(given))["refused"]
        return refused

    def hosts(self) -> Sequence[HostLine]:
        """The daemons that have announced themselves."""
        return [HostLine(**typed(row)) for row in self._all("hosts")]

    def gpu_types(self) -> Sequence[GpuTypeLine]:
        """The GPU types that any daemon's registry knows."""
        return [GpuTypeLine(**typed(row)) for row in self._all("gpu_types")]

    def queue_depths(self) -> Sequence[QueueDepth]:
        """Waiting jobs by GPU type; types without any are left out."""
        return [QueueDepth(**record) for record in self._all("queue_depths")]

    def reap(self, *, keep_s: float, limit: int = 500) -> Reaped:
        """Delete a batch of old records: artifacts, hosts, turns, and files without a submission.

        Older than `keep_s` seconds: evidence, events, reports of jobs that count for nothing, replaced results.
        `keep_s` is a day at least. At most `limit` rows of each kind, of artifacts also at most about 256 MiB; call it
        again until nothing goes.
        Several daemons may do so at once: while one works, the others get zeros.
        """
        return Reaped(**self._one("reap", keep_s=keep_s, limit=limit))
