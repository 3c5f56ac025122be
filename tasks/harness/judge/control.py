"""The control process: the judge calls it as it calls the worker, to know what a call costs beside its kernel.

It is forked from the judge before anything of a task or a submission is there. It runs the worker's code with a kernel
of ours, as the judge's user. A submission can neither reach nor recognise it. It can only keep the cores busy, which
the judge sees.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from tasks.harness.shared.arenas import aligned, has_huge_pages
from tasks.harness.shared.cores import judge_core, leave_judge_core
from tasks.harness.shared.values import Packed, pack, tensors_of
from tasks.harness.shared.wire import MAX_FROM_JUDGE_BYTES, Channel, PeerClosed

from .activity import Activity
from .audit import ControlRow, waited
from .faults import Fault
from .snapshots import Pace
from .worker_client import Called, WorkerClient
from .worker_output import Watcher
from .workers import Call

_PR_SET_PDEATHSIG = 1
#: No limit of its own: control calls copy the calls of a case, which are limited.
_MEMORY_BYTES = 1 << 62
#: Calls at the beginning of a row that do not count. They meet colder caches than calls in the middle of a case (up to
#: twice the cost, tens of microseconds). With larger inputs only the first call costs more.
_FIRST = 3
#: Larger inputs are made once for a row: handing them over takes long, and fills the caches anyway. Calls that share
#: smaller ones would follow each other faster than the submission's, and cost less.
_OWN_UP_TO_BYTES = 512 << 10
#: Outputs of a control call are as large as the submission's, since a kernel that writes more leaves colder caches.
#: Above this number of tensors or bytes they are at most as large as the reference's: a submission must not make
#: control calls longer.
_FEW_PARTS = 4
_FEW_BYTES = 64 << 10
#: More bytes would make no difference but to how often their copy stalls (`ControlRow.size_ratio`).
_MOST_BYTES = 8 << 20
#: The worker's processes count as busy beside a control call if they had a core for longer than this.
_BUSY_NS = 20_000
#: A worker that has been told to wait for messages needs a moment to do so, and may not get a core for it once the
#: control process spins on the same one. So much is waited for it before a row.
_SETTLE_NS = 5_000_000


class Control:
    """The control process, as the judge sees it. Close it."""

    def __init__(self, pid: int, sock: socket.socket, core: int) -> None:
        self._pid = pid
        self._core = core
        self._sock = sock
        self._client: WorkerClient | None = None
        #: Time that kernels have taken at least.
        self._kernels_ns = 0
        #: Of the copies of its outputs.
        self.pace = Pace()
        #: Whether inputs are handed over in huge pages here. Then control calls without huge pages do not count: a
        #: submission could fill the memory during control calls, and free it for its own calls.
        self._has_huge_pages = False

    @classmethod
    def start(cls) -> Control | None:
        """Fork it, before this process has threads; None where judge and worker share their only core."""
        core = judge_core()
        if core is None:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pid = os.fork()
        if pid == 0:
            _serve(theirs)
        theirs.close()
        return cls(pid, ours, core)

    @property
    def waiting_cpu_ns(self) -> int:
        """See WorkerClient. Without the time of kernels, which other processes do not make longer."""
        return 0 if self._client is None else self._client.waiting_cpu_ns - self._kernels_ns

    def open(self, *, deadline_ns: int) -> bool:
        """Open its flags and call it until its code is warm; whether calls can go by flags.

        Raises:
            RuntimeError: it does not answer.
        """
        self._client = WorkerClient(self._sock, Watcher(), core=self._core)
        self._client.memory_bytes = _MEMORY_BYTES
        self._client.pace, self._client.is_trusted = self.pace, True
        with _our_fault():
            if not self._client.open_flags(deadline_ns=deadline_ns):
                return False
        self._has_huge_pages = has_huge_pages()
        for nbytes in (64, 64 << 10, 512 << 10):
            self.calls(partial(_ones, nbytes), 4, parts=1, deadline_ns=deadline_ns)
        return True

    def calls(
        self,
        make: Callable[[], Packed],
        count: int,
        *,
        parts: int,
        nbytes: int = 0,
        kernel_ns: int = 0,
        deadline_ns: int,
        beside: Activity | None = None,
    ) -> ControlRow:
        """What up to `count` calls cost beside their kernel, in nanoseconds, after a few that do not count (`_FIRST`).

        Infinity: the call waited for a core. NaN: the worker used one meanwhile. `make` makes the inputs of one call,
        or large ones of all calls (`_OWN_UP_TO_BYTES`), in the same way as for the submission's calls; `parts`,
        `nbytes`: of each output, up to `_MOST_BYTES`; `kernel_ns`: how long the kernel takes at least; `beside`: a
        worker whose processes must be idle meanwhile.

        Raises:
            Fault: time is up.
            RuntimeError: the control process failed, which is not the submission's fault.
        """
        client = self._client
        if client is None:
            raise RuntimeError("the control process has not been opened")
        copied = min(nbytes, _MOST_BYTES)
        each = copied // max(parts, 1)
        capacity = max(parts, 1) * aligned(max(each, 8))

        def ordered() -> Packed:
            packed = make()
            numbers = [{"t": "int", "v": number} for number in (parts, each, kernel_ns)]
            packed.tree = {"t": "tuple", "items": [packed.tree, *numbers]}
            return packed

        costs_ns, stalled = [], 0
        packed = ordered()
        if beside is not None:
            _await_sleep(beside)
        for left in reversed(range(count + (_FIRST if packed.nbytes <= _OWN_UP_TO_BYTES else 1))):
            before = None if beside is None else beside.look()
            with _our_fault():
                called = client.call(packed, output_capacity=capacity, deadline_ns=deadline_ns, ahead=left > 0)
            self._kernels_ns += kernel_ns
            alike = called.by_flags and called.in_huge_pages >= self._has_huge_pages
            undisturbed = False
            if left < count and alike:
                busy_ns = 0 if beside is None else beside.busy_ns(before)
                costs_ns.append(_cost(called, busy_ns))
                undisturbed = not math.isnan(costs_ns[-1])
                stalled += called.stalled and undisturbed
            self.pace.settle(counts=undisturbed)
            if left and packed.nbytes <= _OWN_UP_TO_BYTES:
                packed = ordered()
        with _our_fault():
            client.withdraw_call(deadline_ns=deadline_ns)
        return ControlRow(
            costs_ns=costs_ns, kernel_ns=kernel_ns, stalled=stalled, size_ratio=max(nbytes / max(copied, 1), 1.0)
        )

    def close(self) -> None:
        """End it."""
        if self._client is not None:
            self._client.close()
        self._sock.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _cost(called: Called, busy_ns: int | None) -> float:
    if busy_ns is None or busy_ns > _BUSY_NS:
        return math.nan
    return math.inf if waited(called.delayed_ns, called.outside_ns) else float(called.outside_ns - called.claim_ns)


def _await_sleep(beside: Activity) -> None:
    """Wait until a worker's processes sleep, but not for ever."""
    until_ns = time.monotonic_ns() + _SETTLE_NS
    while time.monotonic_ns() < until_ns:
        look = beside.look()
        if look is None or look.asleep:
            return


class ControlOutputs:
    """How large the outputs of control calls are."""

    def __init__(self) -> None:
        #: Shape of the last call whose reference output was counted, and its tensors and bytes.
        self._asked_for: tuple[object, tuple[int, int]] | None = None

    def like(self, call: Call, *, asked_for: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Tensors and bytes of the output that a control call like one of the submission's should have.

        `asked_for`: of the output that the task asks for. Called once for each shape, and only where the submission
        returns many.
        """
        parts, nbytes = call.parts, call.parts_bytes
        if parts > _FEW_PARTS or nbytes > _FEW_BYTES:
            if self._asked_for is None or self._asked_for[0] != call.shape:
                self._asked_for = call.shape, asked_for()
            most_parts, most_bytes = self._asked_for[1]
            parts, nbytes = min(parts, max(most_parts, _FEW_PARTS)), min(nbytes, max(most_bytes, _FEW_BYTES))
        return parts, nbytes


@contextlib.contextmanager
def _our_fault() -> Iterator[None]:
    """Turn faults of the control process into RuntimeError: no submission caused them. Time limits stay faults."""
    try:
        yield
    except Fault as fault:
        if fault.timed_out:
            raise
        raise RuntimeError(f"the control process failed: {fault.message}") from fault


def read_all(data: tuple[Any, int, int, int]) -> Any:
    """The control kernel: read all of data[0], return data[1] new tensors of data[2] bytes; one alone, or a tuple.

    It takes data[3] nanoseconds at least.
    """
    value, parts, nbytes, kernel_ns = data
    until_ns = time.perf_counter_ns() + kernel_ns
    read = sum(map(_read, tensors_of(value)))
    outputs = tuple(torch.full((max(nbytes // 8, 1),), read) for _ in range(max(parts, 1)))
    while time.perf_counter_ns() < until_ns:
        pass
    return outputs[0] if len(outputs) == 1 else outputs


def _ones(nbytes: int) -> Packed:
    return pack(torch.ones(nbytes, dtype=torch.uint8))


def _read(item: torch.Tensor) -> int:
    whole = torch.empty(0, dtype=torch.uint8).set_(item.untyped_storage())
    return int(whole[: whole.numel() // 8 * 8].view(torch.int64).sum()) & 0xFF


def _serve(sock: socket.socket) -> None:
    """The forked process; does not return."""
    try:
        keep = sock.fileno()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.closerange(0, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
        for _ in range(3):
            os.open(os.devnull, os.O_RDWR)
        leave_judge_core()
        torch.set_num_threads(1)
        from tasks.harness.worker.main import Worker

        channel = Channel(sock, max_bytes=MAX_FROM_JUDGE_BYTES, accept_descriptors=True, wake_fd=None)
        Worker(channel, own_cores=True, kernel=read_all).serve()
    except PeerClosed:
        pass
    finally:
        os._exit(0)
