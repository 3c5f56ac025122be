"""What the gateway counts, for Prometheus; in a registry of its own, which the daemon does not have."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "kernel_runner_gateway_requests", "Requests answered, by status.", ["status"], registry=self.registry
        )
        self._seconds = Histogram(
            "kernel_runner_gateway_request_seconds",
            "Time to the end of an answer that is no stream.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
            registry=self.registry,
        )
        self.streams = Gauge("kernel_runner_gateway_streams", "Open streams of events.", registry=self.registry)
        self.submitted = Counter("kernel_runner_gateway_submissions", "Submissions stored.", registry=self.registry)
        self.limited = Counter(
            "kernel_runner_gateway_limited", "Requests refused by a limit of the gateway.", registry=self.registry
        )
        self.listening = Gauge(
            "kernel_runner_gateway_listening",
            "1: events of the database arrive; 0: only polling.",
            registry=self.registry,
        )

    def answered(self, status: int, seconds: float | None) -> None:
        """Count one answer, and its time in seconds; None: it was a stream."""
        self._requests.labels(str(status)).inc()
        if seconds is not None:
            self._seconds.observe(seconds)

    def text(self) -> bytes:
        """All of them as Prometheus reads them."""
        return generate_latest(self.registry)
