"""The trusted side: makes inputs, releases them to the worker, clocks it from outside, checks what came back, decides.

Theory of operation. The steward starts this process beside the worker, under another uid, before there is anything to
judge; torch is imported at once. One request arrives on stdin (see `request`). The task's files are written to this
process's private directory and its reference is imported here; the submission only ever reaches the worker. Per mode
one `step` frame goes to stdout (fd 1 is kept for frames; whatever a task prints goes to stderr). The process ends with
0 after its last frame; anything else means that the harness itself broke.

Every verdict is made here, from bytes that the judge copied and its own clock. What the worker says is a claim or text
to show. Called by the steward, or by `local` where there is no container.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import select
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

# The reference's threads must not go on spinning while the submission is timed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from sandbox.protocol import Artifact, Judged, StepResult, encode, to_b64
from tasks.harness.emulate import asked, install_if_asked

from .audit import Audit, ControlCosts, Sample, audit, details
from .cases import Case, CaseError, Value, parse_cases
from .control import Control
from .faults import Fault
from .hand_over import Calibration
from .multi_rank import MultiRank
from .problem import TaskFault, guard_heap, rng_seed_of, scramble
from .request import JudgeRequest, ModeRequest
from .single_rank import SingleRank
from .stats import Summary, summarise
from .stopping import Noise, Running, Stopping, noise_of
from .system_facts import facts
from .throttling import DeviceUnsteady, Span, ThrottleFilter
from .trends import Findings, examine
from .worker_output import Collector, read_request
from .workers import Call, Workers

EXIT_PASSED, EXIT_NOT_PASSED, EXIT_TIMED_OUT = 0, 112, 114
_PROGRESS_NS = 200_000_000
_MAX_ERROR = 4_000
_BINARY = "application/octet-stream"
#: Of one mode; the frontends show less.
_MAX_TRACES = 20
#: Seconds of one benchmark case that may go into checking every output; after that a random part is checked.
_CHECK_BUDGET_NS = 20_000_000_000
_CHECK_SHARE = 8
_CASE_WALL_NS = 120_000_000_000
_TOTAL_NS = {"benchmark": 10_000_000_000, "leaderboard": 30_000_000_000}
#: Calls whose claim the outside clock contradicts, or that others have disturbed, are made again, since an interrupt is
#: no cheat: this many per case, and one more for every call that counts. Beyond that the judge's own measure counts.
_MAX_REPEATED = 10
#: Control calls beside a case: before its first timed call, and in rows between them, which drift as they do; kernels
#: shorter than `_MORE_FROM_NS`, which are measured anyway, have one row at the end. For longer ones over few bytes more
#: of them are made there until two standard errors of the hand-over are this part of the claims, or there are so many.
_FIRST_CONTROLS, _CONTROLS, _CONTROLS_EVERY, _LAST_CONTROLS = 8, 4, 20, 5
_WANTED_ERROR, _MOST_CONTROLS, _MORE_CONTROLS = 0.03, 100, 10
_MORE_FROM_NS, _MORE_UP_TO_BYTES = 20_000, 4 << 20
#: Rows that are made at most before it is known what a hand-over costs: those that others disturb say nothing.
_CONTROL_TRIES = 5
#: A case whose claims do not count is timed again, once, if it has used at most this part of its time. Of shorter
#: kernels the hand-over is seldom known closely enough, however often they are timed.
_AGAIN_SHARE, _AGAIN_FROM_NS = 0.3, 40_000
_CALIBRATION_TIMEOUT_NS = 30_000_000_000
#: Until the interpreters of several ranks, and of the judge's own processes beside them, have imported torch.
_START_TIMEOUT_NS = 120_000_000_000
#: What a time can be worth, from the least.
_ASSURANCES = ("claimed", "audited_host", "measured", "audited")


class Frames:
    """The judge's report: frames on the descriptor that was stdout, which nothing else writes to any more."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._last_ns = 0

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one frame."""
        data = memoryview(encode(message))
        while data:
            data = data[os.write(self._fd, data) :]

    def progress(self, phase: str, done: int, total: int) -> None:
        """Write a progress frame, at most five a second except for the first and last of a phase."""
        now = time.monotonic_ns()
        if done in (0, total) or now - self._last_ns >= _PROGRESS_NS:
            self._last_ns = now
            self.send({"type": "progress", "phase": phase, "done": done, "total": total})


@dataclass(kw_only=True)
class ModeRun:
    """One mode while it runs."""

    request: ModeRequest
    cases: tuple[Case, ...]
    start_ns: int
    deadline_ns: int
    result: dict[str, str] = field(default_factory=dict)
    verdict: str = "accepted"
    message: str | None = None
    timed_out: bool = False
    #: Which of several ranks had not answered when time was up.
    late: str = ""
    output_limit: bool = False
    #: Tracebacks of the submission, shown below its own stderr.
    traces: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    timing: str = "claimed"
    #: Where the time went: phase -> nanoseconds.
    phases_ns: dict[str, int] = field(default_factory=dict)

    def spend(self, phase: str, nanoseconds: int) -> None:
        """Add to a phase."""
        self.phases_ns[phase] = self.phases_ns.get(phase, 0) + nanoseconds

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add what passes inside to a phase."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spend(name, time.perf_counter_ns() - start)

    @property
    def kind(self) -> str:
        """test, benchmark, leaderboard or profile."""
        return self.request.name.partition(".")[0]

    @property
    def prefix(self) -> str:
        """What the result keys start with."""
        return "test" if self.kind == "test" else "benchmark"

    def fail(self, index: int | None, verdict: str, text: str, *, trace: str = "") -> None:
        """Record a failure; the first one names the mode's verdict."""
        where = f"{self.prefix} {index + 1} of {len(self.cases)}: " if index is not None else ""
        if index is not None:
            self.result[f"{self.prefix}.{index}.status"] = "fail"
            self.result[f"{self.prefix}.{index}.error"] = _one_line(text)
        if trace and len(self.traces) < _MAX_TRACES:
            self.traces.append(f"{where}Traceback (most recent call last):\n{trace}{text}\n")
        if self.verdict == "accepted":
            self.verdict = verdict
            self.message = where + text[:_MAX_ERROR]

    def fail_with(self, index: int | None, fault: Fault) -> None:
        """Record what the worker did."""
        self.timed_out = self.timed_out or fault.timed_out
        self.late = self.late or fault.late
        self.output_limit = self.output_limit or fault.output_limit
        self.fail(index, fault.verdict, fault.message, trace=fault.trace)


@dataclass(frozen=True, kw_only=True)
class _Timed:
    """The timed calls of a case, and what they count as."""

    samples: Sequence[Sample]
    audit: Audit
    #: For the report.
    known: dict[str, Any]

    @property
    def doubt_ns(self) -> float:
        """How far the mean may be off: nothing where the claims count."""
        return 0.0 if self.audit.timing == "audited" else self.audit.noise_ns or 0.0


class WorkerLost(Exception):
    """The worker cannot be asked anything any more; what is to be said about it has been recorded."""


class Judge:
    """One evaluation."""

    def __init__(
        self, request: JudgeRequest, *, device: str, frames: Frames, workers: Workers, collector: Collector
    ) -> None:
        self._request = request
        self._frames = frames
        self._workers = workers
        self._collector = collector
        self._began_ns = time.monotonic_ns()
        self._device = device
        self._calibration: Calibration | None = None
        #: Whether a claim that the judge's clock contradicts does not count.
        self._rejects = device == "cpu" or request.rejects_forged_times
        self._extra: dict[str, Any] = {"system": facts(device)}

    def run(self, directory: Path) -> None:
        """Judge every mode that is asked for, one step frame each."""
        if not self._request.modes:
            self._answer_facts()
            return
        runs = self._prepare(directory)
        if runs is None:
            return
        for run in runs:
            run.start_ns = time.monotonic_ns()
            run.deadline_ns = run.start_ns + round(run.request.timeout_s * 1e9)
            gone = self._run_mode(run)
            if gone or (run.verdict != "accepted" and run.kind != "profile"):
                return

    def _answer_facts(self) -> None:
        start = time.monotonic_ns()
        run = ModeRun(request=ModeRequest(name="facts", cases=(), timeout_s=0), cases=(), start_ns=start, deadline_ns=0)
        run.details["round_trip_ns"] = self._workers.probe(deadline_ns=start + _CALIBRATION_TIMEOUT_NS)
        self._emit(run)

    def _prepare(self, directory: Path) -> list[ModeRun] | None:
        """Parse, import, calibrate, load; None when that has ended the evaluation, with its step sent."""
        first = ModeRun(request=self._request.modes[0], cases=(), start_ns=time.monotonic_ns(), deadline_ns=0)
        self._frames.progress("build", 0, 1)
        try:
            runs = self._parse()
            self._workers.prepare(self._request.files, directory, deadline_ns=time.monotonic_ns() + _START_TIMEOUT_NS)
            self._extra["prepare_ns"] = time.monotonic_ns() - first.start_ns
            if self._device == "cpu" and any(run.kind in _TOTAL_NS for run in runs):
                deadline = time.monotonic_ns() + _CALIBRATION_TIMEOUT_NS
                self._calibration = self._workers.calibrate(deadline_ns=deadline)
                self._extra["calibrate_ns"] = time.monotonic_ns() - first.start_ns - self._extra["prepare_ns"]
            elif self._device != "cpu" and not asked() and any(run.kind in _TOTAL_NS for run in runs):
                self._prepare_device()
        except TaskFault as fault:
            first.fail(None, "invalid", str(fault))
            self._emit(first)
            return None
        except Fault as fault:
            said = self._collector.take().stderr[-2000:]
            raise RuntimeError(
                f"the worker failed before any submission was loaded: {fault.message}\n{said}"
            ) from fault
        load_start = time.monotonic_ns()
        try:
            self._load(load_start)
        except Fault as fault:
            first.cases = runs[0].cases
            first.result[f"{first.prefix}-count"] = str(len(first.cases))
            first.fail_with(None, fault)
            if not fault.gone:
                # What it printed before it failed is still in the worker's buffers.
                with contextlib.suppress(Fault):
                    self._workers.flush(deadline_ns=time.monotonic_ns() + 1_000_000_000)
            self._emit(first)
            return None
        self._extra["load_ns"] = time.monotonic_ns() - load_start
        self._frames.progress("build", 1, 1)
        return runs

    def _prepare_device(self) -> None:
        """Have a device's calls gated if they can be; what cannot be audited is claimed, and says why."""
        deadline = time.monotonic_ns() + _START_TIMEOUT_NS
        flush_bytes = self._request.flush_bytes
        why_not = self._workers.prepare_device(self._device, flush_bytes=flush_bytes, deadline_ns=deadline)
        self._extra["gate"] = "open" if why_not is None else why_not
        if self._request.ranks is None:
            try:
                # Calls by message are bounded, too, from end to end.
                self._calibration = self._workers.calibrate(deadline_ns=deadline)
            except Fault as fault:
                if fault.gone:
                    raise
                # A known kernel that fails here says that times cannot be audited, not that nothing can be run.
                self._extra["gate"] = f"a known kernel failed: {fault.message}"

    def _parse(self) -> list[ModeRun]:
        runs = []
        for mode in self._request.modes:
            if mode.name.partition(".")[0] not in ("test", "benchmark", "leaderboard", "profile"):
                raise TaskFault(f"mode {mode.name!r} is unknown, expected test, benchmark, leaderboard or profile.N")
            try:
                cases = parse_cases(mode.cases, global_seed=self._request.seed)
            except CaseError as error:
                raise TaskFault(f"mode {mode.name!r}: {error}") from error
            if not cases:
                raise TaskFault(f"mode {mode.name!r} has no cases, expected at least one")
            for case in cases:
                self._check_world_size(mode, case)
            runs.append(ModeRun(request=mode, cases=cases, start_ns=0, deadline_ns=0))
        return runs

    def _check_world_size(self, mode: ModeRequest, case: Case) -> None:
        found, ranks = case.arguments.get("world_size"), self._request.ranks
        if found != ranks:
            expected = (
                "none, as the task is for one device" if ranks is None else f"{ranks}, as many as there are ranks"
            )
            raise TaskFault(f"mode {mode.name!r}: case {case.spec!r} has world_size {found}, expected {expected}")

    def _load(self, start_ns: int) -> None:
        request = self._request
        files = {name: request.files[name] for name in request.worker_files if name in request.files}
        files[request.submission_name] = request.submission
        limit = request.build_timeout_s
        compiler = request.compiled.argv[:1] if request.compiled is not None else ()
        if compiler and shutil.which(compiler[0]) is None:
            raise RuntimeError(f"{compiler[0]} is not in this container (install the CUDA toolkit in the type's image)")
        deadline = start_ns + round(limit * 1e9)
        try:
            self._workers.load(files, request.submission_name, deadline_ns=deadline, compiled=request.compiled)
        except Fault as fault:
            if fault.timed_out:
                late = f" ({fault.late})" if fault.late else ""
                raise Fault(
                    "time_limit", f"importing the submission took longer than {limit:g} s{late}", gone=True
                ) from fault
            if fault.gone and fault.verdict == "runtime_error":
                text = f"{fault.message} while the submission was being imported"
                raise Fault("runtime_error", text, gone=True) from fault
            raise

    def _run_mode(self, run: ModeRun) -> bool:
        """Run one mode and send its step; True when the worker is gone."""
        gone = False
        run.result[f"{run.prefix}-count"] = str(len(run.cases))
        waited_ns = self._workers.waited_ns
        try:
            for index, case in enumerate(run.cases):
                self._frames.progress(run.request.name, index, len(run.cases))
                run.result[f"{run.prefix}.{index}.spec"] = case.spec
                self._run_case(run, index, case)
                if run.kind == "leaderboard" and run.verdict != "accepted":
                    break
            else:
                self._frames.progress(run.request.name, len(run.cases), len(run.cases))
            self._workers.flush(deadline_ns=max(run.deadline_ns, time.monotonic_ns() + 1_000_000_000))
        except WorkerLost:
            gone = True
        except Fault as fault:
            run.fail_with(None, fault)
            gone = True
        except TaskFault as fault:
            run.fail(None, "invalid", str(fault))
            gone = True
        if run.timed_out:
            waited_s = (self._workers.waited_ns - waited_ns) / 1e9
            run.message = (
                f"{run.request.name} did not finish within {run.request.timeout_s:g} s "
                f"(the submission was waited for {waited_s:.1f} s of it{f'; {run.late}' if run.late else ''})"
            )
        self._emit(run)
        return gone

    def _run_case(self, run: ModeRun, index: int, case: Case) -> None:
        try:
            self._workers.settle(deadline_ns=run.deadline_ns)
            if run.kind == "test":
                self._test(run, index, case)
            elif run.kind == "profile":
                self._profile(run, index, case)
            else:
                self._benchmark(run, index, case)
        except DeviceUnsteady as unsteady:
            # Neither the submission's fault nor the task's: the daemon evaluates again, elsewhere if it can.
            run.fail(index, "internal_error", str(unsteady))
        except Fault as fault:
            run.fail_with(index, fault)
            if fault.gone:
                raise WorkerLost from fault

    def _test(self, run: ModeRun, index: int, case: Case) -> None:
        rng_seed = rng_seed_of(self._request.seed)
        self._workers.call(case.arguments, rng_seed=rng_seed, output_capacities=(), deadline_ns=run.deadline_ns)
        message = self._workers.check(deadline_ns=run.deadline_ns)
        run.result[f"test.{index}.status"] = "pass"
        if message:
            run.result[f"test.{index}.message"] = _one_line(message)
        _in_time(run)

    def _profile(self, run: ModeRun, index: int, case: Case) -> None:
        rng_seed = rng_seed_of(self._request.seed)
        # The first call builds and warms up; nobody wants that profiled.
        self._workers.call(case.arguments, rng_seed=rng_seed, output_capacities=(), deadline_ns=run.deadline_ns)
        profiles = self._workers.profile(case.arguments, rng_seed=rng_seed, deadline_ns=run.deadline_ns)
        several = len(profiles) > 1
        tables = [
            (f"rank {rank}\n".encode() if several else b"") + profiled.table for rank, profiled in enumerate(profiles)
        ]
        run.result[f"benchmark.{index}.report"] = to_b64(b"\n".join(tables))
        name = run.request.name if len(run.cases) == 1 else f"{run.request.name}.{index}"
        for rank, profiled in enumerate(profiles):
            base = f"{name}{f'.rank{rank}' if several else ''}"
            files = ((profiled.trace, "trace.json.gz", "application/gzip"), (profiled.report, profiled.suffix, _BINARY))
            for data, suffix, media_type in files:
                if data:
                    artifact = Artifact(name=f"{base}.{suffix}", media_type=media_type, data=data)
                    self._frames.send(artifact.to_message())

    def _benchmark(self, run: ModeRun, index: int, case: Case) -> None:
        start = time.monotonic_ns()
        left = (run.deadline_ns - start) / (len(run.cases) - index)
        stopping = Stopping.of(
            run.request.timing, max_kernel_ns=_TOTAL_NS[run.kind], max_wall_ns=min(_CASE_WALL_NS, 0.9 * left)
        )
        timed = _TimedCase(self._workers, run, case, rng_seed=rng_seed_of(self._request.seed))
        timed.warm_up()
        found = self._time(run, timed, stopping, start_ns=start)
        used_ns = time.monotonic_ns() - start
        if self._should_time_again(found, timed) and used_ns <= _AGAIN_SHARE * stopping.max_wall_ns:
            timed.forget_controls()
            found = min(
                found, self._time(run, timed, stopping, start_ns=time.monotonic_ns()), key=lambda row: row.doubt_ns
            )
            found.known["timed_again"] = True
        timed.check_last()
        with run.phase("statistics"):
            known = {**found.known, **timed.details}
            self._report(run, index, found.samples, found.audit, stopping=stopping, known=known)

    def _time(self, run: ModeRun, timed: _TimedCase, stopping: Stopping, *, start_ns: int) -> _Timed:
        """Call until the stopping rule is content, and say what the calls count as."""
        spans: list[Span[Sample]] = []
        throttle_filter = ThrottleFilter[Sample](self._collector.readings)
        so_far = Running()
        repeated = 0
        while True:
            stopped = stopping.reason(so_far, wall_ns=time.monotonic_ns() - start_ns)
            if stopped is not None:
                # What a slowed device has counted for is made good, if there is time for it.
                spans, before = throttle_filter.apply(spans), len(spans)
                if len(spans) == before:
                    break
                so_far = Running.of(span.sample.claimed_ns for span in spans)
                continue
            called_ns = time.monotonic_ns()
            call = timed.sample()
            sample = self._sample_of(call)
            if repeated < _MAX_REPEATED + len(spans) and not self._believes(sample, timed.controls):
                repeated += 1
                continue
            spans.append(Span(sample=sample, start_ns=called_ns, end_ns=time.monotonic_ns()))
            so_far.add(sample.claimed_ns)
            if sample.claim_ns >= _MORE_FROM_NS and len(spans) % _CONTROLS_EVERY == 0:
                timed.call_controls(_CONTROLS)
            _in_time(run)
        samples = [span.sample for span in spans]
        self._add_controls(timed, samples)
        with run.phase("statistics"):
            found = audit(samples, controls_ns=timed.controls_ns, tolerance=self._request.tolerance)
        known = {"repeated": repeated, "stopped": stopped, "controls": timed.controls_made, **throttle_filter.details}
        return _Timed(samples=samples, audit=found, known=known)

    def _should_time_again(self, found: _Timed, timed: _TimedCase) -> bool:
        """Whether a case is worth timing again: its claims do not count, which a noisy moment may be the reason of."""
        long_enough = median(sample.claim_ns for sample in found.samples) >= _AGAIN_FROM_NS
        small_enough = timed.input_bytes <= _MORE_UP_TO_BYTES
        measured = found.audit.timing == "measured" and not found.audit.is_forged
        return timed.controls_ns is not None and measured and long_enough and small_enough

    def _believes(self, sample: Sample, controls: ControlCosts | None) -> bool:
        """Whether a call counts as it is, as far as is known yet."""
        if controls is not None:
            return controls.believes(sample)
        return not self._rejects or sample.bound is None or sample.claim_ns >= sample.bound.bound_ns

    def _add_controls(self, timed: _TimedCase, samples: Sequence[Sample]) -> None:
        """Make more control calls where the hand-over is not known closely enough for kernels so short."""
        claim_ns = median(sample.claim_ns for sample in samples)
        if claim_ns < _MORE_FROM_NS:
            timed.call_controls(_LAST_CONTROLS)
            return
        if timed.input_bytes > _MORE_UP_TO_BYTES:
            return
        while timed.controls is not None and timed.controls.count < _MOST_CONTROLS:
            controls = timed.controls
            if controls.statistical_ns(calls=len(samples), sd_ns=controls.sd_ns) <= _WANTED_ERROR * claim_ns:
                return
            before = controls.count
            timed.call_controls(_MORE_CONTROLS)
            if timed.controls.count == before:
                return

    def _report(
        self,
        run: ModeRun,
        index: int,
        samples: Sequence[Sample],
        found: Audit,
        *,
        stopping: Stopping,
        known: Mapping[str, Any],
    ) -> None:
        """What a case's samples come to; `known` goes into the details, too."""
        told = {**details(samples, found), **known}
        run.details.setdefault("cases", []).append(told)
        if self._rejects and found.is_forged:
            raise Fault(
                "rejected",
                f"the submission claims {told['claimed_median_ns'] / 1e6:.3f} ms per call, but at least "
                f"{found.least_ns / 1e6:.3f} ms passed on the judge's clock",
            )
        summary, findings = summarise(found.counted), examine(found.counted)
        # How steady the kernel is: what is measured also holds the interrupts of the hand-over.
        claims = summarise([sample.claimed_ns for sample in samples])
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
        # One case whose time stands on the worker's word alone makes the mode's score stand on it.
        assurance = "claimed" if known["fixed_inputs"] else found.timing
        if assurance == "audited" and any(sample.by_host for sample in samples):
            assurance = "audited_host"
        run.timing = assurance if index == 0 else min(assurance, run.timing, key=_ASSURANCES.index)
        _write_summary(run.result, index, summary)
        _write_findings(run.result, index, findings, noise, stopped=known["stopped"])
        run.result[f"benchmark.{index}.runner.timing"] = assurance
        if found.interval is not None:
            low, high = found.interval
            run.result[f"benchmark.{index}.runner.interval"] = str([round(low, 1), round(high, 1)])

    def _sample_of(self, call: Call) -> Sample:
        """One timed call beside its outside bound."""
        bound = None
        if self._calibration is not None:
            bound = self._calibration.costs(by_flags=call.by_flags).bound(
                outside_ns=call.outside_ns,
                tensors=call.tensors,
                input_bytes=call.input_bytes,
                output_bytes=call.output_bytes,
                parts=call.parts,
            )
        return Sample(
            claim_ns=call.claim_ns,
            outside_ns=call.outside_ns,
            bound=bound,
            delayed_ns=call.delayed_ns,
            # On a device a call by message is a conversation with the host.
            by_host=call.by_host or (self._device != "cpu" and not call.by_flags),
        )

    def _emit(self, run: ModeRun) -> None:
        captured = self._collector.take()
        passed = run.verdict == "accepted"
        if run.request.name != "facts":
            run.result["check"] = "pass" if passed else "fail"
        stderr = "\n".join(part for part in (captured.stderr, *run.traces) if part)
        details = run.details | self._extra
        if run.phases_ns:
            details["phases_ns"] = run.phases_ns
        if self._calibration is not None and run.kind in _TOTAL_NS:
            details["calibration"] = self._calibration.as_details()
        self._extra = {}
        exit_code = EXIT_PASSED if passed else EXIT_TIMED_OUT if run.timed_out else EXIT_NOT_PASSED
        self._frames.send(
            StepResult(
                name=run.request.name,
                command=f"judge {run.request.name}",
                start_ns=run.start_ns - self._began_ns,
                duration_ns=time.monotonic_ns() - run.start_ns,
                exit_code=exit_code,
                timed_out=run.timed_out,
                output_limit=run.output_limit,
                stdout=captured.stdout,
                stderr=stderr,
                stdout_bytes=captured.stdout_bytes,
                stderr_bytes=captured.stderr_bytes,
                result=run.result,
                judged=Judged(
                    verdict=run.verdict,
                    message=run.message,
                    assurance={"correctness": "judge", "timing": run.timing},
                    details=details,
                ),
            ).to_message()
        )


class _TimedCase:
    """One benchmark case: fresh inputs for every call, every output checked as far as the budget goes."""

    def __init__(self, workers: Workers, run: ModeRun, case: Case, *, rng_seed: int) -> None:
        self._workers = workers
        self._run = run
        self._case = case
        self._rng_seed = rng_seed
        self._output_capacities: tuple[int, ...] = ()
        self._shape: object = None
        self._check_ns = 0
        self._checked = 0
        self._claims_ns: list[tuple[int, ...]] = []
        self._unchecked = False
        #: What control calls in between cost, row by row; None where none can be made.
        self.controls_ns: list[Sequence[float]] | None = None
        self.controls: ControlCosts | None = None
        self._last: Call | None = None
        #: The case changes its shapes with its seed, so every call has the same inputs.
        self.fixed = False

    @property
    def details(self) -> dict[str, Any]:
        """For the report."""
        by_rank = [median(claims) for claims in zip(*self._claims_ns, strict=True)]
        return {
            "calls": len(self._claims_ns),
            "checked": self._checked,
            "fixed_inputs": self.fixed,
            **({"claimed_median_by_rank_ns": by_rank} if len(by_rank) > 1 else {}),
        }

    def warm_up(self) -> None:
        """A call with the case's own seed, checked, not timed; to the worker it looks like every other."""
        call = self._call(self._case.arguments, rng_seed=self._rng_seed)
        self._output_capacities, self._shape = call.output_capacities, call.shape
        self._check()
        # A second one goes the way that timed calls go, and control calls like it.
        self._last = self._fresh()
        self._check()
        self.call_controls(_FIRST_CONTROLS)

    def sample(self) -> Call:
        """One timed call."""
        call = self._fresh()
        self._claims_ns.append(call.claims_ns)
        self._last = call
        self._unchecked = True
        if self._check_ns < _CHECK_BUDGET_NS or secrets.randbelow(_CHECK_SHARE) == 0:
            self._check()
        return call

    @property
    def controls_made(self) -> int:
        """How many control calls count."""
        return sum(map(len, self.controls_ns or ()))

    def forget_controls(self) -> None:
        """Begin anew, with a first row."""
        self.controls_ns = self.controls = None
        self.call_controls(_FIRST_CONTROLS)

    @property
    def input_bytes(self) -> int:
        """Of one call."""
        return 0 if self._last is None else self._last.input_bytes

    def call_controls(self, count: int) -> None:
        """Make control calls that hand over as much as the last call, which is checked before if it was not."""
        if self._last is None:
            raise RuntimeError("nothing has been called that control calls could be like")
        self.check_last()
        fresh = iter(self._fresh_arguments, None)
        with self._run.phase("controls"):
            for _ in range(_CONTROL_TRIES):
                costs_ns = self._workers.control(fresh, count, like=self._last, deadline_ns=self._run.deadline_ns)
                if costs_ns is None:
                    return
                self.controls_ns = [*(self.controls_ns or ()), costs_ns]
                self.controls = ControlCosts.of(self.controls_ns)
                if self.controls is not None:
                    return

    def check_last(self) -> None:
        """Check the last call if it was not."""
        if self._unchecked:
            self._check()

    def _fresh_arguments(self) -> Mapping[str, Value]:
        return self._case.arguments if self.fixed else self._case.with_seed(_fresh_seed(self._case))

    def _fresh(self) -> Call:
        if not self.fixed:
            call = self._call(self._fresh_arguments(), rng_seed=None)
            if call.shape == self._shape:
                return call
            # Another problem size would be timed; the outcome of this call is dropped, its output was never wanted.
            self.fixed = True
        return self._call(self._case.arguments, rng_seed=self._rng_seed)

    def _call(self, arguments: Mapping[str, Value], *, rng_seed: int | None) -> Call:
        start = time.perf_counter_ns()
        call = self._workers.call(
            arguments, rng_seed=rng_seed, output_capacities=self._output_capacities, deadline_ns=self._run.deadline_ns
        )
        rest_ns = time.perf_counter_ns() - start - call.made_ns - call.outside_ns
        for phase, nanoseconds in (("inputs", call.made_ns), ("call", call.outside_ns), ("hand_over", rest_ns)):
            self._run.spend(phase, nanoseconds)
        return call

    def _check(self) -> None:
        start = time.perf_counter_ns()
        self._workers.check(deadline_ns=self._run.deadline_ns)
        spent_ns = time.perf_counter_ns() - start
        self._check_ns += spent_ns
        self._run.spend("check", spent_ns)
        self._checked += 1
        self._unchecked = False


def _fresh_seed(case: Case) -> int:
    """A seed nobody can foresee, in the range every generator takes (below 2**31)."""
    digest = hashlib.sha256(os.urandom(16) + str(case.seed).encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFF_FFFF


def _in_time(run: ModeRun) -> None:
    if time.monotonic_ns() > run.deadline_ns:
        raise Fault("time_limit", "the time limit passed", gone=True)


def _write_summary(result: dict[str, str], index: int, summary: Summary) -> None:
    values = {
        "runs": summary.runs,
        "mean": summary.mean,
        "std": summary.std,
        "err": summary.err,
        "best": summary.best,
        "worst": summary.worst,
        "median": summary.median,
        "p10": summary.p10,
        "p90": summary.p90,
        "ci95": list(summary.ci95),
    }
    result.update({f"benchmark.{index}.{key}": str(value) for key, value in values.items()})


def _write_findings(result: dict[str, str], index: int, findings: Findings, noise: Noise, *, stopped: str) -> None:
    """What KernelBot has no keys for, under keys that are nobody else's."""
    values: dict[str, object] = {
        "mean_ci95": list(findings.mean_ci95),
        "outliers": round(findings.outliers, 4),
        "stopped": stopped,
    }
    if findings.drift is not None:
        values |= {"drift": round(findings.drift.change, 5), "drift_p": round(findings.drift.p, 6)}
    if noise.remark is not None:
        values["noisy"] = noise.remark
    result.update({f"benchmark.{index}.runner.{key}": str(value) for key, value in values.items()})


def _one_line(text: str) -> str:
    # The result lines are split at newlines; frontends turn the two characters back into one.
    return text[:_MAX_ERROR].strip().replace("\n", "\\n")


def _start_threads() -> None:
    """Start torch's threads now: later the submission may have left none of the container's processes for them.

    One less than there are cores: the worker waits for its next call on one of them, and whatever is shared out to that
    one waits for the scheduler, each time.
    """
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
    torch.ones(1 << 20).add_(1)


def _further_sockets(ranks: int) -> list[socket.socket]:
    """The judge's ends of the lines to further workers, which are started with the request."""
    with socket.socket(fileno=int(os.environ.pop("KR_RANKS_FD"))) as line:
        line.settimeout(_START_TIMEOUT_NS / 1e9)
        found: list[int] = []
        while len(found) < ranks - 1:
            data, descriptors, _, _ = socket.recv_fds(line, 1, 1)
            if not data:
                raise RuntimeError(f"{len(found) + 1} workers were started, expected {ranks}")
            found += descriptors
    return [socket.socket(fileno=descriptor) for descriptor in found]


def _workers(
    request: JudgeRequest, device: str, collector: Collector, line: socket.socket, single_rank: SingleRank
) -> Workers:
    further = _further_sockets(request.ranks or 1)
    if request.ranks is None:
        single_rank.limit(request.memory_bytes)
        return single_rank
    single_rank.close()
    return MultiRank([line, *further], collector, device=device, memory_bytes=request.memory_bytes)


def _sees_devices() -> bool:
    """Whether there is an accelerator in this box, as far as a file says so: asking its driver would start it."""
    return any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def main() -> int:
    """Entry point: wait for a request on stdin, judge it, leave. Exit code 0 unless the harness itself broke."""
    # Before anything else: it is to have no threads, no descriptors and no secrets of this process.
    control = Control.start()
    guard_heap()
    _start_threads()
    install_if_asked()
    frames = Frames()
    try:
        scramble()
        collector = Collector(
            stdout_fd=int(os.environ.pop("KR_WORKER_STDOUT_FD")),
            stderr_fd=int(os.environ.pop("KR_WORKER_STDERR_FD")),
            steward_fd=0,
        )
        line = socket.socket(fileno=int(os.environ.pop("KR_WORKER_FD")))
        single_rank = SingleRank(line, collector, control=control)
        if not _sees_devices() and not select.select([0], [], [], 0)[0]:
            # Nobody waits for this yet, as a rule; on a device times are not audited by what is measured here.
            single_rank.warm_up(deadline_ns=time.monotonic_ns() + _START_TIMEOUT_NS)
        request = JudgeRequest.from_payload(read_request(0)["payload"])
        device = request.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        with contextlib.closing(_workers(request, device, collector, line, single_rank)) as workers:
            collector.start()
            Judge(request, device=device, frames=frames, workers=workers, collector=collector).run(Path.cwd())
    except Exception:  # noqa: BLE001 the harness boundary: the steward passes this on as `internal_error`
        traceback.print_exc()
        return 1
    sys.stderr.flush()
    # Every frame has been written. Tearing down torch, and threads of the task's, would only cost time.
    os._exit(0)
