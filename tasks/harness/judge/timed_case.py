"""One benchmark case: fresh inputs for every call, checks of the outputs, and control calls beside them."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from .audit import ControlCosts, ControlRow
from .cases import Case, Value
from .mode_run import ModeRun
from .stats import quantile
from .workers import Call, Workers

#: Rows of control calls that are made at most until the cost of a hand-over is known: disturbed calls say nothing.
_CONTROL_TRIES = 5
#: Control calls that a worker may spoil.
_SPOILT = 4
#: Part of all control calls that a worker may spoil.
_MOST_SPOILT = 0.25
#: The longer a kernel runs, the colder it leaves the caches: the hand-over costs more, by 1 to 2 % of the kernel's time
#: up to 5 ms. Kernels of control calls beside calls from this length on take as long, in steps of `_STEP`, ...
_LONG_NS = 100_000
#: ... but not longer than this.
_LONGEST_NS = 5_000_000
#: Control calls that took longer than the calls by this factor do not count: what colder caches cost must not be
#: subtracted.
_STEP = 1.25


class TimedCase:
    """Calls one benchmark case: fresh inputs for every call, and every output checked."""

    def __init__(self, workers: Workers, run: ModeRun, case: Case, *, rng_seed: int) -> None:
        self._workers = workers
        self._run = run
        self._case = case
        self._rng_seed = rng_seed
        self._output_capacities: tuple[int, ...] = ()
        self._shape: object = None
        #: Processor time of the judge in checks of timed calls. What else runs does not lengthen it.
        self.checks_ns = 0
        self._checked = 0
        #: Claims of the timed calls, by rank.
        self.claims_ns: list[tuple[int, ...]] = []
        #: All rows of control calls, and those that count; whether the worker has spoilt too many.
        self._all_rows: list[ControlRow] = []
        self._rows: list[ControlRow] = []
        self._is_spoilt = False
        #: Costs of the control calls, row by row. None where no control calls can be made.
        self.controls_ns: list[Sequence[float]] | None = None
        self.controls: ControlCosts | None = None
        #: Their mean; that of all rows where too few count; 0: not known yet.
        self._hand_over_ns = 0.0
        self._last: Call | None = None
        #: Spans of the timed calls.
        self._spans_ns: list[int] = []
        #: True if the case changes its shapes with its seed: then every call has the same inputs.
        self.fixed = False

    @property
    def details(self) -> dict[str, Any]:
        """For the report."""
        by_rank = [median(claims) for claims in zip(*self.claims_ns, strict=True)]
        return {
            "calls": len(self.claims_ns),
            "checked": self._checked,
            "fixed_inputs": self.fixed,
            **({"claimed_median_by_rank_ns": by_rank} if len(by_rank) > 1 else {}),
        }

    def warm_up(self) -> None:
        """Make two calls that are checked but not timed."""
        call = self._call(rng_seed=self._rng_seed)
        self._output_capacities, self._shape = call.output_capacities, call.shape
        self._check()
        # The second one takes the path that timed calls take, which control calls copy.
        self._last = self._fresh()
        self._check()

    def sample(self) -> Call:
        """One timed call."""
        call = self._fresh()
        self._spans_ns.append(call.outside_ns)
        self.claims_ns.append(call.claims_ns)
        if any(row.kernel_ns for row in self._all_rows):
            self._summarise_controls()
        self._last = call
        start_ns = self.judging_ns
        self._check()
        self.checks_ns += self.judging_ns - start_ns
        return call

    @property
    def judging_ns(self) -> int:
        """See Workers."""
        return self._workers.judging_ns

    @property
    def controls_made(self) -> int:
        """The number of control calls."""
        return sum(len(row.costs_ns) for row in self._rows)

    @property
    def controls_stalled(self) -> int:
        """The number of control calls in which the copy of the output stalled."""
        return sum(row.stalled for row in self._rows)

    @property
    def size_ratio(self) -> float:
        """Of the last row of control calls; see ControlRow."""
        return self._rows[-1].size_ratio if self._rows else 1.0

    @property
    def disturbed(self) -> float:
        """The part of the control calls that something disturbed, in the call or in the copy of its output."""
        if self.controls is None:
            return 0.0
        disturbed = self.controls.disturbed + self.controls.telling_disturbed
        return min((disturbed + self.controls_stalled) / self.controls_made, 1.0)

    @property
    def input_bytes(self) -> int:
        """Input bytes of one call."""
        return 0 if self._last is None else self._last.input_bytes

    def call_controls(self, count: int, *, only_tell: bool = False) -> None:
        """Make control calls that hand over as much as the last call; none beside calls by message.

        `only_tell`: how many calls something disturbs, not what they cost.

        None counts any more once the worker has spoilt more than one in four: it could choose those that do.
        """
        if self._last is None:
            raise RuntimeError("nothing has been called that control calls could be like")
        if not self._last.by_flags or self._is_spoilt:
            return
        fresh = iter(self._fresh_arguments, None)
        kernel_ns = self._kernel_ns()
        with self._run.phase("controls"):
            for _ in range(_CONTROL_TRIES):
                row = self._workers.control(
                    fresh, count, like=self._last, kernel_ns=kernel_ns, deadline_ns=self._run.deadline_ns
                )
                if row is None:
                    return
                self._all_rows.append(replace(row, only_tells=only_tell))
                rows_ns = [row.costs_ns for row in self._all_rows]
                spoilt = sum(math.isnan(cost) for costs_ns in rows_ns for cost in costs_ns)
                self._is_spoilt = spoilt > _SPOILT + _MOST_SPOILT * sum(map(len, rows_ns))
                self._summarise_controls()
                costs = self.controls or ControlCosts.of(rows_ns)
                self._hand_over_ns = 0.0 if costs is None else costs.mean_ns
                self._summarise_controls()
                if self.controls is not None or self._is_spoilt:
                    return
                # On a busy host no long one may ever be undisturbed. Short ones cost less: no time gets too low.
                kernel_ns = 0 if math.inf in row.costs_ns else min(kernel_ns, self._kernel_ns())

    def _summarise_controls(self) -> None:
        longest_ns = _STEP * max(self._length_ns(), _LONG_NS)
        rows = [row for row in self._all_rows if row.kernel_ns <= longest_ns and not self._is_spoilt]
        if rows == self._rows and self.controls_ns is not None:
            return
        self._rows = rows
        self.controls_ns = [row.costs_ns for row in rows if not row.only_tells]
        costs = ControlCosts.of(self.controls_ns)
        telling = [row.costs_ns for row in rows if row.only_tells]
        self.controls = costs and costs.with_telling(telling)

    def _length_ns(self) -> float:
        """How long three of four calls take at least, by the judge's clock.

        A submission cannot make control calls long by a few calls of its own that are long, and be fast in the others.
        """
        return quantile(sorted(self._spans_ns), 0.25) - self._hand_over_ns

    def _kernel_ns(self) -> int:
        """How long the kernels of control calls take; 0: as long as reading their inputs takes."""
        length_ns = min(self._length_ns(), _LONGEST_NS)
        if length_ns < _LONG_NS:
            return 0
        return round(_LONG_NS * _STEP ** math.floor(math.log(length_ns / _LONG_NS, _STEP)))

    def _fresh_arguments(self) -> Mapping[str, Value]:
        return self._case.arguments if self.fixed else self._case.with_seed(_fresh_seed(self._case))

    def _fresh(self) -> Call:
        if not self.fixed:
            call = self._call(rng_seed=None)
            if call.shape == self._shape:
                return call
            # Other shapes would be another problem. This call does not count, and its output is not checked.
            self.fixed = True
        return self._call(rng_seed=self._rng_seed)

    def _call(self, *, rng_seed: int | None) -> Call:
        """One call. `rng_seed`: for the case's own inputs; None: for fresh ones."""
        start = time.perf_counter_ns()
        call = self._workers.call(
            self._fresh_arguments() if rng_seed is None else self._case.arguments,
            rng_seed=rng_seed,
            output_capacities=self._output_capacities,
            deadline_ns=self._run.deadline_ns,
        )
        rest_ns = time.perf_counter_ns() - start - call.made_ns - call.outside_ns
        for phase, nanoseconds in (("inputs", call.made_ns), ("call", call.outside_ns), ("hand_over", rest_ns)):
            self._run.spend(phase, nanoseconds)
        return call

    def _check(self) -> None:
        start = time.perf_counter_ns()
        self._workers.check(deadline_ns=self._run.deadline_ns)
        self._run.spend("check", time.perf_counter_ns() - start)
        self._checked += 1


def _fresh_seed(case: Case) -> int:
    """An unpredictable seed in the range that every generator takes (below 2**31)."""
    digest = hashlib.sha256(os.urandom(16) + str(case.seed).encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFF_FFFF
