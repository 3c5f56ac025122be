"""One worker, one device. The task's functions run in the judge's own process."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from tasks.harness.shared.profilers import Capture, Profile
from tasks.harness.shared.values import Packed, Snapshot, map_tensors, pack, signature, tensors_in, tree_signature

from .audit import ControlRow
from .calibration import CalibrationCall, calibrate, calibrate_device, keeps_turns
from .cases import Value
from .control import Control, ControlOutputs
from .faults import Fault
from .hand_over import Calibration, Costs, DeviceCosts
from .problem import CheckRaised, Problem, TaskFault
from .request import Compiled
from .worker_client import WorkerClient
from .worker_output import Collector
from .workers import Call


@dataclass(frozen=True, kw_only=True)
class _Last:
    """Inputs and output of the last call."""

    arguments: Mapping[str, Value]
    rng_seed: int | None
    data: object
    output: Snapshot


class SingleRank:
    """One worker; see `Workers`."""

    def __init__(self, sock: socket.socket, collector: Collector, *, control: Control | None = None) -> None:
        self._client = WorkerClient(sock, collector)
        self._control = control
        self._problem: Problem
        self._last: _Last | None = None
        #: Where calibration kernels run.
        self._device = "cpu"
        #: What calls cost that the judge's own work on the device marks; None: there are no such calls.
        self._device_costs: DeviceCosts | None = None
        self._control_outputs = ControlOutputs()
        #: Whether `warm_up` has run, and whether control calls bound the times.
        self._warm = False
        self._controlled = False

    def warm_up(self, *, deadline_ns: int) -> None:
        """Open the flags and make the first calls, which cost more than others, before any request is there.

        Raises:
            Fault: the worker did not answer.
        """
        if self._warm:
            return
        self._warm = True
        if self._control is None or not self._client.open_flags(deadline_ns=deadline_ns):
            self._end_control()
            return
        self._client.pace = self._control.pace
        self._client.warm_up(deadline_ns=deadline_ns)
        if not self._control.open(deadline_ns=deadline_ns):
            self._end_control()

    def give_away(self) -> tuple[WorkerClient, Control | None]:
        """The worker and the control process, for a judge that does not ask through this object.

        None: control calls would say nothing, since calls do not go by flags.
        """
        return self._client, self._control if self._client.calls_by_flags else None

    @property
    def core(self) -> int | None:
        """The judge's own core; None: there is none."""
        return self._client.core

    def _end_control(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def limit(self, memory_bytes: int, device: str = "cpu") -> None:
        """Limit the bytes that the tensors of a case may fill, and say where `probe` lets a kernel run."""
        self._client.memory_bytes = memory_bytes
        self._device = device

    def begin_device(self, *, flush_bytes: int | None, deadline_ns: int, tried: bool) -> None:
        """See Workers."""
        self._client.begin_device(flush_bytes=flush_bytes, deadline_ns=deadline_ns, tried=tried)

    def prepare_device(
        self, device: str, *, deadline_ns: int, await_others: Callable[[], None] | None = None
    ) -> tuple[Calibration | None, str]:
        """See Workers.

        `await_others`: of a group. It waits until no other process makes a context; then calls are measured, those by
        message only if all are made so.
        """
        self._device = device
        why_not = self._client.prepare_device(deadline_ns=deadline_ns)
        if await_others is not None:
            await_others()
        if why_not is None:
            why_not = self._measure_marked_calls(deadline_ns)
        if why_not is None and await_others is not None:
            return Calibration(message=None, device=self._device_costs), "open"
        try:
            # Calls by message are bounded, too, over their whole span.
            return self.calibrate(deadline_ns=deadline_ns), why_not or "open"
        except Fault as fault:
            return None, _known_kernel_failed(fault)

    def _measure_marked_calls(self, deadline_ns: int) -> str | None:
        """Measure what calls cost that the judge's own work on the device marks; why there are none."""
        try:
            most_bytes = self._client.memory_bytes // 8
            call = _calibration_call(self._client, self._device, deadline_ns)
            costs = calibrate_device(call, most_bytes=most_bytes)
            with self._client.holding_device() as hold_ns:
                keeps = keeps_turns(call, costs, hold_ns=hold_ns)
        except Fault as fault:
            why_not = _known_kernel_failed(fault)
            self._client.give_up_device()
            return why_not
        except torch.OutOfMemoryError as error:
            # Also of a driver that shares no memory: what is missing otherwise, calls by message miss, too.
            self._client.give_up_device()
            return str(error)
        if not keeps:
            self._client.give_up_device()
            return "kernels of two processes run at once on this device (is a multi-process service at work?)"
        self._device_costs = costs
        return None

    @property
    def waited_ns(self) -> int:
        """See Workers."""
        return self._client.waited_ns

    @property
    def judging_ns(self) -> int:
        """See Workers. Of control calls kernels alone count: other processes make the rest longer."""
        control_ns = 0 if self._control is None else self._control.waiting_cpu_ns
        return time.thread_time_ns() - self._client.waiting_cpu_ns - control_ns

    def prepare(self, files: Mapping[str, str], directory: Path, *, deadline_ns: int) -> None:  # noqa: ARG002 it waits for no one
        """See Workers."""
        Problem.unpack(files, directory)
        self._problem = Problem.load(directory)

    def probe(self, *, deadline_ns: int) -> int:
        """See Workers."""
        value = (0, torch.zeros(64, dtype=torch.uint8), 64)
        called = self._client.call(
            pack(map_tensors(value, lambda item: item.to(self._device))), output_capacity=64, deadline_ns=deadline_ns
        )
        if not torch.equal(torch.as_tensor(called.output.value()).cpu(), value[1]):
            raise RuntimeError("the worker's answer to a known kernel is not what it was given")
        return called.outside_ns

    def calibrate(self, *, deadline_ns: int) -> Calibration | None:
        """See Workers."""
        if self._device == "cpu":
            self.warm_up(deadline_ns=deadline_ns)
            self._controlled = self._control is not None
            if self._controlled:
                return None
        message = costs_by_message(self._client, self._device, deadline_ns=deadline_ns)
        return Calibration(message=message, device=self._device_costs)

    def control(
        self, cases: Iterator[Mapping[str, Value]], count: int, *, like: Call, kernel_ns: int, deadline_ns: int
    ) -> ControlRow | None:
        """See Workers."""
        if self._control is None or not self._controlled:
            return None
        self._last = None
        self._client.withdraw_call(deadline_ns=deadline_ns)

        def make() -> Packed:
            data = self._problem.generate(next(cases), rng_seed=None)
            return self._problem.pack(data, memory_bytes=self._client.memory_bytes)

        def asked_for() -> tuple[int, int]:
            expected = self._problem.expected(self._problem.generate(next(cases), rng_seed=None))
            # Without a reference no tensors, and the bytes of the inputs.
            return (0, like.input_bytes) if expected is None else tensors_in(expected)

        parts, nbytes = self._control_outputs.like(like, asked_for=asked_for)
        return self._control.calls(
            make,
            count,
            parts=parts,
            nbytes=nbytes,
            kernel_ns=kernel_ns,
            deadline_ns=deadline_ns,
            beside=self._client.activity,
        )

    def load(
        self, files: Mapping[str, str], submission: str, *, deadline_ns: int, compiled: Compiled | None = None
    ) -> None:
        """See Workers."""
        self._client.load(files, submission, deadline_ns=deadline_ns, compiled=compiled)

    def settle(self, *, deadline_ns: int) -> None:
        """Do nothing: a single worker is ready whenever it answers."""

    def flush(self, *, deadline_ns: int) -> None:
        """See Workers."""
        self._client.flush(deadline_ns=deadline_ns)

    def call(
        self,
        arguments: Mapping[str, Value],
        *,
        rng_seed: int | None,
        output_capacities: tuple[int, ...],
        deadline_ns: int,
    ) -> Call:
        """See Workers."""
        # Before the next inputs are made: both together may not fit into memory.
        self._last = None
        start = time.perf_counter_ns()
        data = self._problem.generate(arguments, rng_seed=rng_seed)
        packed = self._problem.pack(data, memory_bytes=self._client.memory_bytes)
        made_ns = time.perf_counter_ns() - start
        called = self._client.call(
            packed, output_capacity=output_capacities[0] if output_capacities else None, deadline_ns=deadline_ns
        )
        self._last = _Last(arguments=arguments, rng_seed=rng_seed, data=data, output=called.output)
        return Call.of(called, packed, shape=tree_signature(packed), made_ns=made_ns)

    def check(self, *, deadline_ns: int) -> str:  # noqa: ARG002 the check is not interrupted
        """See Workers."""
        last = self._last
        if last is None:
            raise RuntimeError("nothing has been called")
        if last.output.opaque is not None:
            text = f"custom_kernel returned a {last.output.opaque}, which cannot be read as tensor data"
            raise Fault("wrong_answer", text)
        try:
            good, message = self._problem.check(last.data, last.output.value())
        except CheckRaised as raised:
            if self._same_structure(last):
                raise TaskFault(f"the task's check_implementation raised {raised}") from raised
            raise Fault("wrong_answer", f"the output could not be compared: {raised}") from raised
        if not good:
            raise Fault("wrong_answer", message)
        return message

    def profile(
        self, arguments: Mapping[str, Value], *, rng_seed: int | None, capture: Capture | None, deadline_ns: int
    ) -> tuple[Profile, ...]:
        """See Workers."""
        data = self._problem.generate(arguments, rng_seed=rng_seed)
        packed = self._problem.pack(data, memory_bytes=self._client.memory_bytes)
        return (self._client.profile(packed, capture=capture, deadline_ns=deadline_ns),)

    def close(self) -> None:
        """End the control process."""
        self._client.close()
        self._end_control()

    def _same_structure(self, last: _Last) -> bool:
        """Whether the output looks like the reference's; without a reference, whether it holds tensors at all."""
        expected = self._problem.expected(self._problem.generate(last.arguments, rng_seed=last.rng_seed))
        if expected is None:
            return last.output.has_tensor
        return signature(expected) == last.output.signature


def costs_by_message(client: WorkerClient, device: str, *, deadline_ns: int) -> Costs:
    """What calls by message cost, by a worker that has run no submission's code.

    Raises:
        Fault: it failed.
    """
    call = _calibration_call(client, device, deadline_ns, by_message=True)
    return calibrate(call, most_bytes=client.memory_bytes // 8)


def _calibration_call(
    client: WorkerClient, device: str, deadline_ns: int, *, by_message: bool = False
) -> CalibrationCall:
    def call(value: tuple[object, ...], output_capacity: int) -> tuple[int, int]:
        called = client.call(
            pack(map_tensors(value, lambda item: item.to(device))),
            output_capacity=output_capacity,
            deadline_ns=deadline_ns,
            by_message=by_message,
        )
        return called.outside_ns, called.claim_ns

    return call


def _known_kernel_failed(fault: Fault) -> str:
    """Why calls of a device are not bounded. A kernel of ours that fails does not mean that nothing can run."""
    if fault.gone:
        raise fault
    return f"a known kernel failed: {fault.message}"
