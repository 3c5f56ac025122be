"""One running container and its conversation: `ready`, request, report, end; in some, further requests and reports.

Owns the stream and the time limits. Knows the engine only as three functions (kill, ended, remove). Everything that
comes out of a container is bounded in size and checked in form, and stays untrusted.
"""

from __future__ import annotations

import itertools
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from sandbox import protocol
from sandbox.errors import EngineRefused, EngineUnavailable, ProtocolError
from sandbox.host.attach import STDERR, Attachment
from sandbox.host.build_archive import BuildArchive, JoinedArchives
from sandbox.host.cgroup import CgroupReader, Counters
from sandbox.spec import Ending, Outcome, SandboxSpec

#: Longest delay until a cancellation takes effect.
CANCEL_POLL_S = 0.1
#: Interval between two readings of the counters; the last reading counts if the container dies without an `end` frame.
COUNTERS_POLL_S = 1.0
#: Init exits at once when its stdin closes. A killed container may take longer: the kernel frees its memory first.
EXIT_PATIENCE_S = 10.0
STDERR_BYTES = 8 << 10
#: A turn of the conversation that took longer was this process's standing still, as when it was stopped by a debugger.
STOOD_STILL_S = 5.0

OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class EndState:
    """The engine's record of a container that has ended."""

    exit_code: int
    oom_killed: bool


@dataclass(frozen=True, kw_only=True)
class ContainerReport:
    """A container's report and how the container ended. Complete only if it ended `completed` and `ok` is true."""

    steps: tuple[protocol.StepResult, ...]
    #: Name, media type and data of each.
    artifacts: tuple[tuple[str, str, bytes], ...]
    #: From the `end` frame; None without one. False: the harness itself failed, and `message` says how.
    ok: bool | None
    message: str | None
    #: From the `end` frame: what of the author's ended the judge's process, if anything did.
    author_exit: protocol.AuthorExit | None = None
    outcome: Outcome
    #: The container as checked when it started, before its first request (`sandbox.policy.hardening.attested`).
    attested: Mapping[str, Any]
    #: Whether it is complete, and no limit of the container was met.
    is_clean: bool = False


@dataclass(kw_only=True)
class _ReceivedReport:
    """What has arrived so far."""

    decoder: protocol.Decoder
    #: Whether the preload has run, on other cores than the container is to have.
    imported: bool = False
    facts: Mapping[str, Any] | None = None
    #: Whether the judge waits for its request, with everything imported.
    prepared: bool = False
    steps: list[protocol.StepResult] = field(default_factory=list)
    artifacts: list[tuple[str, str, bytes]] = field(default_factory=list)
    end: protocol.End | None = None
    on_progress: OnProgress | None = None
    #: None: no build archive was requested.
    archive: BuildArchive | None = None

    def feed(self, data: bytes) -> None:
        """Take in a piece of the container's stdout.

        Raises:
            FrameError: the protocol does not allow this here.
        """
        for message in self.decoder.feed(data):
            kind = message["type"]
            if self.end is not None:
                raise protocol.FrameError(f"a {kind!r} frame after 'end'")
            if kind == "imported" and self.facts is None:
                self.imported = True
                continue
            if kind != "end" and (kind == "ready") != (self.facts is None):
                raise protocol.FrameError(f"a {kind!r} frame {'before' if self.facts is None else 'after'} 'ready'")
            self._take(kind, message)

    def _take(self, kind: str, message: dict[str, Any]) -> None:
        match kind:
            case "ready":
                ready = protocol.Ready.from_message(message)
                if ready.protocol != protocol.VERSION:
                    raise protocol.FrameError(f"'ready' has protocol {ready.protocol}, expected {protocol.VERSION}")
                self.facts = ready.facts
            case "prepared":
                self.prepared = True
            case "progress":
                progress = protocol.Progress.from_message(message)
                if self.on_progress is not None:
                    self.on_progress(progress.phase[:100], progress.done, progress.total)
            case "step":
                self.steps.append(protocol.StepResult.from_message(message))
            case "artifact":
                artifact = protocol.Artifact.from_message(message)
                self.artifacts.append((artifact.name[:255], artifact.media_type[:100], artifact.data))
            case "archive" if self.archive is not None:
                self.archive.take(protocol.ArchivePiece.from_message(message))
            case "end":
                self.end = protocol.End.from_message(message)
            case _:
                raise protocol.FrameError(f"a frame of type {kind!r}, which the protocol does not know")


class _Meter:
    """Watches a container's CPU time, and whether it is frozen.

    Reads the other counters too, in case it dies without an `end` frame.
    """

    def __init__(self, counters: CgroupReader, *, cpu_s: float) -> None:
        self._counters = counters
        # The submission is not charged for the CPU time before its request.
        self._before_ns = counters.read().cpu_ns
        self._allowed_ns = cpu_s * 1e9
        self._next_s = time.monotonic() + COUNTERS_POLL_S
        #: Whether the CPU time exceeds the limit; False where it cannot be read.
        self.used_up = False
        self.is_frozen = False

    def turn(self, now_s: float, *, late: bool) -> None:
        """Read, if it is time for that, or the container is late."""
        if now_s < self._next_s and not late:
            return
        self._next_s = now_s + COUNTERS_POLL_S
        used_ns = self._counters.read().cpu_ns
        self.used_up = (
            used_ns is not None and self._before_ns is not None and used_ns - self._before_ns > self._allowed_ns
        )
        self.is_frozen = self._counters.is_frozen()


class _Clock:
    """The time that a request may take. While this process stands still, the container's report waits to be read."""

    def __init__(self, wall_s: float) -> None:
        self._turned_s = time.monotonic()
        self.deadline_s = self._turned_s + wall_s

    def turn(self) -> float:
        """The time of another turn of the conversation."""
        now = time.monotonic()
        if now - self._turned_s > STOOD_STILL_S:
            self.deadline_s += now - self._turned_s
        self._turned_s = now
        return now


class _Outgoing:
    """Frames to be sent, with one of them in memory at a time."""

    def __init__(self, frames: Iterator[bytes], messages: deque[bytes]) -> None:
        self._frames = frames
        self._messages = messages
        self._rest = memoryview(b"")

    def __bool__(self) -> bool:
        if not self._rest:
            # The request and its archive are sent before other messages.
            frame = next(self._frames, b"") or (self._messages.popleft() if self._messages else b"")
            self._rest = memoryview(frame)
        return bool(self._rest)

    def send(self, attachment: Attachment) -> None:
        """Send what the connection takes now."""
        if self:
            self._rest = self._rest[attachment.write(self._rest) :]


class Container:
    """One container for one request, or for several. Use it as a context manager, or call `close`. Not thread-safe."""

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 the engine's word
        spec: SandboxSpec,
        attachment: Attachment,
        counters: CgroupReader,
        kill: Callable[[], None],
        ended: Callable[[float], EndState | None],
        remove: Callable[[], None],
    ) -> None:
        self.id = id
        self.spec = spec
        #: The engine sets it after it has checked that the container matches its spec.
        self.attested: Mapping[str, Any] = {}
        self._attachment = attachment
        self._counters = counters
        self._kill = kill
        self._ended = ended
        self._remove = remove
        self._stderr = b""
        self._received = _ReceivedReport(decoder=protocol.Decoder(max_total_bytes=spec.limits.report_bytes))
        #: Requests that it has had.
        self.requests = 0
        #: Whether it can take a request: it had none, or is to stay open, and no limit of it was met.
        self.is_open = True
        self._closed = False
        #: Whether its output ended while it was waited for.
        self._ended_early = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def facts(self) -> Mapping[str, Any]:
        """What init observes of its container.

        Raises:
            ProtocolError: no `ready` frame has arrived.
        """
        if self._received.facts is None:
            raise ProtocolError(f"container {self.id[:12]}: no 'ready' yet")
        return self._received.facts

    def wait_imported(self, timeout_s: float) -> None:
        """Wait until the preload has run on other cores. The engine calls this at most once.

        Raises:
            ProtocolError: as `wait_ready`.
        """
        self._wait_or_raise(lambda: self._received.imported, timeout_s, "'imported'")

    def wait_ready(self, timeout_s: float) -> None:
        """Wait for the `ready` frame. The engine calls this once.

        Raises:
            ProtocolError: another frame arrived, the container ended, or nothing arrived in time.
        """
        self._wait_or_raise(lambda: self._received.facts is not None, timeout_s, "'ready'")

    def _wait_or_raise(self, done: Callable[[], bool], timeout_s: float, awaited: str) -> None:
        if self._wait(done, time.monotonic() + timeout_s):
            return
        if self._received.end is not None:
            why = f"the container's init gave up: {self._received.end.message}"
        elif self._ended_early:
            end = self._ended(EXIT_PATIENCE_S)
            why = f"its output ended before {awaited}, and the engine does not say why{self._stderr_note()}"
            if end is not None:
                python = f"is {self.spec.python!r} a Python 3.11 or newer in image {self.spec.image[:19]}?"
                why = f"ended before {awaited} with exit code {end.exit_code}{self._stderr_note()}; {python}"
        else:
            why = f"no {awaited} within {timeout_s:.0f} s{self._stderr_note()}"
        raise ProtocolError(f"container {self.id[:12]}: {why}")

    def wait_prepared(self, timeout_s: float, *, stop: Callable[[], bool]) -> bool:
        """Wait until everything is imported and nothing runs in the container; False: it is not, or `stop` says so.

        A container for steps of a task's own has nothing to prepare.

        Raises:
            ProtocolError: a frame arrived that the protocol does not allow.
        """
        deadline = time.monotonic() + timeout_s
        return self.spec.boot.kind != "pair" or self._wait(lambda: self._received.prepared, deadline, stop=stop)

    def _wait(self, done: Callable[[], bool], deadline: float, *, stop: Callable[[], bool] = lambda: False) -> bool:
        """Read until something is so; False: the report or the stream has ended, the time is up, or `stop` says so."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._attachment, selectors.EVENT_READ)
            while not done():
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._received.end is not None or self._ended_early or stop():
                    return False
                if selector.select(min(left_s, CANCEL_POLL_S)):
                    try:
                        self._ended_early = not self._receive()
                    except protocol.FrameError as error:
                        raise ProtocolError(f"container {self.id[:12]}: {error}{self._stderr_note()}") from error
        return True

    def run(
        self,
        request: protocol.Request,
        *,
        on_progress: OnProgress | None,
        cancel: threading.Event,
        wall_s: float | None = None,
        archive: BuildArchive | JoinedArchives | None = None,
        receive: BuildArchive | None = None,
        messages: deque[bytes] | None = None,
    ) -> ContainerReport:
        """Send the request and receive the report.

        `wall_s`: time limit; None: the spec's limits.wall_s. A container that was started before its job was known gets
        the job's limit here. `cancel`: takes effect within CANCEL_POLL_S. `archive`: sent after the request, which
        announces its size. `receive`: gets the archive that comes back; it is complete only if the report is.
        `messages`: frames that other threads append while the request is worked on, sent within CANCEL_POLL_S.
        After a `stay_open` request a further one may follow within a minute, if the report was complete and no limit of
        the container was met.

        Whatever happens in the container is an ending in the outcome, not an exception. Exceptions of `on_progress`
        propagate.

        Raises:
            EngineRefused: the request is too large for a frame, or this container has had its request.
        """
        if not self.is_open or self._closed:
            raise EngineRefused(f"container {self.id[:12]}: it takes no further request, it has had {self.requests}")
        self.is_open = False
        self.requests += 1
        earlier = Counters()
        if self.requests > 1:
            earlier = self._counters.read()
            decoder = protocol.Decoder(max_total_bytes=self.spec.limits.report_bytes)
            self._received = _ReceivedReport(decoder=decoder, facts=self._received.facts)
        try:
            frames = iter([protocol.encode(request.to_message())])
        except protocol.FrameError as error:
            raise EngineRefused(f"container {self.id[:12]}: the request does not fit: {error}") from error
        self._received.on_progress, self._received.archive = on_progress, receive
        if receive is not None:
            # It comes beside the report, a third larger as base64.
            self._received.decoder.allow(protocol.MAX_ARCHIVE_BYTES * 3 // 2)
        frames = frames if archive is None else itertools.chain(frames, archive.frames())
        outgoing = _Outgoing(frames, deque() if messages is None else messages)
        started_ns = time.monotonic_ns()
        ending, detail = self._converse(outgoing, cancel, self.spec.limits.wall_s if wall_s is None else wall_s)
        counters = self._counters.read()
        last = self._received.end
        completed = ending is Ending.COMPLETED and last is not None and last.ok
        is_clean = completed and counters.oom_kills == 0 and not counters.pids_denied
        if ending is Ending.COMPLETED:
            self.is_open = is_clean and isinstance(request, protocol.PairRequest) and request.stay_open
            if not self.is_open:
                self._attachment.close_stdin()
        else:
            # Close the stream first: the engine does not finish a kill while unread output waits for us.
            self._attachment.close()
            detail = self._force_end(detail)
        wall_ns = time.monotonic_ns() - started_ns
        # After a complete report and complete counters, the exit adds nothing, so it is not waited for.
        complete = ending is Ending.COMPLETED and counters.oom_kills is not None
        end = None if complete else self._ended(EXIT_PATIENCE_S)
        oom_kills = counters.oom_kills
        if end is not None and end.oom_killed:
            # The kernel may have killed the last process after the counter was read.
            oom_kills = max(oom_kills or 0, 1)
        return ContainerReport(
            steps=tuple(self._received.steps),
            artifacts=tuple(self._received.artifacts),
            ok=None if last is None else last.ok,
            message=None if last is None else last.message,
            author_exit=None if last is None else last.author_exit,
            outcome=Outcome(
                ending=ending,
                exit_code=None if end is None else end.exit_code,
                oom_kills=oom_kills,
                host_short=bool(counters.host_short),
                pids_denied=counters.pids_denied,
                peak_memory_bytes=_peak_since(earlier.peak_memory_bytes, counters.peak_memory_bytes),
                cpu_ns=None if counters.cpu_ns is None else counters.cpu_ns - (earlier.cpu_ns or 0),
                wall_ns=wall_ns,
                detail=detail,
            ),
            attested=self.attested,
            is_clean=is_clean,
        )

    def _force_end(self, detail: str | None) -> str | None:
        """Kill the container; return the sentence for the log, longer if the kill failed.

        A failed kill does not change how the run ended: the submission must not be evaluated again on other hosts
        because it cannot be killed here. `close` reports that the container still exists.
        """
        try:
            self._kill()
        except (EngineRefused, EngineUnavailable) as error:
            return f"{detail or 'container ' + self.id[:12]}; it could not be killed: {error}"
        return detail

    def _converse(self, outgoing: _Outgoing, cancel: threading.Event, wall_s: float) -> tuple[Ending, str | None]:
        """Write and read until the report ends or must be ended; return the ending and a sentence."""
        clock = _Clock(wall_s)
        limits = self.spec.limits
        # Default: all its CPUs busy for the whole time. More than that means that the cpuset does not hold it.
        cpu_s = limits.cpu_s if limits.cpu_s is not None else wall_s * len(limits.cpus) + COUNTERS_POLL_S
        meter = _Meter(self._counters, cpu_s=cpu_s)
        with selectors.DefaultSelector() as selector:
            selector.register(self._attachment, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while True:
                now = clock.turn()
                late = now >= clock.deadline_s
                meter.turn(now, late=late)
                stop = self._reason_to_stop(
                    cancel, meter, late_s=wall_s if late else None, cpu_s=cpu_s if meter.used_up else None
                )
                if stop is not None:
                    return stop
                if outgoing:
                    selector.modify(self._attachment, selectors.EVENT_READ | selectors.EVENT_WRITE)
                for _, events in selector.select(min(CANCEL_POLL_S, clock.deadline_s - now)):
                    if events & selectors.EVENT_WRITE:
                        outgoing.send(self._attachment)
                    if not outgoing:
                        selector.modify(self._attachment, selectors.EVENT_READ)
                    if not events & selectors.EVENT_READ:
                        continue
                    try:
                        more = self._receive()
                    except (protocol.FrameError, ProtocolError) as error:
                        return Ending.BAD_REPORT, self._detail(str(error))
                    if not more and self._received.end is None:
                        return Ending.DIED, self._detail("the container ended without an 'end' frame")

    def _reason_to_stop(
        self, cancel: threading.Event, meter: _Meter, *, late_s: float | None, cpu_s: float | None
    ) -> tuple[Ending, str | None] | None:
        """The ending, if there is a reason to stop; else None."""
        if self._received.end is not None:
            return Ending.COMPLETED, self._detail(None)
        if cancel.is_set():
            return Ending.CANCELLED, self._detail("cancelled")
        if meter.is_frozen:
            # A container can neither do that to itself nor end it. Its clocks and limits go on meanwhile.
            return Ending.DIED, self._detail("the container was paused from outside (docker pause)")
        if late_s is not None:
            return Ending.DEADLINE, self._detail(f"killed after {late_s:g} s of wall time")
        if cpu_s is not None:
            return Ending.CPU_TIME, self._detail(f"killed after {cpu_s:g} s of processor time")
        return None

    def _receive(self) -> bool:
        """Read what has arrived; False at the end of the stream."""
        pieces = self._attachment.read()
        if pieces is None:
            return False
        for stream, data in pieces:
            if stream == STDERR:
                self._stderr = (self._stderr + data)[-STDERR_BYTES:]
            else:
                self._received.feed(data)
        return True

    def _stderr_note(self) -> str:
        text = self._stderr.decode("utf-8", "replace").strip()
        return f"; its stderr: {text}" if text else ""

    def _detail(self, text: str | None) -> str | None:
        note = self._stderr_note()
        if text is None:
            return note.removeprefix("; ") or None
        return f"container {self.id[:12]}: {text}{note}"

    def close(self) -> None:
        """Kill and remove the container, and check that it is gone. Idempotent; every wait is bounded.

        Raises:
            SandboxError: it still exists; its devices must not be used until it is gone.
        """
        if self._closed:
            return
        self._attachment.close()
        self._counters.close()
        self._remove()
        self._closed = True


def _peak_since(earlier: int | None, now: int | None) -> int | None:
    """The peak of a request; None: not known, since an earlier request of the container had a higher one."""
    return now if earlier is None or now is None or now > earlier else None
