"""Structured logs: JSON lines for the journal, readable lines on a terminal, the job's ids on every line.

Owns how a log line looks and what may never be in one: passwords, tokens, seeds and source code. Must not decide what
is worth logging. `configure` is called once per process by the command line; everyone else calls `get_logger`, and the
thread that runs a job wraps it in `job_context`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, Literal, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from runner.base.database_address import mask_password
from runner.base.model import FinalJob, Job, SubmissionJob, ValidationJob
from runner.base.safe import printable

#: Values under these keys are never written, whatever they hold.
_FORBIDDEN: Final = frozenset({"code", "password", "request", "secret", "secret_seed", "seed", "task", "token"})
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_MAX_VALUE_CHARS: Final = 8000
#: The least time between two log lines of one kind.
LOG_INTERVAL_S: Final = 60.0


def configure(log_format: Literal["auto", "json", "console"], level: str, stream: TextIO | None = None) -> None:
    """Set up logging for this process.

    Lines go to `stream` (standard error by default). `auto` is `console` on a terminal and `json` elsewhere. Libraries
    that use the standard `logging` are logged from WARNING upwards, through the same lines, warnings once a minute.
    """
    stream = sys.stderr if stream is None else stream
    console = log_format == "console" or (log_format == "auto" and stream.isatty())
    # Neither renderer may show local variables with a traceback: they hold submissions and connection strings.
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        )
        if console
        else structlog.processors.JSONRenderer(default=str)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if console else "iso", utc=not console),
            structlog.processors.format_exc_info,
            _clean,
            *([_harmless] if console else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Lines(stream))),
        # Loggers are made at import time, before this function runs, and tests configure more than once.
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    logging.captureWarnings(capture=True)


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry `component=name`."""
    return cast("FilteringBoundLogger", structlog.get_logger(component=name))


def job_context(job: Job, **more: str) -> AbstractContextManager[None]:
    """Put the ids of a job on every line this thread logs; `run` is job and attempt in one word, to search for."""
    board = {"leaderboard": job.leaderboard} if isinstance(job, SubmissionJob | ValidationJob) else {}
    return structlog.contextvars.bound_contextvars(
        job=job.id,
        submission=job.validates if isinstance(job, ValidationJob | FinalJob) else job.submission_id,
        attempt=job.attempt,
        run=f"{job.id}.{job.attempt}",
        gpu_type=job.gpu_type,
        mode=str(job.mode),
        **board,
        **more,
    )


class LogRateLimit:
    """At most one line of a kind a minute. Threadsafe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: When a line of a kind was last due, and how many were not since.
        self._kinds: dict[str, tuple[float, int]] = {}

    def due(self, kind: str) -> int | None:
        """How many lines of this kind were left out since the last one; None: leave this one out, too."""
        now_s = self._clock()
        with self._lock:
            said_s, left_out = self._kinds.get(kind, (float("-inf"), 0))
            if now_s - said_s < LOG_INTERVAL_S:
                self._kinds[kind] = (said_s, left_out + 1)
                return None
            self._kinds[kind] = (now_s, 0)
        return left_out


class _Lines:
    """A stream that loses lines which cannot be written: a full disk, or a reader that has left, ends no daemon."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


class _Bridge(logging.Handler):
    """Hands the lines of libraries that use the standard `logging` to structlog.

    Warnings of one place in their code once a minute: strangers cause some, such as a web server's of each bad request.
    """

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self._limit = LogRateLimit()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        more: dict[str, int] = {}
        if record.levelno < logging.ERROR:
            # Python's own warnings all come from one place, each once.
            place = text if record.name == "py.warnings" else f"{record.pathname}:{record.lineno}"
            left_out = self._limit.due(place)
            if left_out is None:
                return
            more = {"left_out": left_out} if left_out else {}
        get_logger(record.name).log(record.levelno, text, exc_info=record.exc_info, **more)


def _clean(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask what must not be logged, and cap what is too long for a line."""
    for key, value in event.items():
        event[key] = "[not logged]" if key in _FORBIDDEN else _safe(value)
    return event


def _harmless(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape what would control a terminal; JSON escapes it itself."""
    return {key: printable(value) if isinstance(value, str) else value for key, value in event.items()}


def _safe(value: object) -> object:
    if isinstance(value, str):
        text = mask_password(value)
        if len(text) <= _MAX_VALUE_CHARS:
            return text
        # A traceback says at its end what was wrong.
        half = _MAX_VALUE_CHARS // 2
        return f"{text[:half]}… ({len(text)} characters) …{text[-half:]}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, dict):
        return {key: "[not logged]" if key in _FORBIDDEN else _safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_safe(item) for item in value]
    return value if value is None or isinstance(value, int | float) else _safe(str(value))
