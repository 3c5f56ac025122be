"""What the judge asks of the workers, whether there is one (`solo`) or one per rank (`crew`); pure.

A team generates a case's inputs, hands them over, clocks the call, copies the outputs and checks them. The judge
decides which calls are made and what their times are worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .cases import Value
from .hand_over import Calibration
from .request import Compiled
from .worker_client import Profiled


@dataclass(frozen=True, kw_only=True)
class Call:
    """One finished call of the kernel, on every rank."""

    #: Structure, dtypes and shapes of the inputs; equal ones are the same problem.
    shape: object
    #: By rank: times as the workers claim them, and bytes of output copied into the judge's memory.
    claims_ns: tuple[int, ...]
    output_capacities: tuple[int, ...]
    outside_ns: int
    #: Whether it began and ended by flags, and how long judge and worker were kept from running meanwhile; None where
    #: the kernel does not tell.
    by_flags: bool = False
    #: Tensors in the output of one rank.
    parts: int = 1
    delayed_ns: int | None = None
    #: On a device: the host's work is in the outside span.
    by_host: bool = False
    #: What making the inputs took, before the clock ran; 0 where others did it.
    made_ns: int = 0
    #: Of all ranks together.
    tensors: int
    input_bytes: int

    @property
    def claim_ns(self) -> int:
        """The slowest rank's claim, which is the call's."""
        return max(self.claims_ns)

    @property
    def output_bytes(self) -> int:
        """Copied by all ranks together."""
        return sum(self.output_capacities)


class Workers(Protocol):
    """The workers, and whatever of the judge's stands beside them.

    Every method may raise Fault, for what the submission did, and TaskFault, for what the task did.
    """

    @property
    def waited_ns(self) -> int:
        """How long the workers have been waited for so far."""

    def prepare(self, files: Mapping[str, str], directory: Path, *, deadline_ns: int) -> None:
        """Unpack the task, import its reference, and see that every worker is there."""

    def probe(self, *, deadline_ns: int) -> int:
        """A call of a known kernel that proves that the workers answer; its outside span in ns."""

    def prepare_device(self, device: str, *, flush_bytes: int | None, deadline_ns: int) -> str | None:
        """Make workers with a device ready to be timed; why their calls cannot be gated, None if they can."""

    def calibrate(self, *, deadline_ns: int) -> Calibration | None:
        """Measure the hand-over, before the submission is loaded; None where control calls do that beside the case."""

    def control(
        self, cases: Iterator[Mapping[str, Value]], count: int, *, like: Call, deadline_ns: int
    ) -> Sequence[float] | None:
        """What calls like this one cost now beside their kernel, in nanoseconds; None where no such calls can be made.

        Their inputs are made as those of other calls, and no submission runs in the process that answers them. Up to
        `count` of them: those that others have disturbed say nothing. The last call cannot be checked any more.
        """

    def load(
        self, files: Mapping[str, str], submission: str, *, deadline_ns: int, compiled: Compiled | None = None
    ) -> None:
        """Give the workers their files and let them import the submission, or compile and load it."""

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
        """Make one call. `rooms` are those of an earlier call of the same shape, or none; seed None: unpredictable."""

    def check(self, *, deadline_ns: int) -> str:
        """Check the output of the last call; the message of a right one."""

    def profile(
        self, arguments: Mapping[str, Value], *, rng_seed: int | None, deadline_ns: int
    ) -> tuple[Profiled, ...]:
        """Run the kernel once under a profiler; by rank."""

    def close(self) -> None:
        """End what the team started itself."""
