"""The worker's stdout and stderr, and init's word on how the worker ended; drained by a thread.

The judge must never stop reading: a full pipe would block the worker inside a timed call. Text is kept up to a limit
per mode. The rest is counted and dropped. After a flood nothing more is read, and the judge is woken up.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
from dataclasses import dataclass
from typing import Any

from sandbox.protocol import Decoder, FrameError, Reading

from .throttling import Readings

#: Bytes of each stream that are kept per mode.
KEEP_BYTES = 1 << 20
#: The limit of both streams together, over the whole request. Then reading stops (verdict output_limit).
FLOOD_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The worker's output during one mode."""

    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int


@dataclass(frozen=True, kw_only=True)
class WorkerExit:
    """How the worker ended, as init saw it."""

    exit_code: int | None
    signal: int | None
    #: The first rank that ended.
    rank: int = 0


class _Stream:
    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.kept = bytearray()
        self.count = 0
        self.pipe_bytes = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
        os.set_blocking(fd, False)

    def read(self) -> int | None:
        """Read what has arrived: number of bytes, 0 for nothing, None for the end."""
        try:
            data = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            return None
        self.count += len(data)
        self.kept += data[: KEEP_BYTES - len(self.kept)]
        return len(data)

    def take(self) -> tuple[str, int]:
        text = self.kept.decode("utf-8", errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        count, self.count = self.count, 0
        self.kept.clear()
        return text, count


class Watcher:
    """Facts about a worker beside its answers. Here: init says nothing of it, and nobody reads what it writes."""

    #: Readable once something happened that should end any wait for the worker.
    wake_fd: int | None = None
    #: Whether it has written more than the limit.
    flooded = False

    def wait_exit(self, timeout_s: float) -> WorkerExit | None:  # noqa: ARG002 it is not waited for
        """How it ended, if that is known within `timeout_s`."""
        return None


class Collector(Watcher):
    """Drains the worker's streams and init's messages until closed."""

    def __init__(self, *, stdout_fd: int, stderr_fd: int, init_fd: int) -> None:
        self._streams = (_Stream(stdout_fd), _Stream(stderr_fd))
        self._init_fd = init_fd
        self._decoder = Decoder()
        self._total = 0
        self._lock = threading.Lock()
        self._exited = threading.Event()
        #: Ends of earlier workers say nothing of the one that is there now.
        self._current = 0
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._resume_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self.wake_fd: int = os.eventfd(0, os.EFD_CLOEXEC)
        self.worker_exit: WorkerExit | None = None
        #: Readings of the devices, if the daemon sends any.
        self.readings = Readings()
        self._thread = threading.Thread(target=self._drain, name="collector", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def take(self) -> Captured:
        """Output since the last call of this method, including what is still in the pipes."""
        with self._lock:
            for stream in self._streams:
                while not self.flooded and self._read(stream):
                    pass
            (stdout, stdout_bytes), (stderr, stderr_bytes) = (stream.take() for stream in self._streams)
        return Captured(stdout=stdout, stderr=stderr, stdout_bytes=stdout_bytes, stderr_bytes=stderr_bytes)

    def expect_worker(self, number: int) -> None:
        """From now on the worker of this number is there. All before it are dead; what they wrote is dropped."""
        with self._lock:
            self._current = number
            self.flooded = False
            for stream in self._streams:
                while stream.read():
                    pass
                # Only now: a pipe that holds more does not shrink. One may not grow while its user has too many.
                with contextlib.suppress(OSError):
                    fcntl.fcntl(stream.fd, fcntl.F_SETPIPE_SZ, stream.pipe_bytes)
                stream.take()
            self._total = 0
            os.set_blocking(self.wake_fd, False)
            if self.worker_exit is None or self.worker_exit.rank < number:
                self.worker_exit = None
                self._exited.clear()
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self.wake_fd)
        os.eventfd_write(self._resume_fd, 1)

    def wait_exit(self, timeout_s: float) -> WorkerExit | None:
        """How the worker ended, if init says so within `timeout_s`."""
        self._exited.wait(timeout_s)
        return self.worker_exit

    def close(self) -> None:
        """Stop the thread, if it was started."""
        if self._thread.ident is not None:
            os.eventfd_write(self._stop_fd, 1)
            self._thread.join(timeout=5)
        for fd in (self._stop_fd, self._resume_fd, self.wake_fd):
            os.close(fd)

    def _read(self, stream: _Stream) -> int | None:
        count = stream.read()
        self._total += count or 0
        if self._total > FLOOD_BYTES and not self.flooded:
            self.flooded = True
            os.eventfd_write(self.wake_fd, 1)
        return count

    def _drain(self) -> None:
        poll = select.poll()
        streams = {stream.fd: stream for stream in self._streams}
        for fd in (self._stop_fd, self._init_fd, self._resume_fd, *streams):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._stop_fd:
                    return
                if fd == self._resume_fd:
                    os.eventfd_read(fd)
                    # The streams of a worker that flooded were left.
                    for stream_fd in streams:
                        poll.register(stream_fd, select.POLLIN)
                    continue
                if fd == self._init_fd:
                    ended = not self._hear()
                else:
                    with self._lock:
                        # A worker that floods blocks for ever. The judge ends the mode, and init kills it.
                        ended = self.flooded or self._read(streams[fd]) is None
                if ended:
                    poll.unregister(fd)

    def _hear(self) -> bool:
        """Read what init sent; False at the end of its stream."""
        data = os.read(self._init_fd, _CHUNK_BYTES)
        try:
            for message in self._decoder.feed(data):
                self._note(message)
        except FrameError:
            # Init is trusted. A broken frame only loses the worker's exit status.
            return False
        return bool(data)

    def _note(self, message: dict[str, Any]) -> None:
        if message["type"] == "reading":
            self.readings.tell(Reading.from_message(message))
        if message["type"] != "worker_exit":
            return
        code, signal, rank = message.get("exit_code"), message.get("signal"), message.get("rank")
        with self._lock:
            if isinstance(rank, int) and rank < self._current:
                return
            self.worker_exit = WorkerExit(
                exit_code=code if isinstance(code, int) else None,
                signal=signal if isinstance(signal, int) else None,
                rank=rank if isinstance(rank, int) else 0,
            )
            self._exited.set()
            os.eventfd_write(self.wake_fd, 1)


def read_request(fd: int) -> dict[str, Any]:
    """The first frame on a descriptor. Reads no byte after it, since later frames are for the collector.

    Waits without a limit: the judge is started ahead of requests, and init ends it otherwise.

    Raises:
        FrameError: the stream ended, or holds no frame.
    """
    header = _exactly(fd, 4)
    decoder = Decoder()
    messages = list(decoder.feed(header))
    messages += decoder.feed(_exactly(fd, int.from_bytes(header, "big")))
    return messages[0]


def _exactly(fd: int, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = os.read(fd, min(count - len(data), 1 << 20))
        if not piece:
            raise FrameError(f"the request ended after {len(data)} of {count} bytes")
        data += piece
    return bytes(data)
