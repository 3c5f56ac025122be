"""Times the cases of benchmark and leaderboard modes, and reports what their calls count as.

Which calls are made and which count, `course` says, from the judge's own clocks; `audit` says what they count as.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .audit import Audit, ControlCosts, Sample, audit, details
from .cases import Case
from .course import (
    HandOverFacts,
    kept,
    late_ns,
    length_ns,
    progress,
    spans_of,
    stalls_too_often,
    unexplained,
    waits_of,
    with_copies,
    with_unexplained,
)
from .faults import Fault
from .hand_over import Bound, Calibration
from .mode_run import ModeRun, check_time_limit
from .problem import rng_seed_of
from .report import TimingReport
from .request import JudgeRequest
from .stats import summarise
from .stopping import FEWEST, Stopping, noise_of
from .throttling import DeviceUnsteady, Readings, Span, ThrottleFilter
from .timed_case import TimedCase
from .trends import examine
from .worker_client import COPY_BYTES
from .workers import Call, Workers

#: Modes that are timed -> the most time in calls of one case.
TOTAL_NS = {"benchmark": 10_000_000_000, "leaderboard": 30_000_000_000}
_CASE_WALL_NS = 120_000_000_000
#: On a CPU, the judge's time after which a case may end although its interval is wide (`Stopping.enough_ns`).
_ENOUGH_ON_CPU_NS = 500_000_000
#: No case that ranks ends early while bytes that are written late could gain more than this part of the times that
#: count (`course.late_ns`).
_LATE_SHARE = 0.1
#: The part of a mode's time that its cases may take. The rest is for what the worker does outside of calls.
_CASES_SHARE = 0.75
#: Control calls of the first row, and the timed calls before it, which say how long they are to take.
_FIRST_CONTROLS = 8
_FIRST_AFTER = 3
#: Control calls in a row between the timed calls of a case, because the hand-over drifts.
_CONTROLS = 4
#: Timed calls from one row to the next.
_CONTROLS_EVERY = 20
#: Rows are dense beside calls shorter than this over inputs of more than `COPY_BYTES` and up to `_MORE_UP_TO_BYTES`:
#: the hand-over drifts, and control calls take milliseconds there.
_DENSE_UP_TO_NS = 300_000
#: Timed calls from one dense row to the next, and its control calls.
_DENSE_EVERY = 10
_DENSE_CONTROLS = 6
#: A ranked case with N control calls in dense rows has none at the end, which would say less.
_ENOUGH_DENSE = 16
#: Control calls in the row at the end; the only row of calls shorter than `_MORE_FROM_NS`, which are measured anyway.
_LAST_CONTROLS = 5
#: More calls are made until two standard errors of the hand-over are this part of a call, less `_LESS_NS`; at the end,
#: more control calls until the same is true of those.
_WANTED_ERROR = 0.03
_LESS_NS = 200
#: Control calls are made in rows of this many at the end.
_MORE_CONTROLS = 10
#: Rows of these where waits or stalls are to be told from the host's: of 100 control calls, of which a tenth is
#: disturbed, hardly ever less than a twentieth is.
_ROWS_TO_TELL = 8
#: Waits for a core are to be told if they are more than this part of the rest of the spans.
_WAITS_TO_TELL = 0.02
#: Most control calls of a case.
_MOST_CONTROLS = 300
#: Most control calls of a case whose calls are shorter than `_AGAIN_FROM_NS`.
_FEW_CONTROLS = 50
#: Most control calls for each timed call.
_CONTROLS_PER_CALL = 3
#: Most time of the control calls at the end of a case; on a busy host one takes a third of a second.
_CONTROLS_NS = 500_000_000
#: More calls and control calls are made for kernels from this length on, ...
_MORE_FROM_NS = 10_000
#: ... over inputs of at most this size.
_MORE_UP_TO_BYTES = 4 << 20
#: A case whose hand-over is not known closely enough for its claims to count is timed again from this length on, over
#: inputs of at most `COPY_BYTES`.
_AGAIN_FROM_NS = 20_000
#: It is timed again if it has used at most this part of its time.
_AGAIN_SHARE = 0.3
#: Times that a case is timed again at most.
_MOST_AGAIN = 3
#: Once at most where the noise is more than this multiple of what it may be: four timings halve it at best.
_HOPELESS = 2.0
#: Timing assurances, the least first.
_ASSURANCES = ("claimed", "audited_host", "measured", "audited")


class _JudgeClock:
    """What a case takes the judge: its processor time, that of rank checkers, and the calls.

    Neither a worker that keeps the judge waiting nor one that keeps its core busy makes this clock run faster.
    """

    def __init__(self, timed: TimedCase) -> None:
        self._timed = timed
        self._began_ns = timed.judging_ns
        self._calls_ns = 0

    def add_call(self, outside_ns: int) -> None:
        """Count the span of a call."""
        self._calls_ns += outside_ns

    @property
    def elapsed_ns(self) -> float:
        """Nanoseconds since the case was warm."""
        return self._timed.judging_ns - self._began_ns + self._calls_ns


@dataclass(frozen=True, kw_only=True)
class Timed:
    """The timed calls of a case."""

    samples: Sequence[Sample]
    #: For the report.
    facts: dict[str, Any]
    #: Of the calls that are set aside, those that may be the kernel's own (`course.unexplained`).
    unexplained: int = 0
    #: Whether the control calls at the end used all their time.
    crowded: bool = False

    @property
    def with_copies(self) -> bool:
        """Whether copies of outputs stalled more often than chance explains, so that the times hold them."""
        return any(sample.with_copy for sample in self.samples)


class Benchmark:
    """The timed cases of one evaluation."""

    def __init__(
        self,
        request: JudgeRequest,
        *,
        device: str,
        workers: Workers,
        readings: Readings,
        calibration: Calibration | None,
        most_controls: int = _MOST_CONTROLS,
    ) -> None:
        self._request = request
        self._device = device
        self._workers = workers
        self._readings = readings
        self._calibration = calibration
        self._most_controls = most_controls
        #: Whether a claim that the judge's clock contradicts does not count.
        self._rejects = device == "cpu" or request.rejects_forged_times

    def run(self, run: ModeRun, index: int, case: Case) -> None:
        """Time one case, and again where more calls may make its claims count. All calls count together.

        But not those of a first timing in which the copies of outputs stalled more often than chance explains.

        Raises:
            Fault, TaskFault: a call failed, or its output is wrong.
            DeviceUnsteady: the times are noise, or the device is too unsteady.
        """
        mode_ns = run.deadline_ns - run.start_ns
        left_ns = (_CASES_SHARE * mode_ns - run.judged_ns) / (len(run.cases) - index)
        stopping = Stopping.of(
            run.request.timing,
            max_kernel_ns=TOTAL_NS[run.kind],
            max_wall_ns=min(_CASE_WALL_NS, left_ns),
            enough_ns=_ENOUGH_ON_CPU_NS if self._device == "cpu" and self._request.ranks is None else math.inf,
        )
        timed = self._warm(run, case)
        clock = _JudgeClock(timed)
        row = self.time(run, timed, stopping, clock=clock)
        ranked, again_ns = run.request.ranked, _AGAIN_SHARE * stopping.max_wall_ns
        again = 0
        if ranked and row.with_copies and clock.elapsed_ns <= again_ns:
            # The host may have stalled copies for a while, and none of those of control calls. A submission that makes
            # them stall does so again. Nothing of the first timing counts: neither its calls nor its control calls.
            timed = self._warm(run, case)
            row = self.time(run, timed, stopping, clock=clock)
            again = 1
        samples, longer = list(row.samples), row.unexplained
        while (
            ranked
            and not row.crowded
            and clock.elapsed_ns <= again_ns
            and self._should_time_again(samples, timed, again)
        ):
            again += 1
            row = self.time(run, timed, stopping, clock=clock)
            samples += row.samples
            longer += row.unexplained
        run.judged_ns += clock.elapsed_ns
        with run.phase("statistics"):
            verdict = audit(samples, controls_ns=self._controls_ns(timed), tolerance=self._request.tolerance)
            verdict = replace(verdict, counted=tuple(with_unexplained(verdict.counted, longer)))
            facts = {**row.facts, "timed_again": again, **timed.details, "controls": timed.controls_made}
            facts["set_aside"] = len(timed.claims_ns) - len(samples)
            facts["controls_stalled"] = timed.controls_stalled
            facts["asleep"] = sum(sample.slept for sample in samples)
            self._report(run, index, samples, verdict, timed=timed, stopping=stopping, facts=facts)

    def _warm(self, run: ModeRun, case: Case) -> TimedCase:
        timed = TimedCase(self._workers, run, case, rng_seed=rng_seed_of(self._request.seed))
        timed.warm_up()
        return timed

    def time(self, run: ModeRun, timed: TimedCase, stopping: Stopping, *, clock: _JudgeClock | None = None) -> Timed:
        """Call until the stopping rule ends the case, and choose the calls that count.

        Raises:
            Fault, TaskFault: a call failed, or its output is wrong.
            DeviceUnsteady: too many calls were set aside for the device's clocks.
        """
        clock = clock or _JudgeClock(timed)
        began_ns = clock.elapsed_ns
        checks_ns = timed.checks_ns
        spans: list[Span[Sample]] = []
        throttle_filter = ThrottleFilter[Sample](self._readings)
        ranked = run.request.ranked
        while True:
            samples = [span.sample for span in spans]
            facts = self._hand_over(timed, samples)
            so_far = progress(
                samples,
                facts,
                judged_ns=clock.elapsed_ns - began_ns,
                checks_ns=timed.checks_ns - checks_ns,
            )
            stopped = stopping.reason(so_far)
            if not ranked and len(samples) >= stopping.max_runs:
                # Those that are set aside have been checked, too.
                stopped = "runs"
            if ranked and stopped in ("interval", "enough"):
                counted = [samples[number] for number in kept(samples, facts)]
                is_open = late_ns(counted) > _LATE_SHARE * so_far.total_ns
                if is_open or self._needs_more_calls(timed, samples, facts):
                    stopped = None
            if stopped is not None:
                # Calls that were set aside because the device was slowed are made again, if there is time.
                spans, before = throttle_filter.apply(spans), len(spans)
                if len(spans) == before:
                    break
                continue
            called_ns = time.monotonic_ns()
            sample = self._sample_of(timed.sample())
            clock.add_call(sample.outside_ns)
            spans.append(Span(sample=sample, start_ns=called_ns, end_ns=time.monotonic_ns()))
            if due := _controls_due(timed, len(spans), length_ns([sample.outside_ns], facts)):
                timed.call_controls(due)
            check_time_limit(run)
        crowded = self._add_controls(timed, samples, ranked=ranked)
        facts = self._hand_over(timed, samples)
        if ranked:
            numbers = kept(samples, facts)
            waits = waits_of([samples[number] for number in numbers], unexplained(samples, numbers, facts))
            # Few control calls make the error large: it is no reason not to ask.
            stalls = stalls_too_often(samples, replace(facts, stalled_error=0.0))
            if waits.waited_ns > _WAITS_TO_TELL * (waits.span_ns - waits.waited_ns) or stalls:
                self._add_controls_to_tell(timed)
                facts = self._hand_over(timed, samples)
        samples = with_copies(samples, facts)
        numbers = kept(samples, facts)
        longer = unexplained(samples, numbers, facts)
        # Control calls at the end may say that fewer are to be set aside than seemed so before.
        most = max(stopping.max_runs - longer, FEWEST)
        return Timed(
            samples=[samples[number] for number in numbers[:most]],
            facts={"stopped": stopped, **throttle_filter.details},
            unexplained=longer,
            crowded=crowded,
        )

    def _controls_ns(self, timed: TimedCase) -> Sequence[Sequence[float]] | None:
        """The costs of control calls; on a CPU an empty list where there should be some: then whole spans count."""
        bounded = self._device != "cpu" or self._calibration is not None or self._request.ranks is not None
        return timed.controls_ns if bounded else timed.controls_ns or []

    def _hand_over(self, timed: TimedCase, samples: Sequence[Sample]) -> HandOverFacts:
        """What is known of the hand-over of these calls."""
        if timed.controls is not None:
            return HandOverFacts.of_controls(
                timed.controls, stalled=timed.controls_stalled, size_ratio=timed.size_ratio
            )
        bounds = [sample.bound for sample in samples if sample.bound is not None]
        spans_ns = spans_of(samples)
        if self._calibration is not None and bounds and len(bounds) == len(samples):
            return HandOverFacts.of_bounds(spans_ns, bounds)
        return HandOverFacts.unknown(spans_ns or [0.0])

    def _should_time_again(self, samples: Sequence[Sample], timed: TimedCase, again: int) -> bool:
        """Whether the noise of the hand-over keeps claims from counting, and more calls may change that."""
        if timed.controls is None or timed.input_bytes > COPY_BYTES:
            return False
        call_ns = length_ns(spans_of(samples), self._hand_over(timed, samples))
        if call_ns < _AGAIN_FROM_NS:
            return False
        limit_ns = self._request.tolerance * call_ns
        noise_ns = timed.controls.noise_ns(calls=len(samples), sd_ns=timed.controls.sd_ns, claim_ns=call_ns)
        return noise_ns > limit_ns and again < (1 if noise_ns > _HOPELESS * limit_ns else _MOST_AGAIN)

    def _needs_more_calls(self, timed: TimedCase, samples: Sequence[Sample], facts: HandOverFacts) -> bool:
        """Whether the hand-over varies so much, beside these calls, that more are needed to know its mean."""
        call_ns = length_ns(spans_of(samples), facts)
        if timed.controls is None or call_ns < _MORE_FROM_NS or timed.input_bytes > _MORE_UP_TO_BYTES:
            return False
        return 2 * facts.sd_ns / math.sqrt(len(samples)) > _WANTED_ERROR * call_ns - _LESS_NS

    def _add_controls(self, timed: TimedCase, samples: Sequence[Sample], *, ranked: bool) -> bool:
        """Make more control calls where the hand-over is not known closely enough; whether they used all their time."""
        if timed.controls is None:
            timed.call_controls(_LAST_CONTROLS)
        call_ns = length_ns(spans_of(samples), self._hand_over(timed, samples))
        has_enough = ranked and _is_dense(timed, call_ns) and timed.controls_made >= _ENOUGH_DENSE
        if has_enough or (call_ns >= _MORE_FROM_NS and timed.input_bytes > _MORE_UP_TO_BYTES):
            return False
        if call_ns < _MORE_FROM_NS or not ranked:
            timed.call_controls(_LAST_CONTROLS)
            return False
        # The error of few calls is their own: more control calls than this make the sum of both hardly smaller.
        most = min(
            self._most_controls if call_ns >= _AGAIN_FROM_NS else _FEW_CONTROLS, _CONTROLS_PER_CALL * len(samples)
        )
        until_ns = time.monotonic_ns() + _CONTROLS_NS
        while timed.controls is not None and timed.controls.count < most:
            if time.monotonic_ns() >= until_ns:
                return True
            before = timed.controls_made
            if self._has_enough(timed.controls, len(samples), call_ns, most=most):
                return False
            timed.call_controls(_MORE_CONTROLS)
            if timed.controls_made == before:
                return False
        return False

    def _add_controls_to_tell(self, timed: TimedCase) -> None:
        """Make control calls that tell whether the host made calls wait for a core, or the copies of outputs stall."""
        until_ns = time.monotonic_ns() + _CONTROLS_NS
        for _ in range(_ROWS_TO_TELL):
            if time.monotonic_ns() < until_ns:
                timed.call_controls(_MORE_CONTROLS, only_tell=True)

    def _has_enough(self, controls: ControlCosts, calls: int, call_ns: float, *, most: int) -> bool:
        """Whether the hand-over is known closely enough beside so many calls, or `most` control calls would not do."""
        if controls.statistical_ns(calls=calls, sd_ns=controls.sd_ns) <= _WANTED_ERROR * call_ns - _LESS_NS:
            return True
        least_ns = controls.noise_ns(calls=calls, sd_ns=controls.sd_ns, claim_ns=call_ns, controls=most)
        return controls.count >= calls and least_ns > _HOPELESS * self._request.tolerance * call_ns

    def _report(
        self,
        run: ModeRun,
        index: int,
        samples: Sequence[Sample],
        verdict: Audit,
        *,
        timed: TimedCase,
        stopping: Stopping,
        facts: Mapping[str, Any],
    ) -> None:
        """Report a case. `facts` go into the details, too."""
        shown = {**details(samples, verdict), **facts}
        run.details.setdefault("cases", []).append(shown)
        if self._rejects and verdict.is_forged:
            raise Fault(
                "rejected",
                f"the submission claims {shown['claimed_median_ns'] / 1e6:.3f} ms per call, but at least "
                f"{verdict.least_ns / 1e6:.3f} ms passed on the judge's clock",
            )
        summary, findings = summarise(verdict.counted), examine(verdict.counted)
        floor = run.request.floors[index] if run.request.floors else None
        impossible = None if floor is None else floor.refusal(summary.mean)
        if impossible is not None:
            raise Fault("rejected", impossible)
        spans = summarise(spans_of(samples))
        noise = noise_of(
            stopping,
            runs=summary.runs,
            mean=summary.mean,
            mean_ci95=findings.mean_ci95,
            span=spans.median,
            span_ci95=spans.ci95,
            waits=waits_of(samples, summary.runs - len(samples)),
            disturbed=timed.disturbed,
            ranked=run.request.ranked,
        )
        if noise.refusal is not None:
            raise DeviceUnsteady(noise.refusal)
        # The assurance of a mode is that of its weakest case.
        assurance = "claimed" if facts["fixed_inputs"] else verdict.timing
        if assurance == "audited" and any(sample.by_host for sample in samples):
            assurance = "audited_host"
        run.timing = assurance if index == 0 else min(assurance, run.timing, key=_ASSURANCES.index)
        interval = None
        if verdict.interval is not None:
            low, high = verdict.interval
            # Rounded outwards: the mean, which is not rounded, lies within.
            interval = math.floor(low * 10) / 10, math.ceil(high * 10) / 10
        drift = findings.drift
        timing = TimingReport(
            summary=summary,
            mean_ci95=findings.mean_ci95,
            outliers=findings.outliers,
            drift=None if drift is None else drift.change,
            drift_p=None if drift is None else drift.p,
            stopped=facts["stopped"],
            noisy=noise.remark,
            assurance=assurance,
            interval=interval,
            host=_remark(shown, samples),
        )
        run.report(index, timing=timing)

    def _sample_of(self, call: Call) -> Sample:
        """One timed call, with its bound if there is a calibration."""
        bound = None
        on_device = self._device != "cpu"
        if self._calibration is not None and self._calibration.device is not None and call.by_flags:
            bound = self._calibration.device.bound(
                outside_ns=call.outside_ns, output_bytes=call.output_bytes, exclusive=call.exclusive
            )
        elif self._calibration is not None:
            costs = self._calibration.message
            bound = (
                Bound.unknown(call.outside_ns)
                if costs is None
                else costs.bound(
                    outside_ns=call.outside_ns,
                    tensors=call.tensors,
                    input_bytes=call.input_bytes,
                    output_bytes=call.output_bytes,
                    parts=call.parts,
                    skippable=self._request.ranks is None,
                )
            )
        return Sample(
            # No kernel takes longer than its call. A larger claim would only move what is made of all claims.
            claim_ns=min(call.claim_ns, call.outside_ns),
            outside_ns=call.outside_ns,
            bound=bound,
            # What a worker does for a message, it can do faster than one of ours: nothing is subtracted.
            whole=not on_device and not call.by_flags and self._request.ranks is None and bound is None,
            delayed_ns=call.delayed_ns,
            exclusive=call.exclusive,
            more_tensors=max(call.parts - 1, 0) if self._calibration is None else 0,
            # On a device a call by message includes work of the host.
            by_host=on_device and not call.by_flags,
            copy_ns=call.copy_ns,
            late_ns=call.late_ns,
            stalled=call.stalled,
            copied_ns=call.copied_ns,
        )


def _controls_due(timed: TimedCase, calls: int, call_ns: float) -> int:
    """The number of control calls after N timed calls; `call_ns`: the length of the last one."""
    if calls == _FIRST_AFTER and timed.controls is None:
        return _FIRST_CONTROLS
    if call_ns < _MORE_FROM_NS:
        return 0
    if _is_dense(timed, call_ns):
        return 0 if calls % _DENSE_EVERY else _DENSE_CONTROLS
    return 0 if calls % _CONTROLS_EVERY else _CONTROLS


def _is_dense(timed: TimedCase, call_ns: float) -> bool:
    """Whether rows of control calls are dense beside calls of this length."""
    return call_ns < _DENSE_UP_TO_NS and COPY_BYTES < timed.input_bytes <= _MORE_UP_TO_BYTES


def _remark(shown: Mapping[str, Any], samples: Sequence[Sample]) -> str | None:
    """A sentence on calls beside which the worker could compute; None if there are none."""
    if not shown["not_exclusive"]:
        return None
    return (
        f"in {shown['not_exclusive']} of {len(samples)} calls the submission worked on the host, or kept work on the "
        "device, while the call waited or ran; these count as their whole span, hand-over included"
    )
