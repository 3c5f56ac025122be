"""An endpoint of OpenAI's chat protocol on this machine, which answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = (("content-type", "application/json"),)


@dataclass(frozen=True)
class Reply:
    """What the endpoint sends."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = JSON
    #: More bytes are announced than are sent.
    missing_bytes: int = 0


def completion(text: str | None) -> dict[str, Any]:
    """A completion with this text."""
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


@contextmanager
def endpoint(answer: Callable[[str], Reply]) -> Iterator[str]:
    """Serve on a free port; the address. `answer` gets a request's messages as JSON, in a thread for each."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = answer(json.dumps(body["messages"]))
            self.send_response_only(reply.status)
            for name, value in reply.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body) + reply.missing_bytes))
            self.send_header("connection", "close")
            # A client need not read to the end.
            with suppress(OSError):
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 1024

        def handle_error(self, *_: object) -> None:
            """A client may be killed at any moment."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()
