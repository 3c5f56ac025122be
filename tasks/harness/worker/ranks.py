"""This process as one rank of several: its place, its process group, and reports of a rank that is stuck."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from tasks.harness.shared.process_groups import become_rank, join_group, leave_group
from tasks.harness.shared.wire import Channel

from .stalls import StallReporter


class Rank:
    """Makes the calling process a rank, for good."""

    def __init__(self, channel: Channel, home: Path, *, rank: int, world_size: int, device: str) -> None:
        """Take the rank's device or share of the cores. `home`: where all ranks meet; `device`: "cpu", or a kind."""
        self._home = home
        self._rank, self._world_size, self._device = rank, world_size, device
        become_rank(rank=rank, world_size=world_size, device=device)
        self._stall_reporter = StallReporter(channel)

    def join(self, meeting: str) -> None:
        """Leave the process group, if any, and join a new one through a file that all ranks name."""
        leave_group()
        join_group(self._home / meeting, rank=self._rank, world_size=self._world_size, device=self._device)

    def reporting_stalls(self, until_ns: int) -> AbstractContextManager[None]:
        """Tell the judge where this rank is if the block still runs at `until_ns` (time.perf_counter_ns)."""
        return self._stall_reporter.until(until_ns)
