"""Times the cases of benchmark and leaderboard modes, and reports what their calls count as."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, pstdev
from typing import Any

from .audit import Audit, ControlCosts, Sample, audit, details
from .cases import Case
from .faults import Fault
from .hand_over import Calibration
from .mode_run import ModeRun, check_time_limit
from .problem import rng_seed_of
from .report import TimingReport
from .request import JudgeRequest
from .stats import summarise
from .stopping import Running, Stopping, Timing, noise_of
from .throttling import DeviceUnsteady, Readings, Span, ThrottleFilter
from .timed_case import TimedCase
from .trends import examine
from .workers import Call, Workers

#: Modes that are timed -> the most time in calls of one case.
TOTAL_NS = {"benchmark": 10_000_000_000, "leaderboard": 30_000_000_000}
_CASE_WALL_NS = 120_000_000_000
#: A call is made again if the judge's clock contradicts its claim, or if other processes disturbed it: an interrupt is
#: no cheat. So many calls per case are, and one more for every call that counts; where inputs are larger than
#: `_MORE_UP_TO_BYTES` and take long to make, one more for two that count. Beyond that such calls count as the judge
#: measured them.
_MAX_REPEATED, _LARGE_SHARE = 10, 0.5
#: Rows of control calls between the timed calls of a case, because the hand-over drifts: so many calls after so many
#: timed calls. Calls shorter than `_MORE_FROM_NS`, which are measured anyway, have one row at the end.
_CONTROLS, _CONTROLS_EVERY, _LAST_CONTROLS = 4, 20, 5
#: Longer kernels over few bytes have more calls than their times need, until two standard errors of the hand-over are
#: this part of the claims, less a fixed time. At the end they have more control calls, until the same is true of those.
#: The control calls have limits: so many for each call, so many in all (the second number where they are shorter than
#: `_AGAIN_FROM_NS`), this long together. On a busy host one takes a third of a second.
_WANTED_ERROR, _LESS_NS, _MOST_CONTROLS, _FEW_CONTROLS, _MORE_CONTROLS = 0.03, 200, 300, 50, 10
_CONTROLS_PER_CALL, _CONTROLS_NS = 3, 3_000_000_000
_MORE_FROM_NS, _MORE_UP_TO_BYTES = 10_000, 4 << 20
#: A case whose claims do not count is timed again if its calls take so long and it has used at most this part of its
#: time: so many times at most. Once where the judge's clock contradicts the claims by more than so many times the
#: noise, or where the noise is more than so many times what it may be: all timings together have at best half the noise
#: of one. Not where the host is so busy that control calls have used all their time: it would be so again.
_AGAIN_FROM_NS, _AGAIN_SHARE, _MOST_AGAIN, _CLEARLY, _HOPELESS = 20_000, 0.3, 3, 2.0, 2.0
#: Calls of a batch where the task does not say how many.
_BATCH_SIZE = 50
#: Timing assurances, the least first.
_ASSURANCES = ("claimed", "audited_host", "measured", "audited")


@dataclass(frozen=True, kw_only=True)
class Timed:
    """The timed calls of a case, and the verdict on their times."""

    samples: Sequence[Sample]
    #: Costs of the control calls beside them, row by row. None where no control calls can be made.
    controls_ns: Sequence[Sequence[float]] | None
    audit: Audit
    #: For the report.
    known: dict[str, Any]
    #: Whether the control calls at the end used all their time.
    crowded: bool = False

    @property
    def doubt_ns(self) -> float:
        """How far the mean may be off. Zero where the claims count."""
        return 0.0 if self.audit.timing == "audited" else self.audit.noise_ns or 0.0


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
        start = time.monotonic_ns()
        left = (run.deadline_ns - start) / (len(run.cases) - index)
        stopping = Stopping.of(
            run.request.timing, max_kernel_ns=TOTAL_NS[run.kind], max_wall_ns=min(_CASE_WALL_NS, 0.9 * left)
        )
        timed = TimedCase(self._workers, run, case, rng_seed=rng_seed_of(self._request.seed))
        timed.warm_up()
        timing = run.request.timing or Timing()
        if timing.mode in (None, "single"):
            self._time_and_report(run, index, timed, stopping, start_ns=start)
            return
        if timing.mode == "both":
            stopping = replace(stopping, max_wall_ns=stopping.max_wall_ns / 2)
            self._time_and_report(run, index, timed, stopping, start_ns=start)
            start = time.monotonic_ns()
        batches = timed.in_batches(timing.batch_size or _BATCH_SIZE)
        self._time_and_report(run, index, batches, stopping, start_ns=start, beside=timing.mode == "both")

    def _time_and_report(
        self,
        run: ModeRun,
        index: int,
        timed: TimedCase,
        stopping: Stopping,
        *,
        start_ns: int,
        beside: bool = False,
    ) -> None:
        """Time a case that is warm, again if its claims do not count and a noisy moment may be the reason.

        `beside`: batches of a case whose single calls rank.
        """
        timed.forget_controls()
        found = together = last = self.time(run, timed, stopping, start_ns=start_ns)
        again = 0
        while run.request.ranked and not last.crowded and self._should_time_again(found, timed, again):
            if time.monotonic_ns() - start_ns > _AGAIN_SHARE * stopping.max_wall_ns:
                break
            again += 1
            timed.forget_controls()
            last = self.time(run, timed, stopping, start_ns=time.monotonic_ns())
            together = self._join(together, last)
            found = min(found, last, together, key=lambda row: row.doubt_ns)
        timed.check_last()
        with run.phase("statistics"):
            known = {**found.known, "timed_again": again, **timed.details}
            self._report(run, index, found.samples, found.audit, stopping=stopping, known=known, beside=beside)

    def time(self, run: ModeRun, timed: TimedCase, stopping: Stopping, *, start_ns: int) -> Timed:
        """Call until the stopping rule ends the case, then audit the calls.

        Raises:
            Fault, TaskFault: a call failed, or its output is wrong.
            DeviceUnsteady: too many calls were set aside.
        """
        spans: list[Span[Sample]] = []
        throttle_filter = ThrottleFilter[Sample](self._readings)
        so_far = Running()
        repeated = 0
        repeats = 1.0 if timed.input_bytes <= _MORE_UP_TO_BYTES else _LARGE_SHARE
        ranked = run.request.ranked
        while True:
            stopped = stopping.reason(so_far, wall_ns=time.monotonic_ns() - start_ns)
            if stopped == "interval" and ranked and self._is_noisy(timed, [span.sample for span in spans]):
                # The claims are known closely enough, the hand-over beside them is not.
                stopped = None
            if stopped is not None:
                # Calls that were set aside because the device was slowed are made again, if there is time.
                spans, before = throttle_filter.apply(spans), len(spans)
                if len(spans) == before:
                    break
                so_far = Running.of(span.sample.claimed_ns for span in spans)
                continue
            called_ns = time.monotonic_ns()
            call = timed.sample()
            sample = self._sample_of(call)
            if repeated < _MAX_REPEATED + repeats * len(spans) and not self._believes(sample, timed.controls):
                repeated += 1
                continue
            spans.append(Span(sample=sample, start_ns=called_ns, end_ns=time.monotonic_ns()))
            so_far.add(sample.claimed_ns)
            if len(spans) % _CONTROLS_EVERY == 0 and _length_ns([sample], timed.controls) >= _MORE_FROM_NS:
                timed.call_controls(_CONTROLS)
            check_time_limit(run)
        samples = [span.sample for span in spans]
        crowded = self._add_controls(timed, samples, ranked=ranked)
        with run.phase("statistics"):
            found = audit(samples, controls_ns=timed.controls_ns, tolerance=self._request.tolerance)
        known = {"repeated": repeated, "stopped": stopped, "controls": timed.controls_made, **throttle_filter.details}
        return Timed(samples=samples, controls_ns=timed.controls_ns, audit=found, known=known, crowded=crowded)

    def _join(self, before: Timed, last: Timed) -> Timed:
        """All calls of both, as one timing: the mean hand-over of more calls is known more closely."""
        samples = [*before.samples, *last.samples]
        controls_ns = [*(before.controls_ns or ()), *(last.controls_ns or ())]
        found = audit(samples, controls_ns=controls_ns, tolerance=self._request.tolerance)
        known = {**last.known, **{key: before.known[key] + last.known[key] for key in ("repeated", "controls")}}
        return Timed(samples=samples, controls_ns=controls_ns, audit=found, known=known)

    def _should_time_again(self, found: Timed, timed: TimedCase, again: int) -> bool:
        """Whether to time a case again: its claims do not count, and a noisy moment may be the reason."""
        length_ns = _length_ns(found.samples, timed.controls)
        hopeless = (found.audit.noise_ns or 0.0) > _HOPELESS * self._request.tolerance * length_ns
        if again >= (1 if hopeless or found.audit.contradicted_by(_CLEARLY) else _MOST_AGAIN):
            return False
        long_enough = length_ns >= _AGAIN_FROM_NS
        small_enough = timed.input_bytes <= _MORE_UP_TO_BYTES
        measured = found.audit.timing == "measured" and not found.audit.is_forged
        return timed.controls_ns is not None and measured and long_enough and small_enough

    def _believes(self, sample: Sample, controls: ControlCosts | None) -> bool:
        """Whether the claim of one call counts, by what is known so far."""
        if controls is not None:
            return controls.believes(sample)
        if sample.bound is None:
            return True
        # On a device a call by message may be bounded badly. It counts, unless the GPU type says otherwise.
        lenient = sample.by_host and not self._rejects
        return lenient or (sample.exclusive and sample.claim_ns >= sample.bound.bound_ns)

    def _is_noisy(self, timed: TimedCase, samples: Sequence[Sample]) -> bool:
        """Whether the hand-over varies so much, beside these claims, that more calls are needed to know its mean."""
        length_ns = _length_ns(samples, timed.controls)
        if timed.controls is None or length_ns < _MORE_FROM_NS or timed.input_bytes > _MORE_UP_TO_BYTES:
            return False
        spread = pstdev(sample.outside_ns - sample.claim_ns for sample in samples)
        return 2 * spread / math.sqrt(len(samples)) > _WANTED_ERROR * length_ns - _LESS_NS

    def _add_controls(self, timed: TimedCase, samples: Sequence[Sample], *, ranked: bool) -> bool:
        """Make more control calls where the hand-over is not known closely enough; whether they used all their time."""
        length_ns = _length_ns(samples, timed.controls)
        if length_ns < _MORE_FROM_NS or not ranked:
            timed.call_controls(_LAST_CONTROLS)
            return False
        if timed.input_bytes > _MORE_UP_TO_BYTES:
            return False
        # The error of few calls is their own: more control calls than this make the sum of both hardly smaller.
        most = min(
            self._most_controls if length_ns >= _AGAIN_FROM_NS else _FEW_CONTROLS, _CONTROLS_PER_CALL * len(samples)
        )
        until_ns = time.monotonic_ns() + _CONTROLS_NS
        while timed.controls is not None and timed.controls.count < most:
            if time.monotonic_ns() >= until_ns:
                return True
            before = timed.controls.count
            if self._has_enough(timed.controls, len(samples), length_ns, most=most):
                return False
            timed.call_controls(_MORE_CONTROLS)
            if timed.controls.count == before:
                return False
        return False

    def _has_enough(self, controls: ControlCosts, calls: int, length_ns: float, *, most: int) -> bool:
        """Whether the hand-over is known closely enough beside so many calls, or `most` control calls would not do."""
        if controls.statistical_ns(calls=calls, sd_ns=controls.sd_ns) <= _WANTED_ERROR * length_ns - _LESS_NS:
            return True
        least_ns = controls.noise_ns(calls=calls, sd_ns=controls.sd_ns, claim_ns=length_ns, controls=most)
        return controls.count >= calls and least_ns > _HOPELESS * self._request.tolerance * length_ns

    def _report(
        self,
        run: ModeRun,
        index: int,
        samples: Sequence[Sample],
        found: Audit,
        *,
        stopping: Stopping,
        known: Mapping[str, Any],
        beside: bool = False,
    ) -> None:
        """Report a case. `known` goes into the details, too.

        The times of batches are divided by their calls here; in the details they are not. `beside`: see above.
        """
        told = {**details(samples, found), **known}
        cases = run.details.setdefault("cases", [])
        if beside:
            cases[-1]["batch"] = told
        else:
            cases.append(told)
        calls = samples[0].calls
        found = found.per_call(calls)
        if self._rejects and found.is_forged:
            raise Fault(
                "rejected",
                f"the submission claims {told['claimed_median_ns'] / calls / 1e6:.3f} ms per call, but at least "
                f"{found.least_ns / 1e6:.3f} ms passed on the judge's clock",
            )
        summary, findings = summarise(found.counted), examine(found.counted)
        # Noise is a property of the kernel: measured times also hold the interrupts of the hand-over.
        claims = summarise([sample.claimed_ns / calls for sample in samples])
        floor = run.request.floors[index] if run.request.floors else None
        impossible = None if floor is None else floor.refusal(summary.mean)
        if impossible is not None:
            raise Fault("rejected", impossible)
        noise = noise_of(
            stopping,
            runs=summary.runs,
            mean=summary.mean,
            mean_ci95=findings.mean_ci95,
            median=claims.median,
            ci95=claims.ci95,
            disturbed=told["delayed_ns"] / max(sum(sample.outside_ns for sample in samples), 1),
        )
        if noise.refusal is not None:
            raise DeviceUnsteady(noise.refusal)
        # The assurance of a mode is that of its weakest case.
        assurance = "claimed" if known["fixed_inputs"] else found.timing
        if assurance == "audited" and any(sample.by_host for sample in samples):
            assurance = "audited_host"
        if not beside:
            run.timing = assurance if index == 0 else min(assurance, run.timing, key=_ASSURANCES.index)
        interval = None
        if found.interval is not None:
            low, high = found.interval
            # Rounded outwards: the mean, which is not rounded, lies within.
            interval = math.floor(low * 10) / 10, math.ceil(high * 10) / 10
        drift = findings.drift
        timing = TimingReport(
            summary=summary,
            mean_ci95=findings.mean_ci95,
            outliers=findings.outliers,
            drift=None if drift is None else drift.change,
            drift_p=None if drift is None else drift.p,
            stopped=known["stopped"],
            noisy=noise.remark,
            assurance=assurance,
            interval=interval,
            host=_remark(told, samples),
        )
        run.report(index, **{"batches" if beside else "timing": timing}, **_batch(known))

    def _sample_of(self, call: Call) -> Sample:
        """One timed call, with its bound if there is a calibration."""
        bound = None
        on_device = self._device != "cpu"
        if self._calibration is not None and self._calibration.device is not None and call.by_flags:
            bound = self._calibration.device.bound(
                outside_ns=call.outside_ns, output_bytes=call.output_bytes, exclusive=call.exclusive
            )
        elif self._calibration is not None:
            bound = self._calibration.message.bound(
                outside_ns=call.outside_ns,
                tensors=call.tensors,
                input_bytes=call.input_bytes,
                output_bytes=call.output_bytes,
                parts=call.parts,
                skippable=on_device and self._request.ranks is None,
            )
        return Sample(
            claim_ns=call.claim_ns,
            outside_ns=call.outside_ns,
            bound=bound,
            delayed_ns=call.delayed_ns,
            exclusive=call.exclusive,
            calls=call.calls,
            more_tensors=call.parts - call.parts // call.calls if self._calibration is None else 0,
            # On a device a call by message includes work of the host.
            by_host=on_device and not call.by_flags,
        )


def _length_ns(samples: Sequence[Sample], controls: ControlCosts | None) -> float:
    """How long a call takes, by its claim or by the judge's clock, whichever is longer: a claim may be too low."""
    claim_ns = median(sample.claim_ns for sample in samples)
    if controls is None:
        return claim_ns
    return max(claim_ns, median(sample.outside_ns for sample in samples) - controls.mean_ns)


def _remark(told: Mapping[str, Any], samples: Sequence[Sample]) -> str | None:
    """A sentence on calls, or batches, beside which the worker could compute; None if there are none."""
    if not told["not_exclusive"]:
        return None
    return (
        f"in {told['not_exclusive']} of {len(samples)} {'calls' if samples[0].calls == 1 else 'batches'} the "
        "submission worked on the host, or kept work on the device, while the call waited or ran; these count as "
        "their whole span, hand-over included"
    )


def _batch(known: Mapping[str, Any]) -> dict[str, Any]:
    """How many calls a batch has, and why these are fewer than the task asks for; empty without batches."""
    if "batch_size" not in known:
        return {}
    size, asked = known["batch_size"], known["batch_asked"]
    lowered = f"batches have {size} calls, not {asked}: there is no room for more inputs and outputs of this case"
    return {"batch_size": size, "batch_lowered": lowered if size < asked else None}
