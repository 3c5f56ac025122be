"""The judge's side of the conversation with one worker: hand over inputs, clock the call, take a copy of the output.

Everything the worker says is checked here; whatever goes wrong on its side becomes a `Fault` with a verdict and a
sentence. Called by `solo` and by nothing else.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .arenas import Arena
from .cores import judge_core, on_core
from .faults import died, expect, flooded, tampered, too_late
from .output import Collector
from .snapshots import claimed, needed, take, within
from .values import Packed, Snapshot
from .wire import (
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
#: What the judge may take to understand an answer before it reads the output; what it takes beyond this counts as the
#: call's time, or a description of thousands of parts would buy time to compute in.
LOOK_NS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Called:
    """One finished call."""

    output: Snapshot
    claim_ns: int
    outside_ns: int
    #: Bytes the worker copied into the judge's memory (0 when it returned an input buffer).
    output_bytes: int


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """A worker's profile; text of the submission's process, not evidence."""

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
            encoded = encode({"op": "call", **packed.message(placed, inputs.size)}, descriptors=1)
            with on_core(self._core):
                self._ask({"op": "arm", "size": room.size}, "armed", deadline_ns, (room.fd,))
                # The inputs reach the worker with this message and not before: nothing can be computed early.
                start = time.perf_counter_ns()
                self._send(encoded, (inputs.fd,), deadline_ns)
                answer = self._receive(deadline_ns, self._spin_ns)
                end = time.perf_counter_ns()
            output = room
            if answer["op"] == "need":
                nbytes = needed(answer, input_bytes=packed.nbytes, memory_bytes=self._memory_bytes)
                output = Arena.create(nbytes)
                try:
                    output.poison()
                    self._send(encode({"op": "room", "size": output.size}, descriptors=1), (output.fd,), deadline_ns)
                    answer = self._receive(deadline_ns, self._spin_ns)
                    end = time.perf_counter_ns()
                finally:
                    output.close()
            expect(answer, "done")
            taken = take(
                answer.get("tree"),
                inputs=inputs,
                placed=placed,
                room=output,
                input_bytes=packed.nbytes,
                memory_bytes=self._memory_bytes,
            )
        return Called(
            output=taken.output,
            claim_ns=claimed(answer),
            outside_ns=end - start + max(0, taken.looked_ns - end - LOOK_NS),
            output_bytes=taken.output_bytes,
        )

    def profile(self, packed: Packed, *, deadline_ns: int) -> Profiled:
        """Run the kernel once under torch's profiler.

        Raises:
            Fault: see the class.
        """
        placed, size = packed.place()
        with Arena.create(size) as inputs, Arena.create(PROFILE_BYTES) as room:
            packed.write(inputs, placed)
            opened = {"op": "open", **packed.message(placed, inputs.size)}
            self._ask(opened, "opened", deadline_ns, (inputs.fd,))
            message = {"op": "profile", "room": room.size}
            return profile_of(self._ask(message, "profiled", deadline_ns, (room.fd,)), room)

    def _ask(
        self, message: Mapping[str, Any], expected: str, deadline_ns: int, descriptors: tuple[int, ...] = ()
    ) -> dict[str, Any]:
        self._send(encode(message, descriptors=len(descriptors)), descriptors, deadline_ns)
        answer = self._receive(deadline_ns)
        expect(answer, expected)
        return answer

    def _send(self, message: bytes, descriptors: tuple[int, ...], deadline_ns: int) -> None:
        try:
            self._channel.send(message, descriptors, deadline_ns=deadline_ns)
        except (PeerClosed, Interrupted) as error:
            raise died(self._collector) from error
        except TimeoutError as error:
            raise too_late() from error

    def _receive(self, deadline_ns: int, spin_ns: int = 0) -> dict[str, Any]:
        start = time.monotonic_ns()
        try:
            message, _ = self._channel.receive(deadline_ns=deadline_ns, spin_ns=spin_ns)
        except (PeerClosed, Interrupted) as error:
            raise died(self._collector) from error
        except TimeoutError as error:
            raise too_late() from error
        except WireViolation as error:
            raise tampered(str(error)) from error
        finally:
            self.waited_ns += time.monotonic_ns() - start
        if self._collector.flooded:
            raise flooded()
        return message


#: Room for a profile's table and trace.
PROFILE_BYTES = MAX_TABLE_BYTES + MAX_TRACE_BYTES


def profile_of(answer: Mapping[str, Any], room: Arena) -> Profiled:
    """A worker's profile, read from the room it was given.

    Raises:
        Fault: its sizes are impossible.
    """
    table, trace = answer.get("table"), answer.get("trace")
    if not within(table, MAX_TABLE_BYTES) or not within(trace, MAX_TRACE_BYTES):
        raise tampered("a profile of an impossible size")
    data = room.bytes_at(0, table + trace).numpy().tobytes()
    return Profiled(table=data[:table], trace=data[table:])
