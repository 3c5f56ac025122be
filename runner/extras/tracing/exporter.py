"""Follows the jobs that end, and sends their spans by OTLP over HTTP.

What a collector did not take is sent again. Jobs are read again for a while, since a transaction that began earlier may
commit later; those that were sent are left out. A new process begins at the moment it is told, so nothing is stored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from runner.base.errors import DatabaseUnavailableError
from runner.base.logs import get_logger
from runner.base.retry import Backoff
from runner.extras.tracing.spans import Span, spans_of
from runner.store.records import EndedJob

_log = get_logger(__name__)

#: Jobs of one query.
PAGE: Final = 200
#: How far back jobs are read again: longer than a commit of results takes.
OVERLAP: Final = timedelta(seconds=60)
#: The longest pause after a failure.
_CAP_S: Final = 30.0


class Jobs(Protocol):
    """Where ended jobs come from: `runner.store.Store`."""

    def ended_jobs(self, *, after: tuple[datetime, int], limit: int) -> Sequence[EndedJob]:
        """The first jobs that have ended after one."""
        ...


class Exporter:
    """Sends the spans of jobs that have ended since a moment. Close it."""

    def __init__(self, endpoint: str | None, *, since: datetime) -> None:
        """`endpoint`: address of a collector, e.g. `http://localhost:4318`; None: the OTEL_ variables say it."""
        self._otlp = OTLPSpanExporter() if endpoint is None else OTLPSpanExporter(endpoint=_traces_url(endpoint))
        self._since = since
        self._sent: dict[tuple[int, int], datetime] = {}
        self._resource = Resource.create({SERVICE_NAME: "kernel-runner"})
        self._scope = InstrumentationScope("kernel-runner")

    def export(self, jobs: Jobs) -> int | None:
        """Send what is new; how many jobs that were. None: the collector did not take them.

        Raises:
            DatabaseUnavailableError: the database is away.
        """
        after, count = (self._since, 0), 0
        while True:
            page = jobs.ended_jobs(after=after, limit=PAGE)
            new = [job for job in page if (job.job_id, job.attempt) not in self._sent]
            spans = [self._readable(span) for job in new for span in spans_of(job)]
            if spans and self._otlp.export(spans) is not SpanExportResult.SUCCESS:
                return None
            self._sent |= {(job.job_id, job.attempt): job.finished_at for job in new}
            count += len(new)
            if len(page) < PAGE:
                break
            after = page[-1].finished_at, page[-1].job_id
        if self._sent:
            self._since = max(self._since, max(self._sent.values()) - OVERLAP)
            self._sent = {key: at for key, at in self._sent.items() if at >= self._since}
        return count

    def close(self) -> None:
        """End its connection."""
        self._otlp.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        def context(span_id: int) -> SpanContext:
            return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        return ReadableSpan(
            name=span.name,
            context=context(span.span_id),
            parent=None if span.parent_id is None else context(span.parent_id),
            resource=self._resource,
            attributes=span.attributes,
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def follow(
    exporter: Exporter, jobs: Jobs, *, every_s: float, stop: threading.Event, told: Callable[[int], None]
) -> None:
    """Export until `stop` is set; `told` gets the number of jobs whenever there were some."""
    backoff = Backoff(cap_s=_CAP_S)
    while not stop.is_set():
        try:
            count = exporter.export(jobs)
        except DatabaseUnavailableError as error:
            _log.warning("database_away_traces_wait", error=str(error))
            backoff.wait(stop)
            continue
        if count is None:
            _log.warning("spans_not_exported")
            backoff.wait(stop)
            continue
        backoff.reset()
        if count:
            told(count)
        if count < PAGE:
            stop.wait(every_s)


def _traces_url(endpoint: str) -> str:
    """The address of traces at a collector, whose own address has no path (OTLP specification, OTLP/HTTP)."""
    return f"{endpoint.rstrip('/')}/v1/traces"
