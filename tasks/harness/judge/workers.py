"""What the judge asks of the workers, whether there is one (`single_rank`) or one per rank (`multi_rank`).

An implementation of `Workers` generates a case's inputs, hands them over, measures the call, copies the outputs and
checks them: in the judge's process or in rank checkers, never in a worker. `evaluation` and `benchmark` decide
which calls are made, `audit` what their times are worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from tasks.harness.shared.profilers import Capture, Profile
from tasks.harness.shared.values import Packed

from .audit import ControlRow
from .cases import Value
from .hand_over import Calibration
from .request import Compiled
from .worker_client import Called


@dataclass(frozen=True, kw_only=True)
class Call:
    """One finished call of the kernel, on every rank."""

    #: Structure, dtypes and shapes of the inputs; equal ones are the same problem.
    shape: object
    #: By rank: times that the workers claim, and bytes of output that were copied into the judge's memory.
    claims_ns: tuple[int, ...]
    output_capacities: tuple[int, ...]
    outside_ns: int
    #: Whether it began and ended by flags in shared memory, not by messages.
    by_flags: bool = False
    #: Tensors in the output of one rank.
    parts: int = 1
    #: Their bytes, without gaps. Not of several ranks.
    parts_bytes: int = 0
    #: How long judge and worker were ready to run and did not; None where the kernel does not tell.
    delayed_ns: int | None = None
    #: On a device: whether the worker used no processor, and the device for nothing else.
    exclusive: bool = True
    #: See Called.
    copy_ns: int = 0
    late_ns: int = 0
    stalled: bool = False
    copied_ns: float = 0.0
    #: Time to make the inputs, before the clock ran; 0 where rank checkers made them.
    made_ns: int = 0
    #: Of all ranks together.
    tensors: int
    input_bytes: int

    @classmethod
    def of(cls, called: Called, packed: Packed, *, shape: object, made_ns: int) -> Self:
        """A call of one worker, with the inputs that it got."""
        return cls(
            shape=shape,
            claims_ns=(called.claim_ns,),
            output_capacities=(called.output_bytes,),
            outside_ns=called.outside_ns,
            made_ns=made_ns,
            by_flags=called.by_flags,
            parts=called.parts,
            parts_bytes=sum(called.output.sizes),
            delayed_ns=called.delayed_ns,
            exclusive=called.exclusive,
            copy_ns=called.copy_ns,
            late_ns=called.late_ns,
            stalled=called.stalled,
            copied_ns=called.copied_ns,
            tensors=packed.tensors,
            input_bytes=packed.nbytes,
        )

    @property
    def claim_ns(self) -> int:
        """The slowest rank's claim, which is the call's."""
        return max(self.claims_ns)

    @property
    def output_bytes(self) -> int:
        """Copied by all ranks together."""
        return sum(self.output_capacities)


class Workers(Protocol):
    """The workers, and the judge's own processes beside them.

    Every method may raise Fault (the submission's) and TaskFault (the task's).
    """

    @property
    def waited_ns(self) -> int:
        """How long the judge has waited for the workers so far."""

    @property
    def judging_ns(self) -> int:
        """Processor time of the judge so far: this thread's, and that of rank checkers.

        Without what it took to wait for workers, and to read what they sent.
        """

    def prepare(self, files: Mapping[str, str], directory: Path, *, deadline_ns: int) -> None:
        """Unpack the task, import its reference, and make sure that every worker answers."""

    def probe(self, *, deadline_ns: int) -> int:
        """One call of the calibration kernel, to prove that the workers answer; its span in nanoseconds."""

    def begin_device(self, *, flush_bytes: int | None, deadline_ns: int, tried: bool) -> None:
        """Let workers begin what `prepare_device` waits for; nothing else may be asked of them in between.

        `tried`: an earlier worker has found that streams of this device can wait.
        """

    def prepare_device(self, device: str, *, deadline_ns: int) -> tuple[Calibration | None, str]:
        """Make workers with a device ready to be timed, and measure what their calls cost.

        Returns:
            The calibration, None where there is none; and `open`, or why calls are not marked on the device.
        """

    def calibrate(self, *, deadline_ns: int) -> Calibration | None:
        """Measure the hand-over before the submission is loaded. None where control calls measure it."""

    def control(
        self, cases: Iterator[Mapping[str, Value]], count: int, *, like: Call, kernel_ns: int, deadline_ns: int
    ) -> ControlRow | None:
        """Make up to `count` control calls, whose kernel takes `kernel_ns` at least.

        Their inputs are made like those of other calls, and no submission runs in the process that answers them.
        Afterwards the last call cannot be checked any more. None where no control calls can be made.
        """

    def load(
        self, files: Mapping[str, str], submission: str, *, deadline_ns: int, compiled: Compiled | None = None
    ) -> None:
        """Give the workers their files. They import the submission, or compile and load it."""

    def settle(self, *, deadline_ns: int) -> None:
        """Make the workers ready for the next case, whatever the last one did to them."""

    def flush(self, *, deadline_ns: int) -> None:
        """Let the workers write out what they have buffered for stdout and stderr."""

    def call(
        self,
        arguments: Mapping[str, Value],
        *,
        rng_seed: int | None,
        output_capacities: tuple[int, ...],
        deadline_ns: int,
    ) -> Call:
        """Make one call. `rng_seed`: of the global generators; None: unpredictable.

        `output_capacities`: of an earlier call of the same shape, or empty.
        """

    def check(self, *, deadline_ns: int) -> str:
        """Check the output of the last call; the message of check_implementation, if it is right."""

    def profile(
        self, arguments: Mapping[str, Value], *, rng_seed: int | None, capture: Capture | None, deadline_ns: int
    ) -> tuple[Profile, ...]:
        """Run the kernel once under a profiler; by rank. A vendor's profiler is for a single rank, and a capture."""

    def close(self) -> None:
        """End the processes that it started itself."""
