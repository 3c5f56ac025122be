"""What a judge can be without, for the attack corpus only: nothing of the product can ask for one of these.

Each is a change to the judge's own modules, made in a fork of `tests.acceptance.judging` that is to be a judge, before
it is asked anything.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tasks.harness.judge import activity, benchmark, control, evaluation, main, single_rank, timed_case, worker_client
from tasks.harness.judge.audit import Sample
from tasks.harness.judge.cases import Case
from tasks.harness.judge.request import Floor
from tasks.harness.judge.snapshots import Copy, Readable, Taken
from tasks.harness.judge.stopping import Stopping, Timing
from tasks.harness.judge.workers import Call
from tasks.harness.shared import values
from tasks.harness.shared.arenas import Arena
from tasks.harness.shared.values import Layout, Snapshot

#: How long a judge that hands its inputs out early is busy with other things, and one that looks at outputs late.
_DAWDLES_S: Final = 0.05
#: No defences: spare the corpora most of the calls, and most of the judge's own calls beside them, which on a busy
#: machine are four fifths of a benchmark. And how many are left; of the latter as many as for groups of modules.
SHORT: Final = "short"
FEW_CONTROLS: Final = "few_controls"
_RUNS: Final = 12
_CONTROLS: Final = 30


def _replace(owner: object, name: str, value: object) -> None:
    """Put something in the place of what is there."""
    if not hasattr(owner, name):
        raise AttributeError(f"{owner} has no {name} any more, so that nothing would be switched off")
    setattr(owner, name, value)


def _fresh() -> None:
    """Every timed call of a case has the case's own seed."""

    def fresh_seed(case: Case) -> int:
        return case.seed or 0

    _replace(timed_case, "_fresh_seed", fresh_seed)


def _secret() -> None:
    """The next seed follows from the last one."""
    steps = itertools.count(1)

    def fresh_seed(case: Case) -> int:
        return (case.seed or 0) + 13 * next(steps)

    _replace(timed_case, "_fresh_seed", fresh_seed)


def _poison() -> None:
    """Outputs begin as zeros."""

    def poison(self: Arena) -> None:
        """Leave it as it is."""

    _replace(Arena, "poison", poison)


def _heap() -> None:
    """Memory that the judge frees keeps what stood there."""

    def guard_heap() -> None:
        """Leave it as it is."""

    _replace(main, "guard_heap", guard_heap)


def _clock() -> None:
    """Claims are believed: nothing is known of spans."""

    def sample_of(self: benchmark.Benchmark, call: Call) -> Sample:
        return Sample(claim_ns=call.claim_ns, outside_ns=call.outside_ns)

    def call_controls(self: timed_case.TimedCase, count: int) -> None:
        """Make none."""

    def controls_ns(self: benchmark.Benchmark, timed: timed_case.TimedCase) -> None:
        """None are missing."""

    _replace(benchmark.Benchmark, "_sample_of", sample_of)
    _replace(benchmark.Benchmark, "_controls_ns", controls_ns)
    _replace(timed_case.TimedCase, "call_controls", call_controls)


def _take_late(*, frozen: bool) -> None:
    """A call ends when the worker says so. The judge copies its output when it has time to, block by block in order."""

    def take_late(layout: Layout, copy: Copy, places: Sequence[tuple[Readable, int]]) -> Taken:
        ended_ns = time.perf_counter_ns()
        time.sleep(_DAWDLES_S)
        copy._blocks = sorted(copy._blocks, key=lambda block: block[:2])
        copy.fill(places)
        if frozen:
            copy.require_settled(places)
        output = Snapshot(layout.tree, copy.tensors)
        return Taken(output=output, output_bytes=sum(layout.sizes), parts=len(layout.sizes), ended_ns=ended_ns)

    _replace(worker_client, "take_like", take_late)


def _frozen() -> None:
    """Outputs are copied long after a call has ended, and may change meanwhile."""
    _take_late(frozen=False)


def _looked() -> None:
    """A call ends when the worker says so, and the judge looks at the output when it has time to."""
    _take_late(frozen=True)


def _every() -> None:
    """Only a case's first call is checked."""
    check = timed_case.TimedCase._check

    def check_first(self: timed_case.TimedCase) -> None:
        if self._checked == 0:
            check(self)

    _replace(timed_case.TimedCase, "_check", check_first)


def _floor() -> None:
    """No time is impossible."""

    def refusal(self: Floor, mean_ns: float) -> None:
        """Refuse nothing."""

    _replace(Floor, "refusal", refusal)


def _held() -> None:
    """Inputs are where the worker can see them before the clock runs."""
    dry_run = worker_client.WorkerClient._dry_run
    ready: list[Callable[[worker_client._Armed], None]] = []

    copier, sender = worker_client.WorkerClient._copier, worker_client.WorkerClient._sender

    def nothing(armed: worker_client._Armed) -> None:
        """Hand over nothing: it has been."""

    def keep_copier(*given: Any) -> Callable[[worker_client._Armed], None]:  # noqa: ANN401 handed through
        ready[:] = [copier(*given)]
        return nothing

    def keep_sender(*given: Any) -> tuple[Callable[[worker_client._Armed], None], object]:  # noqa: ANN401 handed through
        release, inputs = sender(*given)
        ready[:] = [release]
        return nothing, inputs

    def hand_over_early(
        self: worker_client.WorkerClient, by_flags: worker_client._ByFlags, armed: worker_client._Armed
    ) -> None:
        dry_run(self, by_flags, armed)
        ready.pop()(armed)
        time.sleep(_DAWDLES_S)

    _replace(worker_client.WorkerClient, "_copier", keep_copier)
    _replace(worker_client.WorkerClient, "_sender", keep_sender)
    _replace(worker_client.WorkerClient, "_dry_run", hand_over_early)


def _calm() -> None:
    """Control calls count, whoever had the cores."""
    _replace(control, "waited", lambda *_: False)

    def busy_ns(self: activity.Activity, before: object) -> int:
        """Say that nothing ran."""
        return 0

    _replace(activity.Activity, "busy_ns", busy_ns)


def _asked() -> None:
    """Control calls return as much as the submission does, whatever the reference returns."""

    def like(self: control.ControlOutputs, call: Call, *, asked_for: object) -> tuple[int, int]:
        return call.parts, call.parts_bytes

    _replace(control.ControlOutputs, "like", like)


def _own_copy() -> None:
    """The check gets the inputs from the memory that the worker had."""

    class Shared(worker_client.WorkerClient):
        def _take_by_message(
            self,
            inputs: Arena | None,
            placed: Sequence[values.Placed],
            output_arena: Arena | None,
            packed: values.Packed,
            *,
            deadline_ns: int,
        ) -> tuple[Taken, int]:
            taken = super()._take_by_message(inputs, placed, output_arena, packed, deadline_ns=deadline_ns)
            # Calls by flags have no input region: there the worker has the only copy besides the judge's.
            if inputs is not None:
                for storage, place in zip(packed.storages, placed, strict=True):
                    storage.copy_(inputs.bytes_at(place.offset, place.nbytes))
            return taken

    _replace(single_rank, "WorkerClient", Shared)


def _short() -> None:
    """Few calls are enough, since no time is measured for its own sake."""

    class Short(Stopping):
        @classmethod
        def of(cls, timing: Timing | None, **limits: float) -> Stopping:
            return replace(Stopping.of(timing, **limits), max_runs=_RUNS)

    _replace(benchmark, "Stopping", Short)
    _few_controls()


def _few_controls() -> None:
    """How closely the cost of a call is known decides whether a time counts as audited, which is no subject here."""
    _replace(evaluation, "Benchmark", partial(benchmark.Benchmark, most_controls=_CONTROLS))


CHANGES: Final[Mapping[str, Callable[[], None]]] = {
    "fresh": _fresh,
    "secret": _secret,
    "poison": _poison,
    "heap": _heap,
    "clock": _clock,
    "frozen": _frozen,
    "looked": _looked,
    "every": _every,
    "floor": _floor,
    "held": _held,
    "calm": _calm,
    "asked": _asked,
    "own_copy": _own_copy,
}


def switch_off(names: Sequence[str]) -> None:
    """Take these defences from the judge that this process is about to be."""
    for name in names:
        {**CHANGES, SHORT: _short, FEW_CONTROLS: _few_controls}[name]()
