"""The judge's side of the conversation with the worker: hand over inputs, clock the call, take a copy of the output.

Everything the worker says is checked here; whatever goes wrong on its side becomes a `Fault` with a verdict and a
sentence. Called by the judge and by nothing else.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from .arenas import Arena
from .clock import Calibration, HandOver
from .cores import judge_core, on_core
from .output import Collector
from .values import Packed, Region, Snapshot, pack, regions
from .wire import (
    MAX_FAILURE_CHARS,
    MAX_FROM_WORKER_BYTES,
    MAX_TABLE_BYTES,
    MAX_TRACE_BYTES,
    Channel,
    Interrupted,
    PeerClosed,
    WireViolation,
    encode,
)

#: How long the judge asks the socket again and again for "done" before it sleeps; only on a core of its own.
SPIN_NS = 5_000_000
#: Positions that are read the moment a call is done and compared with the full copy made after it.
_PROBES = 64
#: What the judge may take to understand an answer before it reads the output; what it takes beyond this counts as the
#: call's time, or a description of thousands of parts would buy time to compute in.
_LOOK_NS = 1_000_000
#: Longer than the judge spins.
_LONG_KERNEL_NS = 6_000_000
_CALIBRATION_BYTES = 4 << 20
_CLAIM_LIMIT_NS = 1 << 62


class Fault(Exception):
    """The submission failed in a way that has a verdict.

    `gone` says that the worker cannot be asked anything any more; `timed_out` and `output_limit` mirror the step's
    fields. `trace` holds the frames of the submission's own code.
    """

    def __init__(self, verdict: str, message: str, *, gone: bool = False, trace: str = "") -> None:
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.gone = gone
        self.trace = trace
        self.timed_out = verdict == "time_limit"
        self.output_limit = verdict == "output_limit"


@dataclass(frozen=True, kw_only=True)
class Called:
    """One finished call."""

    output: Snapshot
    claim_ns: int
    outside_ns: int
    tensors: int
    input_bytes: int
    #: Bytes the worker copied into the judge's memory (0 when it returned an input buffer).
    output_bytes: int


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """The worker's profile; text of the submission's process, not evidence."""

    table: bytes
    trace: bytes


class Peer:
    """The worker as the judge sees it."""

    def __init__(self, sock: socket.socket, collector: Collector, *, memory_bytes: int) -> None:
        self._collector = collector
        self._memory_bytes = memory_bytes
        self._channel = Channel(
            sock, max_bytes=MAX_FROM_WORKER_BYTES, accept_descriptors=False, wake_fd=collector.wake_fd
        )
        self._core = judge_core()
        self._spin_ns = SPIN_NS if self._core is not None else 0
        #: Time the worker was waited for, by whom it concerns: a mode that ran out of time says where it went.
        self.waited_ns = 0

    def load(self, files: Mapping[str, str], submission: str, *, deadline_ns: int) -> None:
        """Give the worker its files and let it import the submission.

        Raises:
            Fault: see the class.
        """
        self._ask({"op": "load", "files": dict(files), "submission": submission}, "loaded", deadline_ns)

    def flush(self, *, deadline_ns: int) -> None:
        """Let the worker write out what it has buffered for stdout and stderr.

        Raises:
            Fault: see the class.
        """
        self._ask({"op": "flush"}, "flushed", deadline_ns)

    def call(self, packed: Packed, *, room_bytes: int, deadline_ns: int) -> Called:
        """One call on fresh memory. `room_bytes` is the size of the output, as far as it is known.

        Raises:
            Fault: see the class.
        """
        placed, size = packed.place()
        with Arena.create(size) as inputs, Arena.create(room_bytes) as room:
            packed.write(inputs, placed)
            room.poison()
            message = {
                "op": "call",
                "tree": packed.tree,
                "storages": [[place.offset, place.nbytes] for place in placed],
                "size": inputs.size,
            }
            encoded = encode(message, descriptors=1)
            with on_core(self._core):
                self._ask({"op": "arm", "size": room.size}, "armed", deadline_ns, (room.fd,))
                # The inputs reach the worker with this message and not before: nothing can be computed early.
                start = time.perf_counter_ns()
                self._send(encoded, (inputs.fd,), deadline_ns)
                answer = self._receive(deadline_ns, self._spin_ns)
                end = time.perf_counter_ns()
            output = room
            if answer["op"] == "need":
                output = Arena.create(self._needed(answer, packed))
                try:
                    output.poison()
                    self._send(encode({"op": "room", "size": output.size}, descriptors=1), (output.fd,), deadline_ns)
                    answer = self._receive(deadline_ns, self._spin_ns)
                    end = time.perf_counter_ns()
                finally:
                    output.close()
            self._expect(answer, "done")
            found, copies, looked = self._snapshot(answer, packed, inputs, output, placed)
        claim = answer.get("claim_ns")
        if type(claim) is not int or not 0 <= claim < _CLAIM_LIMIT_NS:
            raise self._tampered("a claimed time that is no count of nanoseconds")
        return Called(
            output=Snapshot(answer["tree"], copies),
            claim_ns=claim,
            outside_ns=end - start + max(0, looked - end - _LOOK_NS),
            tensors=packed.tensors,
            input_bytes=packed.nbytes,
            output_bytes=sum(region.nbytes for region in found if not region.inputs),
        )

    def profile(self, packed: Packed, *, deadline_ns: int) -> Profiled:
        """Run the kernel once under torch's profiler.

        Raises:
            Fault: see the class.
        """
        placed, size = packed.place()
        with Arena.create(size) as inputs, Arena.create(MAX_TABLE_BYTES + MAX_TRACE_BYTES) as room:
            packed.write(inputs, placed)
            message = {
                "op": "profile",
                "tree": packed.tree,
                "storages": [[place.offset, place.nbytes] for place in placed],
                "size": inputs.size,
                "room": room.size,
            }
            self._send(encode(message, descriptors=2), (inputs.fd, room.fd), deadline_ns)
            answer = self._receive(deadline_ns)
            self._expect(answer, "profiled")
            table, trace = answer.get("table"), answer.get("trace")
            if not _within(table, MAX_TABLE_BYTES) or not _within(trace, MAX_TRACE_BYTES):
                raise self._tampered("a profile of an impossible size")
            data = _copy(room, table + trace)
        return Profiled(table=data[:table], trace=data[table:])

    def calibrate(self, *, deadline_ns: int) -> Calibration:
        """Measure the hand-over with known kernels; only meaningful before a submission is loaded.

        Raises:
            Fault: see the class.
        """
        volume = max(4096, min(_CALIBRATION_BYTES, self._memory_bytes // 8))
        small, large = torch.zeros(64, dtype=torch.uint8), torch.zeros(volume, dtype=torch.uint8)
        many = [torch.zeros(64, dtype=torch.uint8) for _ in range(8)]

        def measure(count: int, value: object, room: int) -> list[float]:
            samples = []
            for _ in range(count):
                called = self.call(pack(value), room_bytes=room, deadline_ns=deadline_ns)
                samples.append(float(called.outside_ns - called.claim_ns))
            return samples

        measure(4, (0, small, 64), 64)
        short = HandOver.of(measure(24, (0, small, 64), 64))
        long = HandOver.of(measure(6, (_LONG_KERNEL_NS, small, 64), 64))
        crowd = HandOver.of(measure(8, (0, small, 64, many), 64))
        inward = HandOver.of(measure(6, (0, large, 64), 64)[1:])
        both = HandOver.of(measure(6, (0, large, volume), volume)[1:])
        return Calibration(
            short=short,
            long=long,
            long_kernel_ns=_LONG_KERNEL_NS,
            per_tensor_ns=max(crowd.p25_ns - short.p25_ns, 0.0) / len(many),
            per_input_byte_ns=max(inward.p25_ns - short.p25_ns, 0.0) / volume,
            per_output_byte_ns=max(both.p25_ns - inward.p25_ns, 0.0) / volume,
        )

    def _needed(self, answer: Mapping[str, Any], packed: Packed) -> int:
        nbytes = answer.get("bytes")
        if not _within(nbytes, 1 << 48):
            raise self._tampered("an output of an impossible size")
        if _held(packed.nbytes, nbytes) > self._memory_bytes:
            raise Fault(
                "memory_limit",
                f"custom_kernel returned {nbytes} bytes; with {packed.nbytes} bytes of inputs that is more than the "
                f"{self._memory_bytes} bytes this case may hold",
                gone=True,
            )
        return int(nbytes)

    def _snapshot(
        self,
        answer: Mapping[str, Any],
        packed: Packed,
        inputs: Arena,
        room: Arena,
        placed: Any,
    ) -> tuple[list[Region], list[torch.Tensor], int]:
        """The tensors' places, copies of them, and when the copies began: until then they could still be written."""
        try:
            found = regions(answer.get("tree"), placed=placed, output_bytes=room.size)
        except WireViolation as error:
            raise self._tampered(str(error)) from error
        # Many descriptors of the same bytes must not multiply into more memory than the case may hold.
        if _held(packed.nbytes, sum(region.nbytes for region in found)) > self._memory_bytes:
            raise Fault("memory_limit", "custom_kernel returned more bytes than this case may hold", gone=True)
        views = [(inputs if region.inputs else room).bytes_at(region.start, region.nbytes) for region in found]
        probes = [_positions(view.numel()) for view in views]
        seen = [view[probe] for view, probe in zip(views, probes, strict=True)]
        looked = time.perf_counter_ns()
        copies = [view.clone() for view in views]
        for copy, probe, early in zip(copies, probes, seen, strict=True):
            if not torch.equal(copy[probe], early):
                raise Fault(
                    "rejected", "the output was still being written after custom_kernel had returned", gone=True
                )
        return found, copies, looked

    def _ask(
        self, message: Mapping[str, Any], expected: str, deadline_ns: int, descriptors: tuple[int, ...] = ()
    ) -> dict[str, Any]:
        self._send(encode(message, descriptors=len(descriptors)), descriptors, deadline_ns)
        answer = self._receive(deadline_ns)
        self._expect(answer, expected)
        return answer

    def _send(self, message: bytes, descriptors: tuple[int, ...], deadline_ns: int) -> None:
        try:
            self._channel.send(message, descriptors, deadline_ns=deadline_ns)
        except PeerClosed as error:
            raise self._died() from error
        except Interrupted as error:
            raise self._interrupted() from error
        except TimeoutError as error:
            raise _too_late() from error

    def _receive(self, deadline_ns: int, spin_ns: int = 0) -> dict[str, Any]:
        start = time.monotonic_ns()
        try:
            message, _ = self._channel.receive(deadline_ns=deadline_ns, spin_ns=spin_ns)
        except PeerClosed as error:
            raise self._died() from error
        except Interrupted as error:
            raise self._interrupted() from error
        except TimeoutError as error:
            raise _too_late() from error
        except WireViolation as error:
            raise self._tampered(str(error)) from error
        finally:
            self.waited_ns += time.monotonic_ns() - start
        if self._collector.flooded:
            raise self._interrupted()
        return message

    def _expect(self, answer: Mapping[str, Any], expected: str) -> None:
        if answer["op"] == expected:
            return
        if answer["op"] != "failed":
            raise self._tampered(f"an answer {str(answer['op'])[:40]!r} where {expected!r} was due")
        kind, text, trace = answer.get("kind"), answer.get("text"), answer.get("trace")
        if kind not in ("compile_error", "runtime_error") or not isinstance(text, str) or not isinstance(trace, str):
            raise self._tampered("a failure that does not parse")
        # The worker's own code cuts them; a report must not grow with what a rewritten one sends.
        raise Fault(kind, text[:MAX_FAILURE_CHARS], trace=trace[:MAX_FAILURE_CHARS])

    def _interrupted(self) -> Fault:
        if self._collector.flooded:
            return Fault("output_limit", "the submission wrote more than 64 MiB to stdout and stderr", gone=True)
        return self._died()

    def _died(self) -> Fault:
        ending = self._collector.wait_exit(2.0)
        if self._collector.flooded:
            return self._interrupted()
        if ending is None:
            how = "the process closed its channel to the judge"
        elif ending.signal is not None:
            how = f"the process was killed by signal {ending.signal} ({_signal_name(ending.signal)})"
        else:
            how = f"the process ended with exit code {ending.exit_code}"
        return Fault("runtime_error", how, gone=True)

    @staticmethod
    def _tampered(what: str) -> Fault:
        # The worker's own code sends no such thing, and a submission cannot reach the channel by accident.
        return Fault("rejected", f"the submission wrote to the harness's own channel ({what})", gone=True)


def _too_late() -> Fault:
    return Fault("time_limit", "the time limit passed", gone=True)


def _within(value: object, limit: int) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= limit


def _held(input_bytes: int, output_bytes: int) -> int:
    """Bytes held at once: inputs and their shared copy; the worker's output, its shared copy and the judge's own."""
    return 2 * input_bytes + 3 * output_bytes


def _copy(arena: Arena, nbytes: int) -> bytes:
    return arena.bytes_at(0, nbytes).numpy().tobytes() if nbytes else b""


def _positions(nbytes: int) -> torch.Tensor:
    """Secret positions among `nbytes` bytes."""
    if nbytes == 0:
        return torch.empty(0, dtype=torch.int64)
    random = torch.frombuffer(bytearray(os.urandom(8 * _PROBES)), dtype=torch.int64)
    return random.remainder(nbytes)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
