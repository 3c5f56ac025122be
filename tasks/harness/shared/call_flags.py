"""Start and end of a call, and of its dry run, as numbers in shared memory: one core writes, the other spins on them.

A message costs a hundred microseconds each way, and most of that differs from call to call. A number that the other
core sees costs less than one microsecond. The judge makes the page and seals it. The numbers decide nothing. If a
worker says too early that it has finished, its output is read too early. If it begins too early, it has no inputs.

All that a worker says of an output of a known layout (`values.Layout`) is an address for each tensor and its claim.
They are on the page before the end is. An output of another layout is described in a message, which ends the call.

One core must see the stores of another core in order, as on x86-64 (`KEEPS_ORDER`).
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence

from .arenas import Arena

#: Whether the stores of one core reach another in order.
KEEPS_ORDER = platform.machine() in ("x86_64", "AMD64")
# Places of 8 bytes, each in a cache line of its own.
_RELEASED = 0
_FINISHED = 8
_WITHDRAWN = 16
_DRY_ASKED = 24
_DRY_ENDED = 32
_OUTPUT = 40
#: From the last place on: how many addresses there are, the claim, the addresses.
_CLAIM = _OUTPUT + 1
_ADDRESSES = _OUTPUT + 2
#: In place of the number of addresses.
_IN_A_MESSAGE = (1 << 64) - 1
#: Bytes of the shared memory.
FLAGS_BYTES = 64 << 10
#: Tensors that an output may have.
MAX_PARTS = FLAGS_BYTES // 8 - _ADDRESSES
#: All that a worker says on the page, by its place; `addresses` begin there.
WORKER_WORDS = {
    "end of the dry run": _DRY_ENDED,
    "addresses": _ADDRESSES,
    "claim": _CLAIM,
    "number of addresses": _OUTPUT,
    "end": _FINISHED,
}
#: Offsets that a device reads and writes: the lower half of a number, in bytes from the beginning of the page.
RELEASED_AT = 8 * _RELEASED
FINISHED_AT = 8 * _FINISHED
#: Bytes of the output of a dry run.
DRY_BYTES = 64
#: Reads of a number between two reads of the clock.
_LOOKS = 32


class CallFlags:
    """The shared numbers. Calls are numbered from 1, and each number is used once."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._words = arena.words()

    @classmethod
    def create(cls) -> CallFlags:
        """New flags; `fd` is their descriptor."""
        return cls(Arena.create(FLAGS_BYTES))

    @property
    def fd(self) -> int:
        """The descriptor that the worker maps."""
        return self._arena.fd

    @property
    def address(self) -> int:
        """Where they lie in this process."""
        return self._arena.addresses.start

    def close(self) -> None:
        """Close the descriptor. The mapping stays."""
        self._arena.close()

    def ask_dry_run(self, call: int) -> None:
        """Judge: the call is about to begin; try the hand-over."""
        self._words[_DRY_ASKED] = call

    def dry_run_asked(self, call: int, *, spin_ns: int) -> bool:
        """Worker: whether the hand-over is to be tried; spins for at most `spin_ns`, or until the call is withdrawn."""
        return self._equals(_DRY_ASKED, call, spin_ns)

    def end_dry_run(self, call: int) -> None:
        """Worker: the hand-over has been tried, and it waits for the release."""
        self._words[_DRY_ENDED] = call

    def dry_run_ended(self, call: int, *, spin_ns: int) -> bool:
        """Judge: whether the hand-over has been tried; spins for at most `spin_ns`."""
        return self._equals(_DRY_ENDED, call, spin_ns)

    def release(self, call: int) -> None:
        """Judge: the call may begin, its inputs are there."""
        self._words[_RELEASED] = call

    def withdraw(self, call: int) -> None:
        """Judge: the call will not be made."""
        self._words[_WITHDRAWN] = call

    def withdrawn(self, call: int) -> bool:
        """Whether the call will not be made."""
        return bool(self._words[_WITHDRAWN] == call)

    def finish(self, call: int) -> None:
        """Worker: the call has ended; `deliver` or `deliver_in_message` has said where its output is."""
        self._words[_FINISHED] = call

    def deliver(self, addresses: Sequence[int], *, claim_ns: int) -> None:
        """Worker, before `finish`: where each tensor of the output lies in its own memory, and its claim.

        Raises:
            ValueError: there are too many.
        """
        if len(addresses) > MAX_PARTS:
            raise ValueError(f"an output of {len(addresses)} tensors, at most {MAX_PARTS} have room here")
        words = self._words
        for at, address in enumerate(addresses, _ADDRESSES):
            words[at] = address
        words[_CLAIM] = claim_ns
        words[_OUTPUT] = len(addresses)

    def deliver_in_message(self) -> None:
        """Worker, before `finish`: a message follows, which says what became of the call."""
        self._words[_OUTPUT] = _IN_A_MESSAGE

    def delivered(self, count: int) -> tuple[list[int], int] | None:
        """Judge: the addresses of so many tensors, and the claim, by the worker's word.

        None: the worker has said something else. Then only a message of its can end the call.
        """
        words = self._words
        if words[_OUTPUT] != count:
            return None
        return words[_ADDRESSES : _ADDRESSES + count].tolist(), words[_CLAIM]

    def released(self, call: int, *, spin_ns: int) -> bool:
        """Worker: whether the call may begin; spins for at most `spin_ns`, or until the call is withdrawn."""
        return self._equals(_RELEASED, call, spin_ns)

    def finished(self, call: int, *, spin_ns: int) -> bool:
        """Judge: whether the call has ended; spins for at most `spin_ns`."""
        return self._equals(_FINISHED, call, spin_ns)

    def _equals(self, place: int, call: int, spin_ns: int) -> bool:
        words = self._words
        if words[place] == call:
            return True
        until = time.perf_counter_ns() + spin_ns
        while time.perf_counter_ns() < until:
            for _ in range(_LOOKS):
                if words[place] == call:
                    return True
            if words[_WITHDRAWN] == call:
                return False
        return bool(words[place] == call)
