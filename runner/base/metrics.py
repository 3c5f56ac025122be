"""The counters and histograms of this process, in Prometheus' terms.

Owns the names, meanings and buckets of everything that is counted where it happens; docs/log-events.md is made of
them. `runner.daemon.monitoring.health` computes what only a scrape needs (slots, spool, disks). An event costs a lock
and an addition, and cannot fail.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from runner.base.device_facts import Reading
from runner.base.errors import (
    DatabaseUnavailableError,
    DiskFullError,
    EngineUnavailableError,
    EvaluationError,
    HostNameTakenError,
)
from runner.base.model import Device, Job, JobResult, Slot, Verdict

#: What `/metrics` shows; not the library's own, which every library of a process may write into.
REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

#: Seconds: from a claim by notification to an hour in the queue.
_WAITS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
#: Seconds: from an import that is served from the cache to a long profile.
_WORK_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1800, 7200)

_PICKUP = Histogram(
    "kernel_runner_pickup_seconds",
    "From a job's creation, or its start time, to its first claim, on the database's clock.",
    ["gpu_type"],
    buckets=_WAITS_S,
    registry=REGISTRY,
)
_TURNAROUND = Histogram(
    "kernel_runner_turnaround_seconds",
    "From a job's creation, or its start time, to its committed result.",
    ["gpu_type", "mode"],
    buckets=_WORK_S,
    registry=REGISTRY,
)
_PHASE = Histogram(
    "kernel_runner_phase_seconds",
    "What the time of a job went into: start (container, imports, compilation), each kind of run.",
    ["gpu_type", "phase"],
    buckets=_WORK_S,
    registry=REGISTRY,
)
_VERDICTS = Counter(
    "kernel_runner_verdicts_total", "Committed results.", ["gpu_type", "mode", "verdict"], registry=REGISTRY
)
_ATTEMPTS = Counter(
    "kernel_runner_attempts_total",
    "Ended attempts: result, failed, cancelled, lost, shutdown, overtime.",
    ["gpu_type", "outcome"],
    registry=REGISTRY,
)
_FAULTS = Counter(
    "kernel_runner_infrastructure_errors_total",
    "What went wrong through no fault of a submission: engine, sandbox, database, disk, host_name, overtime, "
    "refused_result, bug.",
    ["cause"],
    registry=REGISTRY,
)
_RENEWALS = Counter("kernel_runner_lease_renewals_total", "Leases that a heartbeat renewed.", registry=REGISTRY)
_LOST = Counter(
    "kernel_runner_leases_lost_total",
    "Leases that a heartbeat found in the hands of another daemon.",
    registry=REGISTRY,
)
_HEARTBEAT_FAILURES = Counter(
    "kernel_runner_heartbeat_failures_total", "Heartbeats that the database did not answer.", registry=REGISTRY
)
_POOL = Counter(
    "kernel_runner_containers_taken_total",
    "Containers that evaluations took: warm (it had waited, torch imported) or started for it.",
    ["source"],
    registry=REGISTRY,
)
_BUILDS = Histogram(
    "kernel_runner_build_seconds",
    "Builds ahead of runs, by whether the run can use what was built.",
    ["usable"],
    buckets=_WORK_S,
    registry=REGISTRY,
)
_TEMPERATURE = Gauge(
    "kernel_runner_device_temperature_celsius",
    "At the last look, which is before and after each run.",
    ["slot", "device"],
    registry=REGISTRY,
)
_POWER = Gauge("kernel_runner_device_power_watts", "At the last look.", ["slot", "device"], registry=REGISTRY)
_USED = Gauge("kernel_runner_device_memory_used_bytes", "At the last look.", ["slot", "device"], registry=REGISTRY)
_UNCORRECTED = Gauge(
    "kernel_runner_device_uncorrected_errors",
    "Memory errors since its driver was loaded or it was reset, at the last look.",
    ["slot", "device"],
    registry=REGISTRY,
)
_XIDS = Counter(
    "kernel_runner_device_xids_total",
    "Critical errors that its driver told, without those of programs.",
    ["slot", "device"],
    registry=REGISTRY,
)
_UNREACHABLE = Counter(
    "kernel_runner_device_unreachable_total",
    "Looks that a device did not answer.",
    ["slot", "device"],
    registry=REGISTRY,
)

_CAUSES: Final = {
    EngineUnavailableError: "engine",
    EvaluationError: "sandbox",
    DatabaseUnavailableError: "database",
    DiskFullError: "disk",
    HostNameTakenError: "host_name",
}


#: When the jobs that run here were claimed, on this host's clock. One of an earlier process is not in it.
_CLAIMED_S: Final[dict[tuple[int, int], float]] = {}


@functools.cache
def _one(metric: Any, *labels: str) -> Any:  # noqa: ANN401 - a counter or a histogram
    """What is counted under these labels; the library's own way to it costs as much as counting."""
    return metric.labels(*labels)


def claimed(job: Job) -> None:
    """A slot has begun with a job."""
    _CLAIMED_S[job.key] = time.monotonic()
    if job.attempt == 1:
        _one(_PICKUP, job.gpu_type).observe(_waited_s(job))


def evaluated(job: Job, result: JobResult) -> None:
    """An evaluation has a result."""
    _one(_ATTEMPTS, job.gpu_type, "result").inc()
    _one(_PHASE, job.gpu_type, "start").observe(result.build_ns / 1e9)
    for run in result.runs:
        # profile.0, profile.1, … are one phase.
        phase = run.mode.partition(".")[0]
        _one(_PHASE, job.gpu_type, phase).observe(max(0, run.end_offset_ns - run.start_offset_ns) / 1e9)


def ended(job: Job, outcome: str) -> None:
    """An attempt has ended without a result."""
    _CLAIMED_S.pop(job.key, None)
    _one(_ATTEMPTS, job.gpu_type, outcome).inc()
    if outcome == "overtime":
        _FAULTS.labels("overtime").inc()


def committed(job: Job, verdict: Verdict) -> None:
    """A result is in the database."""
    _one(_VERDICTS, job.gpu_type, job.mode.value, verdict.value).inc()
    claimed_s = _CLAIMED_S.pop(job.key, None)
    if claimed_s is not None:
        _one(_TURNAROUND, job.gpu_type, job.mode.value).observe(_waited_s(job) + time.monotonic() - claimed_s)


def uncommitted(job: Job) -> None:
    """A result will not be: it is too late, or refused."""
    _CLAIMED_S.pop(job.key, None)


def refused(job: Job) -> None:
    """The database does not take a result."""
    uncommitted(job)
    _FAULTS.labels("refused_result").inc()


def fault(error: Exception) -> None:
    """Something went wrong that no submission can cause."""
    _FAULTS.labels(next((cause for kind, cause in _CAUSES.items() if isinstance(error, kind)), "bug")).inc()


def renewed(leases: int) -> None:
    """A heartbeat was answered."""
    _RENEWALS.inc(leases)


def lease_lost() -> None:
    """A heartbeat found that another daemon has the job."""
    _LOST.inc()


def heartbeat_failed() -> None:
    """A heartbeat was not answered."""
    _HEARTBEAT_FAILURES.inc()


def container_taken(*, warm: bool) -> None:
    """An evaluation has its container."""
    _POOL.labels("warm" if warm else "started").inc()


def built(seconds: float, *, usable: bool) -> None:
    """A build has ended."""
    _BUILDS.labels("yes" if usable else "no").observe(seconds)


def inspected(slot: Slot, readings: Sequence[Reading | None], xids: Sequence[int]) -> None:
    """A slot's devices were looked at; None: it did not answer. `xids`: how many Xids of its own each had."""
    for device, reading, count in zip(slot.devices, readings, xids, strict=True):
        labels = (slot.name, device.uuid)
        if reading is None:
            _UNREACHABLE.labels(*labels).inc()
            continue
        for gauge, value in (
            (_TEMPERATURE, reading.temperature_c),
            (_POWER, reading.power_w),
            (_USED, reading.used_bytes),
            (_UNCORRECTED, reading.uncorrected),
        ):
            if value is not None:
                gauge.labels(*labels).set(value)
        _XIDS.labels(*labels).inc(count)


def expect(gpu_types: Iterable[str], devices: Iterable[tuple[Slot, Device]]) -> None:
    """Show these from the start, at zero: a rate over a counter that appears with its first event misses that one."""
    for gpu_type in gpu_types:
        _PICKUP.labels(gpu_type)
        for outcome in ("result", "failed"):
            _ATTEMPTS.labels(gpu_type, outcome)
    for cause in (*_CAUSES.values(), "overtime", "refused_result", "bug"):
        _FAULTS.labels(cause)
    for source in ("warm", "started"):
        _POOL.labels(source)
    for slot, device in devices:
        _XIDS.labels(slot.name, device.uuid)
        _UNREACHABLE.labels(slot.name, device.uuid)


def _waited_s(job: Job) -> float:
    return max(0.0, (job.started_at - job.created_at).total_seconds())
