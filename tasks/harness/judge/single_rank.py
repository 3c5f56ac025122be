"""One worker, one device. The task's functions run in the judge's own process."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tasks.harness.shared.module_values import map_tensors
from tasks.harness.shared.profilers import Capture, Profile
from tasks.harness.shared.values import Packed, Snapshot, pack, signature, tensors_in, tree_signature
from tasks.harness.shared.wire import MAX_FROM_JUDGE_BYTES, MAX_FROM_WORKER_BYTES

from .calibration import CalibrationCall, calibrate, calibrate_device, keeps_turns
from .cases import Value
from .control import Control, ControlOutputs
from .faults import Fault, tampered
from .hand_over import Calibration, DeviceCosts
from .problem import CheckRaised, Problem, TaskFault
from .request import Compiled
from .snapshots import held
from .worker_client import Called, WorkerClient
from .worker_output import Collector
from .workers import Call

#: What the outputs of a batch may take in a message, and the worker's inputs.
_OUTPUTS_MESSAGE_BYTES, _INPUTS_MESSAGE_BYTES = MAX_FROM_WORKER_BYTES // 4, MAX_FROM_JUDGE_BYTES // 4
#: Output tensors of a batch. A device's stream takes about a thousand launches before it makes the host wait.
_BATCH_PARTS = 256
#: The part of a device's free memory that a batch may fill.
_BATCH_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class _Last:
    """Inputs and output of the last call, or of each call of a batch."""

    arguments: Sequence[Mapping[str, Value]]
    rng_seed: int | None
    data: Sequence[object]
    outputs: Sequence[Snapshot]
    #: Inputs of one call for the worker, and its output.
    packed: Packed
    called: Called


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
        """See Workers. `await_others`: waits until no other process makes a context; then calls are measured."""
        self._device = device
        why_not = self._client.prepare_device(deadline_ns=deadline_ns)
        if await_others is not None:
            await_others()
        if why_not is None:
            why_not = self._measure_marked_calls(deadline_ns)
        try:
            # Calls by message are bounded, too, over their whole span.
            return self.calibrate(deadline_ns=deadline_ns), why_not or "open"
        except Fault as fault:
            return None, _known_kernel_failed(fault)

    def _measure_marked_calls(self, deadline_ns: int) -> str | None:
        """Measure what calls cost that the judge's own work on the device marks; why there are none."""
        try:
            most_bytes = self._client.memory_bytes // 8
            call = self._calibration_call(deadline_ns)
            costs = calibrate_device(call, most_bytes=most_bytes)
            with self._client.holding_device() as hold_ns:
                keeps = keeps_turns(call, costs, hold_ns=hold_ns)
        except Fault as fault:
            why_not = _known_kernel_failed(fault)
            self._client.give_up_device()
            return why_not
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
        """See Workers. Control calls do not count: other processes make them longer."""
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
        most_bytes = self._client.memory_bytes // 8
        message = calibrate(self._calibration_call(deadline_ns, by_message=True), most_bytes=most_bytes)
        return Calibration(message=message, device=self._device_costs)

    def control(
        self, cases: Iterator[Mapping[str, Value]], count: int, *, like: Call, deadline_ns: int
    ) -> Sequence[float] | None:
        """See Workers."""
        if self._control is None or not self._controlled:
            return None
        self._last = None
        self._client.withdraw_call(deadline_ns=deadline_ns)

        def make_one() -> Packed:
            data = self._problem.generate(next(cases), rng_seed=None)
            return self._problem.pack(data, memory_bytes=self._client.memory_bytes)

        def make() -> Packed:
            return Packed.together([make_one() for _ in range(like.calls)]) if like.calls > 1 else make_one()

        def asked_for() -> tuple[int, int]:
            expected = self._problem.expected(self._problem.generate(next(cases), rng_seed=None))
            # Without a reference no tensors, and the bytes of the inputs.
            return (0, like.input_bytes // like.calls) if expected is None else tensors_in(expected)

        parts, nbytes = self._control_outputs.like(like, asked_for=asked_for)
        return self._control.calls(
            make,
            count,
            parts=parts,
            nbytes=nbytes,
            deadline_ns=deadline_ns,
            beside=self._client.activity,
        )

    def _calibration_call(self, deadline_ns: int, *, by_message: bool = False) -> CalibrationCall:
        def call(value: tuple[object, ...], output_capacity: int) -> tuple[int, int]:
            called = self._client.call(
                pack(map_tensors(value, lambda item: item.to(self._device))),
                output_capacity=output_capacity,
                deadline_ns=deadline_ns,
                by_message=by_message,
            )
            return called.outside_ns, called.claim_ns

        return call

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
        return self._call([arguments], rng_seed, output_capacities, deadline_ns)

    def call_batch(
        self,
        cases: Sequence[Mapping[str, Value]],
        *,
        rng_seed: int | None,
        output_capacities: tuple[int, ...],
        deadline_ns: int,
    ) -> Call:
        """See Workers."""
        try:
            return self._call(cases, rng_seed, output_capacities, deadline_ns, batch=True)
        except TaskFault as fault:
            # One input did fit.
            if isinstance(fault.__cause__, torch.OutOfMemoryError):
                raise fault.__cause__ from None
            raise

    def batch_capacity(self) -> int:
        """See Workers."""
        last = self._last
        if last is None:
            raise RuntimeError("nothing has been called that a batch could be like")
        each_in, each_out = last.packed.nbytes, last.called.output_bytes
        capacities = [
            self._client.memory_bytes // max(held(each_in, each_out), 1),
            _BATCH_PARTS // max(last.called.parts, 1),
            _OUTPUTS_MESSAGE_BYTES // max(last.called.output.message_bytes, 1),
            _INPUTS_MESSAGE_BYTES // len(json.dumps(last.packed.tree)),
        ]
        if last.packed.device != "cpu" and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch lacks it
            unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            free = torch.cuda.mem_get_info()[0] + unused
            # All inputs are laid out a third time before they are copied to where the worker sees them.
            capacities.append(int(_BATCH_SHARE * free) // max(held(each_in, each_out) + each_in, 1))
        return max(min(capacities), 1)

    def _call(
        self,
        cases: Sequence[Mapping[str, Value]],
        rng_seed: int | None,
        output_capacities: tuple[int, ...],
        deadline_ns: int,
        *,
        batch: bool = False,
    ) -> Call:
        # Before the next inputs are made: both together may not fit into memory.
        self._last = None
        start = time.perf_counter_ns()
        data = [self._problem.generate(arguments, rng_seed=rng_seed) for arguments in cases]
        each = [self._problem.pack(item, memory_bytes=self._client.memory_bytes) for item in data]
        packed = Packed.together(each) if batch else each[0]
        made_ns = time.perf_counter_ns() - start
        called = self._client.call(
            packed, output_capacity=output_capacities[0] if output_capacities else None, deadline_ns=deadline_ns
        )
        outputs = called.output.items() if batch else [called.output]
        if outputs is None or len(outputs) != len(cases):
            raise tampered("a batch without an output for each call")
        self._last = _Last(arguments=cases, rng_seed=rng_seed, data=data, outputs=outputs, packed=packed, called=called)
        shapes = {tree_signature(item) for item in each}
        shape = shapes.pop() if len(shapes) == 1 else frozenset(shapes)
        return Call.of(called, packed, shape=shape, made_ns=made_ns, calls=len(cases))

    def check(self, *, deadline_ns: int) -> str:  # noqa: ARG002 the check is not interrupted
        """See Workers."""
        last = self._last
        if last is None:
            raise RuntimeError("nothing has been called")
        messages = [self._check(last, index) for index in range(len(last.outputs))]
        return messages[0]

    def _check(self, last: _Last, index: int) -> str:
        """Check one output; the message of check_implementation."""
        output = last.outputs[index]
        where = f"call {index + 1} of {len(last.outputs)} in a batch: " if last.packed.batch else ""
        if output.opaque is not None:
            text = f"{where}custom_kernel returned a {output.opaque}, which cannot be read as tensor data"
            raise Fault("wrong_answer", text)
        try:
            good, message = self._problem.check(last.data[index], output.value())
        except CheckRaised as raised:
            if self._same_structure(last, index):
                raise TaskFault(f"the task's check_implementation raised {raised} (reference.py)") from raised
            raise Fault("wrong_answer", f"{where}the output could not be compared: {raised}") from raised
        if not good:
            raise Fault("wrong_answer", where + message)
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

    def _same_structure(self, last: _Last, index: int) -> bool:
        """Whether an output looks like the reference's; without a reference, whether it holds tensors at all."""
        expected = self._problem.expected(self._problem.generate(last.arguments[index], rng_seed=last.rng_seed))
        if expected is None:
            return last.outputs[index].has_tensor
        return signature(expected) == last.outputs[index].signature


def _known_kernel_failed(fault: Fault) -> str:
    """Why calls of a device are not bounded. A kernel of ours that fails does not mean that nothing can run."""
    if fault.gone:
        raise fault
    return f"a known kernel failed: {fault.message}"
