"""Every metric that a daemon's `/metrics` has, for the page and for what asks for metrics by name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from prometheus_client.core import Metric

from runner.base import metrics
from runner.base.disk import DiskSpace
from runner.base.model import Slot
from runner.daemon.monitoring.health import DaemonSnapshot, DaemonView, HealthReport
from runner.daemon.monitoring.queue_depth import QueueDepthCache
from runner.daemon.monitoring.readiness import Readiness
from runner.daemon.monitoring.watchdog import Watchdog
from runner.daemon.outcomes.spool import Spool
from runner.store import QueueDepth

#: What a family of each type has in the text format, after its name.
SUFFIXES: Final[Mapping[str, Sequence[str]]] = {
    "counter": ("_total",),
    "gauge": ("",),
    "info": ("_info",),
    "histogram": ("_bucket", "_count", "_sum"),
}


class _Depths:
    def get(self) -> Sequence[QueueDepth]:
        return [QueueDepth(gpu_type="CPU", jobs=1, oldest_s=1.0)]


def families() -> Mapping[str, Metric]:
    """Every family of ours by its name, with the labels that it has, in the order of a scrape."""
    with tempfile.TemporaryDirectory() as folder:
        return {family.name: family for family in _collected(Path(folder))}


def labels(family: Metric) -> list[str]:
    """Its labels: from a sample, or from the metric's definition where nothing has happened yet."""
    found = {label for sample in family.samples for label in sample.labels} - {"le"}
    declared = getattr(metrics.REGISTRY._names_to_collectors.get(family.name), "_labelnames", None)
    return sorted(found) if declared is None else list(declared)


def table() -> str:
    """The metrics as a Markdown table: name, type, labels, meaning."""
    rows = [
        f"| `{shown_name(family)}` | {family.type} | {', '.join(labels(family)) or '-'} | {family.documentation} |\n"
        for family in families().values()
    ]
    return "| name | type | labels | meaning |\n|---|---|---|---|\n" + "".join(rows)


def shown_name(family: Metric) -> str:
    """As a query has it; a histogram without its suffixes."""
    return family.name + (SUFFIXES[family.type][0] if family.type in ("counter", "info") else "")


def _collected(folder: Path) -> Iterator[Metric]:
    slot = Slot(name="cpu0", gpu_type="CPU", devices=(), cpus=(0,))
    health_report = HealthReport(Readiness(), Watchdog())
    health_report.parts = DaemonView(
        host="h",
        snapshot=lambda: DaemonSnapshot(
            slots=((slot, False),), quarantined={}, usable={"CPU": 1}, leases=0, unwritten=0
        ),
        spool=Spool(folder / "spool"),
        disk_spaces=lambda: [DiskSpace(what="x", path=folder, free_bytes=1, floor_bytes=1)],
        warm=dict,
        build_workers=lambda: (0, 0),
        queue_depths=cast("QueueDepthCache", _Depths()),
    )
    for registry in (metrics.REGISTRY, health_report.registry):
        yield from (family for family in registry.collect() if family.name.startswith("kernel_runner"))
