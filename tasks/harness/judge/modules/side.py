"""A worker that hosts a module, as the judge orders it: construct, load weights, set the mode, call.

For timed calls it is a `Workers`, so that `TimedCase` and `Benchmark` time modules as they time kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tasks.harness.judge.cases import Value
from tasks.harness.judge.control import Control, ControlOutputs
from tasks.harness.judge.faults import Fault, too_late
from tasks.harness.judge.worker_client import Called, WorkerClient
from tasks.harness.judge.workers import Call
from tasks.harness.shared.module_values import encode_value
from tasks.harness.shared.values import Packed, Unsupported, pack, tensors_in, tree_signature

from .reference_module import InvalidReference, Reference
from .weights import State

Entries = tuple[tuple[str, tuple[int, ...], str], ...]
#: How long the control process may take for a row of calls.
_PATIENCE_NS = 120_000_000_000


@dataclass(frozen=True, kw_only=True)
class Constructed:
    """What a worker says of the module that it has made."""

    entries: Entries
    train: bool


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


class ModuleSide:
    """One worker with one module."""

    def __init__(self, client: WorkerClient, reference: Reference, *, control: Control | None, subject: str) -> None:
        """`subject`: what a sentence calls the module, such as "the candidate"."""
        self.client = client
        self._reference = reference
        self._control = control
        self._subject = subject
        #: Whether the generators are seeded before each call.
        self.seeded = False
        #: Whether timed calls go by message, so that launches are in the time.
        self.by_message = False
        #: Checks the output of a timed call, given its arguments and its seed; None: it is not checked.
        self.checker: Callable[[list[Any], int | None, object], None] | None = None
        self._last: tuple[list[Any], int | None, Called] | None = None
        self._control_outputs = ControlOutputs()

    # -- orders --------------------------------------------------------------------------------------------------

    def construct(
        self, args: Sequence[object], kwargs: Mapping[str, object], *, deadline_ns: int, baseline: str = "eager"
    ) -> Constructed:
        """Make the module with the reference's arguments and weight seed.

        `baseline`: how its calls run; of a candidate always `eager`, as it is.

        Raises:
            Fault: the worker failed, or its answer is none that its own code gives.
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
        answer = self._order(order, deadline_ns=deadline_ns)
        try:
            entries = tuple((str(name), tuple(map(int, shape)), str(dtype)) for name, shape, dtype in answer["state"])
            return Constructed(entries=entries, train=bool(answer["train"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Fault("rejected", f"{self._subject} does not describe its state", gone=True) from error

    def load_state(self, state: State, *, deadline_ns: int) -> None:
        """Copy tensors into the module's own.

        Raises:
            Fault: the worker failed.
        """
        if state:
            self._order({"do": "state", "state": dict(state)}, deadline_ns=deadline_ns)

    def set_eval(self, *, on: bool, deadline_ns: int) -> None:
        """Put it into eval mode, or back into the mode of construction.

        Raises:
            Fault: the worker failed.
        """
        self._order({"do": "mode", "eval": on}, deadline_ns=deadline_ns)

    def observe(self, args: list[Any], seed: int | None, *, deadline_ns: int) -> tuple[object, list[torch.Tensor]]:
        """Call the module: its output, and the tensors of the arguments as the call left them, by the worker's word.

        Raises:
            Fault: the worker failed, or returned something else than tensor data.
        """
        answer = self._order({"do": "observe", "args": encoded(args), "seed": _seed(seed)}, deadline_ns=deadline_ns)
        if not isinstance(answer, dict) or not isinstance(answer.get("after"), list) or "out" not in answer:
            raise Fault("rejected", f"{self._subject} did not return what the harness asks for", gone=True)
        return answer["out"], [item for item in answer["after"] if isinstance(item, torch.Tensor)]

    def _order(self, order: Mapping[str, object], *, deadline_ns: int) -> Any:
        called = self.client.call(packed_order(order), output_capacity=None, deadline_ns=deadline_ns, ahead=False)
        if called.output.opaque is not None:
            what = f"{self._subject} returned a {called.output.opaque}, which cannot be read as tensor data"
            raise Fault("wrong_answer", what)
        return called.output.value()

    # -- timed calls: see Workers --------------------------------------------------------------------------------

    @property
    def waited_ns(self) -> int:
        """See Workers."""
        return self.client.waited_ns

    checkers_ns = 0

    def call(
        self,
        arguments: Mapping[str, Value],
        *,
        rng_seed: int | None,  # noqa: ARG002 the case's own seed makes the inputs
        output_capacities: tuple[int, ...],
        deadline_ns: int,
    ) -> Call:
        """See Workers."""
        self._last = None
        start = time.perf_counter_ns()
        number = int(arguments["seed"])  # type: ignore[arg-type]  # cases of modules have a seed and nothing else
        args, seed = self._reference.inputs(number), number if self.seeded else None
        packed = self._packed_run(args, seed)
        made_ns = time.perf_counter_ns() - start
        called = self.client.call(
            packed,
            output_capacity=output_capacities[0] if output_capacities else None,
            deadline_ns=deadline_ns,
            by_message=self.by_message,
        )
        self._last = args, seed, called
        return Call.of(called, packed, shape=tree_signature(packed), made_ns=made_ns)

    @staticmethod
    def _packed_run(args: list[Any], seed: int | None) -> Packed:
        return packed_order({"do": "run", "args": encoded(args), "seed": _seed(seed)})

    def check(self, *, deadline_ns: int) -> str:  # noqa: ARG002 the check is not interrupted
        """See Workers."""
        if self._last is None:
            raise RuntimeError("nothing has been called")
        args, seed, called = self._last
        if self.checker is not None:
            if called.output.opaque is not None:
                what = f"{self._subject} returned a {called.output.opaque}, which cannot be read as tensor data"
                raise Fault("wrong_answer", what)
            self.checker(args, seed, called.output.value())
        return ""

    def control(
        self, cases: Iterator[Mapping[str, Value]], count: int, *, like: Call, deadline_ns: int
    ) -> Sequence[float] | None:
        """See Workers.

        The control process serves all candidates: one whose time ends must not leave it in the middle of a call.
        """
        if self._control is None:
            return None
        if time.monotonic_ns() > deadline_ns:
            raise too_late()
        self._last = None
        self.client.withdraw_call(deadline_ns=deadline_ns)

        def inputs() -> tuple[list[Any], int | None]:
            number = int(next(cases)["seed"])  # type: ignore[arg-type]  # as in `call`
            return self._reference.inputs(number), number if self.seeded else None

        parts, nbytes = self._control_outputs.like(
            like, asked_for=lambda: tensors_in(self._reference.run(*inputs())[0])
        )
        return self._control.calls(
            lambda: self._packed_run(*inputs()),
            count,
            parts=parts,
            nbytes=nbytes,
            by_flags=like.by_flags,
            deadline_ns=time.monotonic_ns() + _PATIENCE_NS,
            beside=self.client.activity,
        )

    def rest(self, *, deadline_ns: int) -> None:
        """Let the worker wait without using a core.

        Raises:
            Fault: the worker failed.
        """
        self.client.withdraw_call(deadline_ns=deadline_ns)


def _seed(seed: int | None) -> torch.Tensor | None:
    """A seed as the orders carry it: as a tensor, since calls with new numbers in their tree go by message."""
    return None if seed is None else torch.tensor([seed], dtype=torch.int64)
