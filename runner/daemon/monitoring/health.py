"""The daemon's health, collected when it is asked for: alive, ready, and everything that `/metrics` shows.

Owns which state is shown, and under which names; `runner.base.metrics` owns the counters. Asks only this process, the
database (length of the queue, `queue_depth`) and the disks. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from runner import __version__
from runner.base import metrics
from runner.base.database_address import mask_password
from runner.base.disk import DiskSpace
from runner.base.model import Json, Slot
from runner.daemon.monitoring.queue_depth import QueueDepthCache
from runner.daemon.monitoring.readiness import (
    DATABASE,
    DISK,
    ENGINE,
    EVALUATION,
    HOST_NAME,
    SLOTS,
    Readiness,
)
from runner.daemon.monitoring.watchdog import Watchdog
from runner.daemon.outcomes.spool import Spool

#: The reason why a daemon is not ready -> the label of `kernel_runner_not_ready{reason}`.
REASONS: Final[Mapping[str, str]] = {
    DATABASE: "database",
    ENGINE: "engine",
    DISK: "disk",
    EVALUATION: "evaluation",
    HOST_NAME: "host_name",
    SLOTS: "slots",
    "start-up": "starting",
    "shutdown": "stopping",
}
_DRAINING: Final = "draining"


@dataclass(frozen=True, kw_only=True)
class DaemonSnapshot:
    """A daemon's slots and what it holds, at a moment."""

    #: Each with whether it is busy.
    slots: tuple[tuple[Slot, bool], ...]
    #: By name of the slot, why it is not used.
    quarantined: Mapping[str, str]
    #: How many of the others there are for each name that jobs use.
    usable: Mapping[str, int]
    #: Jobs that are this host's.
    leases: int
    #: Results that are neither in the database nor in the spool.
    unwritten: int


@dataclass(frozen=True, kw_only=True)
class DaemonView:
    """The parts of the running daemon that are shown; any thread may ask them."""

    host: str
    snapshot: Callable[[], DaemonSnapshot]
    spool: Spool
    disk_spaces: Callable[[], Sequence[DiskSpace]]
    #: Waiting containers by slot; how many build workers there are, and how many are busy.
    warm: Callable[[], Mapping[str, int]]
    build_workers: Callable[[], tuple[int, int]]
    queue_depths: QueueDepthCache


class HealthReport:
    """Threadsafe. Exists before the daemon and after it."""

    def __init__(self, readiness: Readiness, watchdog: Watchdog) -> None:
        #: Set by the claiming thread.
        self.readiness = readiness
        self.watchdog = watchdog
        #: What is shown; None: no daemon runs.
        self.parts: DaemonView | None = None
        #: Metrics that are computed with every scrape.
        self.registry = CollectorRegistry()
        self.registry.register(_Snapshot(self))

    def health(self) -> tuple[bool, Json]:
        """Whether the main thread makes progress, and the details."""
        alive = self.watchdog.is_alive
        return alive, {"alive": alive}

    def ready(self) -> tuple[bool, Json]:
        """Whether a job would be claimed now; if not, why."""
        if not self.watchdog.is_alive:
            return False, {"ready": False, "reason": "stuck", "waiting_for": "its main thread, which hangs"}
        if self.readiness.ready.is_set():
            return True, {"ready": True, "status": self.readiness.status}
        waiting_for = self.readiness.waiting_for or "start-up"
        details = self.readiness.reason
        return False, {
            "ready": False,
            "reason": REASONS.get(waiting_for, _DRAINING),
            "waiting_for": waiting_for,
            **({} if details is None else {"details": mask_password(details)}),
        }

    def metrics(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(metrics.REGISTRY) + generate_latest(self.registry)


class _Snapshot(Collector):
    """The state at the moment of a scrape."""

    def __init__(self, health_report: HealthReport) -> None:
        self._health_report = health_report

    def collect(self) -> Iterable[Metric]:
        """The families, in the order of docs/log-events.md."""
        parts = self._health_report.parts
        yield from self._daemon(parts)
        if parts is None:
            return
        yield from _slots(parts.snapshot(), parts.warm())
        build_workers, running = parts.build_workers()
        yield GaugeMetricFamily(
            "kernel_runner_build_workers", "Builds that may run beside the slots.", value=build_workers
        )
        yield GaugeMetricFamily("kernel_runner_builds_running", "Builds that do.", value=running)
        yield from _storage(parts)
        yield from _queue(parts.queue_depths)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would else collect when the process starts."""
        return ()

    def _daemon(self, parts: DaemonView | None) -> Iterable[Metric]:
        info = {"version": __version__, **({} if parts is None else {"host": parts.host})}
        yield InfoMetricFamily("kernel_runner", "Release and name of the host.", value=info)
        alive, _ = self._health_report.health()
        yield GaugeMetricFamily("kernel_runner_alive", "1 while the daemon's main thread goes on.", value=alive)
        ready, details = self._health_report.ready()
        yield GaugeMetricFamily("kernel_runner_ready", "1 while jobs are claimed.", value=ready)
        why = GaugeMetricFamily("kernel_runner_not_ready", "1 for why no jobs are claimed.", labels=["reason"])
        for word in (*REASONS.values(), _DRAINING, "stuck"):
            why.add_metric([word], float(details.get("reason") == word))
        yield why


def _slots(snapshot: DaemonSnapshot, warm: Mapping[str, int]) -> Iterable[Metric]:
    by_state: Counter[tuple[str, str]] = Counter()
    condition = GaugeMetricFamily(
        "kernel_runner_slot_condition",
        "1 for whether runs may begin on a slot: fit or quarantined.",
        labels=["slot", "gpu_type", "condition"],
    )
    waiting = GaugeMetricFamily(
        "kernel_runner_containers_warm", "Containers that wait for submissions, torch imported.", labels=["slot"]
    )
    for slot, busy in snapshot.slots:
        name = slot.name
        state = "quarantined" if name in snapshot.quarantined else "fit"
        for each in ("fit", "quarantined"):
            condition.add_metric([name, slot.gpu_type, each], float(each == state))
        now = "busy" if busy else "quarantined" if state == "quarantined" else "free"
        for each in ("free", "busy", "quarantined"):
            by_state[slot.gpu_type, each] += each == now
        waiting.add_metric([name], warm.get(name, 0))
    slots = GaugeMetricFamily(
        "kernel_runner_slots", "Slots that are free, busy or quarantined.", labels=["gpu_type", "state"]
    )
    for (gpu_type, state), count in sorted(by_state.items()):
        slots.add_metric([gpu_type, state], count)
    usable = GaugeMetricFamily(
        "kernel_runner_slots_usable",
        "Slots that are free or busy, under each name that jobs may use, aliases too.",
        labels=["gpu_type"],
    )
    for name, count in sorted(snapshot.usable.items()):
        usable.add_metric([name], count)
    yield from (slots, usable, condition, waiting)
    yield GaugeMetricFamily("kernel_runner_leases_held", "Jobs that are this host's.", value=snapshot.leases)
    yield GaugeMetricFamily(
        "kernel_runner_results_unwritten",
        "Results that are neither in the database nor in the spool.",
        value=snapshot.unwritten,
    )


def _storage(parts: DaemonView) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "kernel_runner_spool_results", "Results that wait for the database.", value=parts.spool.count
    )
    free = GaugeMetricFamily(
        "kernel_runner_disk_free_bytes",
        "What is free where the daemon and the engine write.",
        labels=["path"],
    )
    floor = GaugeMetricFamily("kernel_runner_disk_floor_bytes", "`min_free_gib`.", labels=["path"])
    for space in parts.disk_spaces():
        if space.free_bytes is not None:
            free.add_metric([str(space.path)], space.free_bytes)
            floor.add_metric([str(space.path)], space.floor_bytes)
    yield from (free, floor)


def _queue(queue_depths: QueueDepthCache) -> Iterable[Metric]:
    depths = queue_depths.get()
    yield GaugeMetricFamily(
        "kernel_runner_queue_known", "1 while the length of the queue is known.", value=depths is not None
    )
    jobs = GaugeMetricFamily(
        "kernel_runner_queue_jobs", "Jobs of all hosts that wait, at most a minute ago.", labels=["gpu_type"]
    )
    oldest = GaugeMetricFamily(
        "kernel_runner_queue_oldest_seconds", "How long the oldest of them has waited.", labels=["gpu_type"]
    )
    for depth in depths or ():
        jobs.add_metric([depth.gpu_type], depth.jobs)
        oldest.add_metric([depth.gpu_type], depth.oldest_s)
    yield from (jobs, oldest)
