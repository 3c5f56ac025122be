"""An OpenTelemetry collector over HTTP that keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What it was sent, and what it answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        #: Spans as the protocol has them, in order.
        self.spans: list[Any] = []
        #: The status of its answers; spans that it refuses are not kept.
        self.status = 200

    def names(self) -> list[str]:
        """The names of all spans."""
        return [span.name for span in self.spans]


@contextmanager
def collector() -> Iterator[Collector]:
    """One that listens on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if kept.status == 200 and self.path == "/v1/traces":
                request = ExportTraceServiceRequest.FromString(body)
                kept.spans += [s for r in request.resource_spans for c in r.scope_spans for s in c.spans]
            self.send_response(kept.status if self.path == "/v1/traces" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
