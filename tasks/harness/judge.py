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
import ctypes
import hashlib
import os
import random
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The reference's threads must not go on spinning while the submission is timed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from sandbox.protocol import Judged, StepResult, encode, to_b64

from .cases import Case, CaseError, parse_cases
from .clock import Calibration, Sample, audit_details, forged, tight
from .output import Collector, read_request
from .peer import Called, Fault, Peer
from .problem import CheckRaised, Problem, TaskFault, pack_inputs, rng_seed_of, scramble
from .request import JudgeRequest, ModeRequest
from .stats import Stopping, Summary, summarise
from .system import facts
from .values import pack, signature, tree_signature

EXIT_PASSED, EXIT_NOT_PASSED, EXIT_TIMED_OUT = 0, 112, 114
_PROGRESS_NS = 200_000_000
_MAX_ERROR = 4_000
#: Of one mode; the frontends show less.
_MAX_TRACES = 20
#: Seconds of one benchmark case that may go into checking every output; after that a random part is checked.
_CHECK_BUDGET_NS = 20_000_000_000
_CHECK_SHARE = 8
_CASE_WALL_NS = 120_000_000_000
_TOTAL_NS = {"benchmark": 10_000_000_000, "leaderboard": 30_000_000_000}
#: Calls whose claim the outside clock contradicts are made again, since an interrupt is no cheat: this many per case,
#: and one more for every call that counts. Beyond that the judge's own estimate counts.
_MAX_REPEATED = 10
_CALIBRATION_TIMEOUT_NS = 30_000_000_000


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
    output_limit: bool = False
    #: Tracebacks of the submission, shown below its own stderr.
    traces: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    timing: str = "claimed"

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
        self.output_limit = self.output_limit or fault.output_limit
        self.fail(index, fault.verdict, fault.message, trace=fault.trace)


class Gone(Exception):
    """The worker cannot be asked anything any more; what is to be said about it has been recorded."""


class Judge:
    """One evaluation."""

    def __init__(self, request: JudgeRequest, *, frames: Frames, peer: Peer, collector: Collector) -> None:
        self._request = request
        self._frames = frames
        self._peer = peer
        self._collector = collector
        self._began_ns = time.monotonic_ns()
        self._device = request.device
        if self._device == "auto":
            self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._problem: Problem
        self._calibration: Calibration | None = None
        self._extra: dict[str, Any] = {"system": facts(self._device)}

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
        value = (0, torch.zeros(64, dtype=torch.uint8), 64)
        called = self._peer.call(pack(value), room_bytes=64, deadline_ns=start + _CALIBRATION_TIMEOUT_NS)
        if not torch.equal(torch.as_tensor(called.output.value()), value[1]):
            raise RuntimeError("the worker's answer to a known kernel is not what it was given")
        run = ModeRun(request=ModeRequest(name="facts", cases=(), timeout_s=0), cases=(), start_ns=start, deadline_ns=0)
        run.details["round_trip_ns"] = called.outside_ns
        self._emit(run)

    def _prepare(self, directory: Path) -> list[ModeRun] | None:
        """Parse, import, calibrate, load; None when that has ended the evaluation, with its step sent."""
        first = ModeRun(request=self._request.modes[0], cases=(), start_ns=time.monotonic_ns(), deadline_ns=0)
        self._frames.progress("build", 0, 1)
        try:
            runs = self._parse()
            self._problem = Problem.load(self._request.files, directory)
            if self._device == "cpu" and any(run.kind in _TOTAL_NS for run in runs):
                deadline = time.monotonic_ns() + _CALIBRATION_TIMEOUT_NS
                self._calibration = self._peer.calibrate(deadline_ns=deadline)
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
                    self._peer.flush(deadline_ns=time.monotonic_ns() + 1_000_000_000)
            self._emit(first)
            return None
        self._extra["load_ns"] = time.monotonic_ns() - load_start
        self._frames.progress("build", 1, 1)
        return runs

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
            if self._request.multi_gpu or any("world_size" in case.arguments for case in cases):
                raise TaskFault(
                    "the task needs several devices (multi_gpu, world_size); the built-in harness runs one rank only: "
                    "use the task's own eval program"
                )
            runs.append(ModeRun(request=mode, cases=cases, start_ns=0, deadline_ns=0))
        return runs

    def _load(self, start_ns: int) -> None:
        request = self._request
        files = {name: request.files[name] for name in request.worker_files if name in request.files}
        files[request.submission_name] = request.submission
        limit = request.build_timeout_s
        try:
            self._peer.load(files, request.submission_name, deadline_ns=start_ns + round(limit * 1e9))
        except Fault as fault:
            if fault.timed_out:
                raise Fault(
                    "time_limit", f"importing the submission took longer than {limit:g} s", gone=True
                ) from fault
            if fault.gone and fault.verdict == "runtime_error":
                text = f"{fault.message} while the submission was being imported"
                raise Fault("runtime_error", text, gone=True) from fault
            raise

    def _run_mode(self, run: ModeRun) -> bool:
        """Run one mode and send its step; True when the worker is gone."""
        gone = False
        run.result[f"{run.prefix}-count"] = str(len(run.cases))
        waited_ns = self._peer.waited_ns
        try:
            for index, case in enumerate(run.cases):
                self._frames.progress(run.request.name, index, len(run.cases))
                run.result[f"{run.prefix}.{index}.spec"] = case.spec
                self._run_case(run, index, case)
                if run.kind == "leaderboard" and run.verdict != "accepted":
                    break
            else:
                self._frames.progress(run.request.name, len(run.cases), len(run.cases))
            self._peer.flush(deadline_ns=max(run.deadline_ns, time.monotonic_ns() + 1_000_000_000))
        except Gone:
            gone = True
        except Fault as fault:
            run.fail_with(None, fault)
            gone = True
        except TaskFault as fault:
            run.fail(None, "invalid", str(fault))
            gone = True
        if run.timed_out:
            waited_s = (self._peer.waited_ns - waited_ns) / 1e9
            run.message = (
                f"{run.request.name} did not finish within {run.request.timeout_s:g} s "
                f"(the submission was waited for {waited_s:.1f} s of it)"
            )
        self._emit(run)
        return gone

    def _run_case(self, run: ModeRun, index: int, case: Case) -> None:
        try:
            if run.kind == "test":
                self._test(run, index, case)
            elif run.kind == "profile":
                self._profile(run, index, case)
            else:
                self._benchmark(run, index, case)
        except Fault as fault:
            run.fail_with(index, fault)
            if fault.gone:
                raise Gone from fault

    def _test(self, run: ModeRun, index: int, case: Case) -> None:
        data = self._problem.generate(case.arguments, rng_seed=rng_seed_of(self._request.seed))
        packed = pack_inputs(data, memory_bytes=self._request.memory_bytes)
        called = self._peer.call(packed, room_bytes=0, deadline_ns=run.deadline_ns)
        message = self._check(case.arguments, data, called)
        run.result[f"test.{index}.status"] = "pass"
        if message:
            run.result[f"test.{index}.message"] = _one_line(message)
        _in_time(run)

    def _profile(self, run: ModeRun, index: int, case: Case) -> None:
        data = self._problem.generate(case.arguments, rng_seed=rng_seed_of(self._request.seed))
        packed = pack_inputs(data, memory_bytes=self._request.memory_bytes)
        # The first call builds and warms up; nobody wants that profiled.
        self._peer.call(packed, room_bytes=0, deadline_ns=run.deadline_ns)
        profiled = self._peer.profile(packed, deadline_ns=run.deadline_ns)
        run.result[f"benchmark.{index}.report"] = to_b64(profiled.table)
        if profiled.trace:
            name = run.request.name if len(run.cases) == 1 else f"{run.request.name}.{index}"
            self._frames.send(
                {
                    "type": "artifact",
                    "name": f"{name}.trace.json.gz",
                    "media_type": "application/gzip",
                    "data_b64": to_b64(profiled.trace),
                }
            )

    def _benchmark(self, run: ModeRun, index: int, case: Case) -> None:
        start = time.monotonic_ns()
        left = (run.deadline_ns - start) / (len(run.cases) - index)
        stopping = Stopping(total_ns=_TOTAL_NS[run.kind], wall_ns=min(_CASE_WALL_NS, 0.9 * left))
        timed = _TimedCase(self, run, case)
        timed.warm_up()
        samples: list[Sample] = []
        repeated = 0
        while not stopping.enough([s.time_ns for s in samples], wall_ns=time.monotonic_ns() - start):
            sample = timed.sample()
            if not sample.believed and repeated < _MAX_REPEATED + len(samples):
                repeated += 1
                continue
            samples.append(sample)
            _in_time(run)
        timed.check_last()
        audit = dict(audit_details(samples, repeated=repeated)) | timed.details
        run.details.setdefault("cases", []).append(audit)
        if forged(samples):
            raise Fault(
                "rejected",
                f"the submission claims {audit['claimed_median_ns'] / 1e6:.3f} ms per call, but at least "
                f"{audit['bound_median_ns'] / 1e6:.3f} ms passed on the judge's clock",
            )
        # One case whose time stands on the worker's word alone makes the mode's score stand on it.
        audited = tight(samples) and not timed.fixed and (run.timing == "audited" or index == 0)
        run.timing = "audited" if audited else "claimed"
        _write_summary(run.result, index, summarise([sample.time_ns for sample in samples]))

    def call_case(self, run: ModeRun, arguments: Mapping[str, Any], *, rng_seed: int | None, room: int) -> _Call:
        """Generate inputs and make one call with them."""
        data = self._problem.generate(arguments, rng_seed=rng_seed)
        packed = pack_inputs(data, memory_bytes=self._request.memory_bytes)
        called = self._peer.call(packed, room_bytes=room, deadline_ns=run.deadline_ns)
        return _Call(arguments=arguments, data=data, shape=tree_signature(packed), called=called)

    def check_call(self, call: _Call) -> None:
        """Check one call's output.

        Raises:
            Fault: it is wrong.
            TaskFault: the task could not say.
        """
        self._check(call.arguments, call.data, call.called)

    def sample_of(self, called: Called) -> Sample:
        """One timed call beside its outside bound."""
        bound = None
        if self._calibration is not None:
            bound = self._calibration.bound(
                outside_ns=called.outside_ns,
                tensors=called.tensors,
                input_bytes=called.input_bytes,
                output_bytes=called.output_bytes,
            )
        return Sample(claim_ns=called.claim_ns, outside_ns=called.outside_ns, bound=bound)

    @property
    def global_seed(self) -> int | None:
        """POPCORN_SEED's value."""
        return self._request.seed

    def _check(self, arguments: Mapping[str, Any], data: object, called: Called) -> str:
        opaque = called.output.opaque
        if opaque is not None:
            raise Fault("wrong_answer", f"custom_kernel returned a {opaque}, which cannot be read as tensor data")
        try:
            good, message = self._problem.check(data, called.output.value())
        except CheckRaised as raised:
            if self._same_structure(arguments, called):
                raise TaskFault(f"the task's check_implementation raised {raised} (reference.py)") from raised
            raise Fault("wrong_answer", f"the output could not be compared: {raised}") from raised
        if not good:
            raise Fault("wrong_answer", message)
        return message

    def _same_structure(self, arguments: Mapping[str, Any], called: Called) -> bool:
        """Whether the output looks like the reference's; without a reference, whether it holds tensors at all."""
        data = self._problem.generate(arguments, rng_seed=rng_seed_of(self._request.seed))
        expected = self._problem.expected(data)
        if expected is None:
            return called.output.has_tensor
        return signature(expected) == called.output.signature

    def _emit(self, run: ModeRun) -> None:
        captured = self._collector.take()
        passed = run.verdict == "accepted"
        if run.request.name != "facts":
            run.result["check"] = "pass" if passed else "fail"
        stderr = "\n".join(part for part in (captured.stderr, *run.traces) if part)
        details = run.details | self._extra
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


@dataclass(kw_only=True)
class _Call:
    arguments: Mapping[str, Any]
    data: object
    shape: object
    called: Called


class _TimedCase:
    """One benchmark case: fresh inputs for every call, every output checked as far as the budget goes."""

    def __init__(self, judge: Judge, run: ModeRun, case: Case) -> None:
        self._judge = judge
        self._run = run
        self._case = case
        self._room = 0
        self._shape: object = None
        self._check_ns = 0
        self._calls = 0
        self._checked = 0
        self._unchecked: _Call | None = None
        #: The case changes its shapes with its seed, so every call has the same inputs.
        self.fixed = False

    @property
    def details(self) -> dict[str, Any]:
        """For the report."""
        return {"calls": self._calls, "checked": self._checked, "fixed_inputs": self.fixed}

    def warm_up(self) -> None:
        """A call with the case's own seed, checked, not timed; to the worker it looks like every other."""
        rng_seed = rng_seed_of(self._judge.global_seed)
        call = self._judge.call_case(self._run, self._case.arguments, rng_seed=rng_seed, room=0)
        self._room, self._shape = call.called.output_bytes, call.shape
        self._check(call)

    def sample(self) -> Sample:
        """One timed call."""
        call = self._fresh()
        self._calls += 1
        budget_left = self._check_ns < _CHECK_BUDGET_NS
        if budget_left or secrets.randbelow(_CHECK_SHARE) == 0:
            self._check(call)
            self._unchecked = None
        else:
            self._unchecked = call
        return self._judge.sample_of(call.called)

    def check_last(self) -> None:
        """Check the last call if it was not."""
        if self._unchecked is not None:
            self._check(self._unchecked)
            self._unchecked = None

    def _fresh(self) -> _Call:
        if not self.fixed:
            arguments = self._case.with_seed(_fresh_seed(self._case))
            call = self._judge.call_case(self._run, arguments, rng_seed=None, room=self._room)
            if call.shape == self._shape:
                return call
            # Another problem size would be timed; the outcome of this call is dropped, its output was never wanted.
            self.fixed = True
        rng_seed = rng_seed_of(self._judge.global_seed)
        return self._judge.call_case(self._run, self._case.arguments, rng_seed=rng_seed, room=self._room)

    def _check(self, call: _Call) -> None:
        start = time.monotonic_ns()
        self._judge.check_call(call)
        self._check_ns += time.monotonic_ns() - start
        self._checked += 1


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


def _one_line(text: str) -> str:
    # The result lines are split at newlines; frontends turn the two characters back into one.
    return text[:_MAX_ERROR].strip().replace("\n", "\\n")


def _guard_heap() -> None:
    """Overwrite memory as it is allocated and freed.

    A task's torch.empty is handed to the worker as it is; without this it could hold pieces of the request.
    """
    m_perturb = -6
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(m_perturb, random.SystemRandom().randrange(1, 255))


def _start_threads() -> None:
    """Start torch's threads now: later the submission may have left none of the container's processes for them."""
    torch.ones(1 << 20).add_(1)


def main() -> int:
    """Entry point: wait for a request on stdin, judge it, leave. Exit code 0 unless the harness itself broke."""
    _guard_heap()
    _start_threads()
    frames = Frames()
    try:
        scramble()
        request = JudgeRequest.from_payload(read_request(0)["payload"])
        collector = Collector(
            stdout_fd=int(os.environ.pop("KR_WORKER_STDOUT_FD")),
            stderr_fd=int(os.environ.pop("KR_WORKER_STDERR_FD")),
            steward_fd=0,
        )
        sock = socket.socket(fileno=int(os.environ.pop("KR_WORKER_FD")))
        peer = Peer(sock, collector, memory_bytes=request.memory_bytes)
        collector.start()
        Judge(request, frames=frames, peer=peer, collector=collector).run(Path.cwd())
    except Exception:  # noqa: BLE001 the harness boundary: the steward passes this on as `internal_error`
        traceback.print_exc()
        return 1
    sys.stderr.flush()
    # Every frame has been written. Tearing down torch, and threads of the task's, would only cost time.
    os._exit(0)
