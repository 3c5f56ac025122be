"""The start and the end of a call as two numbers in shared memory, watched by two spinning cores.

A message costs a hundred microseconds each way, most of it differing from call to call; a number that the other core
sees costs less than one. The judge makes the page and seals it. What stands in it decides nothing: a worker that says
too early that it has finished has its output read too early, one that begins before it may has no inputs.

Both sides use it. Stores of one core are seen in order by the other on x86-64; on processors that may reorder them, the
system calls between arming and release, and the message that follows the end, order what matters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from .arenas import Arena

# places of 8 bytes; in cache lines of their own
_RELEASED, _FINISHED, _WITHDRAWN, _ENQUEUED, _PARTS = 0, 8, 16, 24, 32
#: Bytes of the shared memory, and the tensors that an output may have: each is two numbers there.
FLAGS_BYTES = 64 << 10
MAX_PARTS = (FLAGS_BYTES // 8 - _PARTS - 1) // 2
#: Where a device looks and writes: the lower half of a number, in bytes from the page's beginning.
RELEASED_AT, FINISHED_AT = 8 * _RELEASED, 8 * _FINISHED
#: Looks between two looks at the clock.
_LOOKS = 32


class CallFlags:
    """Shared numbers. Calls are numbered from 1, each number is used once."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._words = arena.words()

    @classmethod
    def create(cls) -> CallFlags:
        """New ones; their descriptor is `fd`."""
        return cls(Arena.create(FLAGS_BYTES))

    @property
    def fd(self) -> int:
        """What the worker maps."""
        return self._arena.fd

    def close(self) -> None:
        """Close the descriptor; what is mapped stays."""
        self._arena.close()

    def release(self, call: int) -> None:
        """The judge's: the call may begin, its inputs are there."""
        self._words[_RELEASED] = call

    def withdraw(self, call: int) -> None:
        """The judge's: the call will not be made."""
        self._words[_WITHDRAWN] = call

    def withdrawn(self, call: int) -> bool:
        """Whether the call will not be made."""
        return bool(self._words[_WITHDRAWN] == call)

    def finish(self, call: int) -> None:
        """The worker's: the output is where it belongs, or there is none."""
        self._words[_FINISHED] = call

    def deliver(self, parts: Sequence[tuple[int, int]]) -> None:
        """The worker's, before it finishes: address and bytes of each tensor of the output, in its own memory.

        Raises:
            ValueError: there are too many.
        """
        if len(parts) > MAX_PARTS:
            raise ValueError(f"custom_kernel returned {len(parts)} tensors, at most {MAX_PARTS} can be handed back")
        words, at = self._words, _PARTS + 1
        for address, nbytes in parts:
            words[at], words[at + 1] = address, nbytes
            at += 2
        words[_PARTS] = len(parts)

    def delivered(self) -> list[tuple[int, int]]:
        """The judge's: what the worker says there; numbers to be checked."""
        count = min(self._words[_PARTS], MAX_PARTS)
        numbers = self._words[_PARTS + 1 : _PARTS + 1 + 2 * count].tolist()
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def enqueue(self, call: int) -> None:
        """The worker's, on a device: all that the call is has been enqueued."""
        self._words[_ENQUEUED] = call

    def enqueued(self, call: int, *, spin_ns: int) -> bool:
        """Whether all that the call is has been enqueued, looking for so long."""
        return self._equals(_ENQUEUED, call, spin_ns)

    def released(self, call: int, *, spin_ns: int) -> bool:
        """Whether the call may begin, looking for so long, or until it is withdrawn."""
        return self._equals(_RELEASED, call, spin_ns)

    def finished(self, call: int, *, spin_ns: int) -> bool:
        """Whether the call has ended, looking for so long."""
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
