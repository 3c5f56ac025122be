"""A worker that hosts a module, as the judge orders it: construct, load weights, set the mode, call.

For timed calls it is a `Workers`, so that `TimedCase` and `Benchmark` time modules as they time kernels.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.extras.trainers.inside.shared.module_values import decode_value, encode_value
from tasks.harness.judge.audit import ControlRow
from tasks.harness.judge.cases import Value
from tasks.harness.judge.control import Control, ControlOutputs
from tasks.harness.judge.faults import Fault
from tasks.harness.judge.snapshots import within
from tasks.harness.judge.worker_client import Called, WorkerClient
from tasks.harness.judge.workers import Call
from tasks.harness.shared.values import (
    MAX_DIMENSIONS,
    Packed,
    Unsupported,
    pack,
    tensors_in,
    tensors_of,
    tree_signature,
)

from .clock import Clock
from .reference_module import InvalidReference, Reference, same_bits
from .weights import State

Entries = tuple[tuple[str, tuple[int, ...], str], ...]
#: How long the control process may take for a row of calls.
_PATIENCE_NS = 120_000_000_000
#: What the harness's code takes in the span of a call (`worker.module`, `worker.main`): to answer; to seed a generator;
#: to describe an output of plain tensors, each; and any other output, and each of its tensors.
_ANSWER_NS = 2_000.0
_SEED_NS = {"python": 10_000.0, "torch": 3_000.0, "cuda": 10_000.0, "numpy": 5_000.0}
_TENSOR_NS = 1_500.0
_NESTED_NS = 30_000.0
_NESTED_TENSOR_NS = 15_000.0
#: No size that a worker names is above this.
_MOST_SIZE = 1 << 48
#: What runs in the worker.
_WORKER = f"{__package__.rpartition('.')[0]}.worker.module"


@dataclass(frozen=True, kw_only=True)
class Constructed:
    """What a worker says of the module that it has made."""

    entries: Entries
    #: Whether a part of it takes its shapes from its first call.
    lazy: bool

    @classmethod
    def of(cls, answer: object) -> Constructed | None:
        """Read a worker's answer; None: it is none that the harness's own code gives."""
        match answer:
            case {"state": list(state), "lazy": bool(lazy), **more} if not more:
                entries = [_entry(item) for item in state]
                sound = tuple(entry for entry in entries if entry is not None)
                return cls(entries=sound, lazy=lazy) if len(sound) == len(entries) else None
            case _:
                return None


def _entry(item: object) -> tuple[str, tuple[int, ...], str] | None:
    match item:
        case [str(name), list(shape), str(dtype)]:
            sound = len(shape) <= MAX_DIMENSIONS and all(within(size, _MOST_SIZE) for size in shape)
            return (name, tuple(shape), dtype) if sound else None
        case _:
            return None


def packed_order(order: Mapping[str, object]) -> Packed:
    """An order for a worker.

    Raises:
        InvalidReference: it holds a value that cannot be handed over.
    """
    try:
        return pack(dict(order))
    except Unsupported as error:
        raise InvalidReference(f"an argument of the reference cannot be handed to a worker: {error}") from error


def encoded(value: object) -> object:
    """Arguments as the wire carries them.

    Raises:
        InvalidReference: they hold a value that cannot be handed over.
    """
    try:
        return encode_value(value)
    except Unsupported as error:
        raise InvalidReference(f"an argument of the reference cannot be handed to a worker: {error}") from error


def parse(client: WorkerClient, code: str, *, deadline_ns: int) -> None:
    """Let the worker compile the text of a module, and run nothing of it.

    Raises:
        Fault: see WorkerClient. If it is not `gone`, the worker is as it was before.
    """
    client.run(f"{_WORKER}:parse", code=code, deadline_ns=deadline_ns)


def load(client: WorkerClient, code: str, entry_points: Sequence[str], *, deadline_ns: int) -> None:
    """Give the worker the text of a module. It runs it, and finds the first of these classes that is there."""
    client.run(f"{_WORKER}:load_module", code=code, entry_points=list(entry_points), deadline_ns=deadline_ns)


class ModuleSide:
    """One worker with one module. Every method may raise Fault: the worker failed."""

    def __init__(
        self, client: WorkerClient, reference: Reference, *, control: Control | None, subject: str, clock: Clock
    ) -> None:
        """`subject`: what a sentence calls the module, such as "the candidate"; `clock`: what its worker's time is."""
        self.client = client
        self.clock = clock
        self._reference = reference
        self._control = control
        if control is not None:
            client.pace = control.pace
        self._subject = subject
        #: Names of the generators that are seeded before each call: those that the reference uses in this mode.
        self.generators: tuple[str, ...] = ()
        #: Makes the inputs of timed calls, and of control calls beside them.
        self.inputs: Callable[[int], list[Any]] = reference.inputs
        self.control_inputs: Callable[[int], list[Any]] = reference.inputs
        #: Checks a timed call, given its arguments, its seed, its output and `changed_inputs`; None: it is not checked.
        self.checker: Callable[[list[Any], int | None, object, list[torch.Tensor] | None], object] | None = None
        self._last: tuple[list[Any], int | None, Called, list[torch.Tensor] | None] | None = None
        #: Of an output of a timed call, where it was checked.
        self._describing_ns = 0.0
        self._control_outputs = ControlOutputs()

    # -- orders --------------------------------------------------------------------------------------------------

    def construct(
        self, args: Sequence[object], kwargs: Mapping[str, object], *, first_args: list[Any], baseline: str = "eager"
    ) -> Constructed:
        """Make the module with the reference's arguments and weight seed.

        `first_args`: of a call that a module with lazy parts makes first, under the same seed. `baseline`: how its
        calls run; of a candidate always `eager`, as it is.
        """
        order = {
            "do": "construct",
            "args": encoded(list(args)),
            "kwargs": encoded(dict(kwargs)),
            "seed": self._reference.weight_seed,
            "device": torch.device(self._reference.device),
            "dtype": self._reference.precision,
            "baseline": baseline,
        }
        constructed = self._description(order)
        if constructed.lazy:
            fill = {"do": "fill", "args": encoded(first_args), "seed": self._reference.weight_seed}
            constructed = self._description(fill)
        return constructed

    def _description(self, order: Mapping[str, object]) -> Constructed:
        constructed = Constructed.of(self._order(order))
        if constructed is None:
            raise Fault("rejected", f"{self._subject} does not describe its state", gone=True)
        return constructed

    def limit_memory(self, nbytes: int) -> None:
        """Let the worker have only so much more memory of its own; for code that a group's sender is trusted with."""
        self._order({"do": "limit", "bytes": nbytes})

    def load_state(self, state: State) -> None:
        """Copy tensors into the module's own."""
        if state:
            self._order({"do": "state", "state": dict(state)})

    def set_eval(self, *, on: bool) -> None:
        """Put it into eval mode, or back into the mode of construction."""
        self._order({"do": "mode", "eval": on})

    def observe(self, args: list[Any], seed: int | None) -> tuple[object, list[list[torch.Tensor]]]:
        """Call the module: its output, and the tensors of the arguments as the call left them.

        By the worker's word, which alone says what shape they have now; and in the judge's own memory, if that changed.

        Raises:
            Fault: the worker failed, or returned something else than tensor data.
        """
        called = self._called(self._call_order(args, seed), keeps_inputs=True)
        output = self._value_of(called)
        with self.clock.standing():
            changed = changed_inputs(args, called)
        left = self._order({"do": "left"})
        if not isinstance(left, list) or not all(isinstance(item, torch.Tensor) for item in left):
            raise Fault("rejected", f"{self._subject} did not return what the harness asks for", gone=True)
        return output, [left] if changed is None else [left, changed]

    def _call_order(self, args: list[Any], seed: int | None) -> Mapping[str, object]:
        """One call. That it is timed is not in it."""
        # As a tensor, since calls with new numbers in their tree go by message.
        carried = torch.tensor([seed], dtype=torch.int64) if seed is not None and self.generators else None
        generators = [] if carried is None else list(self.generators)
        return {"do": "call", "args": encoded(args), "seed": carried, "generators": generators}

    def _order(self, order: Mapping[str, object]) -> Any:
        return self._value_of(self._called(order))

    def _called(self, order: Mapping[str, object], *, keeps_inputs: bool = False) -> Called:
        self.clock.check()
        with self.clock.standing():
            packed = packed_order(order)
        with self._memory_fault(packed):
            return self.client.call(
                packed,
                output_capacity=None,
                deadline_ns=self.clock.deadline_ns,
                ahead=False,
                keeps_inputs=keeps_inputs,
            )

    def _value_of(self, called: Called) -> Any:
        if called.output.opaque is not None:
            what = f"{self._subject} returned a {called.output.opaque}, which cannot be read as tensor data"
            raise Fault("wrong_answer", what)
        with self.clock.standing():
            return called.output.value()

    @contextlib.contextmanager
    def _memory_fault(self, packed: Packed) -> Iterator[None]:
        """Say of an output that is too large what may be held, and how it is counted."""
        try:
            yield
        except Fault as fault:
            if fault.verdict != "memory_limit":
                raise
            text = (
                f"{self._subject} returned more than fits: inputs count twice ({packed.nbytes} bytes of them here), "
                f"outputs three times, and a call may hold {self.client.memory_bytes} bytes"
            )
            raise Fault("memory_limit", text, gone=fault.gone) from fault

    # -- timed calls: see Workers. The deadline of a call is the clock's, since that stands at times. ------------------

    @property
    def waited_ns(self) -> int:
        """See Workers."""
        return self.client.waited_ns

    @property
    def judging_ns(self) -> int:
        """See SingleRank."""
        control_ns = 0 if self._control is None else self._control.waiting_cpu_ns
        return time.thread_time_ns() - self.client.waiting_cpu_ns - control_ns

    def call(
        self,
        arguments: Mapping[str, Value],
        *,
        rng_seed: int | None,  # noqa: ARG002 the case's own seed makes the inputs
        output_capacities: tuple[int, ...],
        deadline_ns: int,  # noqa: ARG002 see above
    ) -> Call:
        """See Workers."""
        self._last = None
        self.clock.check()
        start = time.perf_counter_ns()
        with self.clock.standing(self._reference.usual_ns):
            number = int(arguments["seed"])  # type: ignore[arg-type]  # cases of modules have a seed and nothing else
            args, seed = self.inputs(number), number if self.generators else None
            packed = packed_order(self._call_order(args, seed))
        made_ns = time.perf_counter_ns() - start
        with self._memory_fault(packed):
            called = self.client.call(
                packed,
                output_capacity=output_capacities[0] if output_capacities else None,
                deadline_ns=self.clock.deadline_ns,
                keeps_inputs=self.checker is not None,
            )
        with self.clock.standing():
            self._last = args, seed, called, changed_inputs(args, called)
        return Call.of(called, packed, shape=tree_signature(packed), made_ns=made_ns)

    @property
    def skippable_ns(self) -> float:
        """What the harness's own code in a call takes at most, which a candidate could leave out."""
        return _ANSWER_NS + sum(_SEED_NS[name] for name in self.generators) + self._describing_ns

    def check(self, *, deadline_ns: int) -> str:  # noqa: ARG002 the check is not interrupted
        """See Workers."""
        if self._last is None:
            raise RuntimeError("nothing has been called")
        args, seed, called, changed = self._last
        if self.checker is not None:
            output = self._value_of(called)
            self._describing_ns = max(self._describing_ns, describing_ns(output, tensors=called.parts))
            with self.clock.standing(self._reference.usual_ns):
                self.checker(args, seed, output, changed)
        return ""

    def control(
        self,
        cases: Iterator[Mapping[str, Value]],
        count: int,
        *,
        like: Call,
        kernel_ns: int,
        deadline_ns: int,  # noqa: ARG002 see above
    ) -> ControlRow | None:
        """See Workers.

        The control process serves all candidates: one whose time ends must not leave it in the middle of a call.
        """
        if self._control is None:
            return None
        self.clock.check()
        self._last = None
        self.client.withdraw_call(deadline_ns=self.clock.deadline_ns)

        def inputs() -> tuple[list[Any], int | None]:
            number = int(next(cases)["seed"])  # type: ignore[arg-type]  # as in `call`
            return self.control_inputs(number), number if self.generators else None

        with self.clock.standing(count * self._reference.usual_ns):
            parts, nbytes = self._control_outputs.like(
                like, asked_for=lambda: tensors_in(self._reference.run(*inputs())[0])
            )
            return self._control.calls(
                lambda: packed_order(self._call_order(*inputs())),
                count,
                parts=parts,
                nbytes=nbytes,
                kernel_ns=kernel_ns,
                deadline_ns=time.monotonic_ns() + _PATIENCE_NS,
                beside=self.client.activity,
            )

    def rest(self) -> None:
        """Let the worker wait without using a core."""
        self.client.withdraw_call(deadline_ns=self.clock.deadline_ns)


def changed_inputs(args: list[Any], called: Called) -> list[torch.Tensor] | None:
    """The tensors of a call's arguments as it left them; None: it changed none that the judge can see.

    To be asked at once: the worker could put back what it has changed.
    """
    seen = [] if called.left is None else tensors_of(decode_value(called.left())["args"])
    return None if all(map(same_bits, tensors_of(args), seen)) else [item.clone() for item in seen]


def describing_ns(output: object, *, tensors: int) -> float:
    """What it takes a worker to describe an output, at most."""
    items = output if isinstance(output, (tuple, list)) else (output,)
    if all(isinstance(item, torch.Tensor) for item in items):
        return _TENSOR_NS * tensors
    return _NESTED_NS + _NESTED_TENSOR_NS * tensors
