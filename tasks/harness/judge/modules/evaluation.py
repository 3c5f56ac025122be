"""A group: prepare the reference, then judge one candidate after the other, each in a worker of its own.

A candidate's worker has never run another candidate's code. The one that is used up is killed with all its processes
and its files before the next is there. The order of candidates is secret.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from sandbox.protocol import Judged, StepResult
from tasks.harness.judge.accelerator import DeviceFailed
from tasks.harness.judge.benchmark import Benchmark
from tasks.harness.judge.cases import parse_cases
from tasks.harness.judge.control import Control
from tasks.harness.judge.faults import Fault
from tasks.harness.judge.frames import Frames
from tasks.harness.judge.hand_over import Calibration
from tasks.harness.judge.mode_run import ModeRun
from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.judge.stopping import Stopping
from tasks.harness.judge.system_facts import facts
from tasks.harness.judge.throttling import DeviceUnsteady
from tasks.harness.judge.timed_case import TimedCase
from tasks.harness.judge.worker_client import WorkerClient
from tasks.harness.judge.worker_output import Collector
from tasks.harness.judge.workers import Workers

from .compare import Tolerance, compare, kernelbench_allclose
from .distributions import tensors_of
from .group import DEVICE_BASELINES, Candidate, Group, Result
from .moments import DRAWS, unlike
from .prepare import Expected, Prepared, Trial, prepare
from .reference_module import InvalidReference, Reference
from .reference_times import ReferenceTimes
from .side import ModuleSide
from .speedup import Row, Speedup, claimed_ratio, speedup_of, stats_of
from .static import flags_of
from .weights import describe_match, is_full, matching

#: How long a worker may take to start, and to answer with known code.
_START_NS = 120_000_000_000
_SEEDS = 1 << 31
#: Calls of one row of the reference: half of a candidate's, one row before it and one after.
_FEWEST_REFERENCE_CALLS = 5
#: Calls of each side with their launches in the time, on a device.
_HOST_CALLS = 5
#: Control calls of a row. Of tiny modules, more would tell little more, and cost more than the row itself.
_MOST_CONTROLS = 30
_VERDICTS = {"output_limit": "runtime_error"}

#: Asks init for a worker ("candidate" or "reference"), and returns the judge's end of its socket.
NewWorker = Callable[[str], socket.socket]
#: Asks init for what was built of a candidate, for the worker that is there. False: none of it can be used.
Unpack = Callable[[int], bool]


class GroupJudge:
    """Judges one group."""

    def __init__(
        self,
        group: Group,
        *,
        request: JudgeRequest,
        device: str,
        frames: Frames,
        collector: Collector,
        first: WorkerClient,
        control: Control | None,
        new_worker: NewWorker,
        calibration: Calibration | None = None,
        gate: str = "",
        known: Mapping[str, ReferenceTimes] | None = None,
        builds: Mapping[int, str | None] | None = None,
        unpack: Unpack | None = None,
    ) -> None:
        """Make the judge of one group.

        Args:
            group: what is judged.
            request: what the timing of calls asks of a request.
            device: where its tensors are.
            frames: to the daemon.
            collector: of what the candidates' workers print.
            first: a worker that has run no candidate's code.
            control: the control process; None on a device, or where it would say nothing.
            new_worker: see `NewWorker`.
            calibration: on a device, what calls cost there.
            gate: on a device, `open` if the judge's own work marks calls, or why not.
            known: times of the reference from earlier groups, by mode.
            builds: of candidates that were built ahead, as `GroupRequest` has them.
            unpack: see `Unpack`; None: nothing was built.
        """
        self._group = group
        self._settings = group.settings
        self._request = request
        self._device = device
        self._frames = frames
        self._collector = collector
        self._control = control
        self._new_worker = new_worker
        self._builds = builds or {}
        self._unpack = unpack
        self._core = first.core
        self._calibration = calibration
        self.gate = gate
        #: What was measured of the device; None: calls on it go by message.
        self._measured = first.device_measured
        #: The candidate's worker that is there, or was last: what the judge holds for it is freed when it is gone.
        self._spent = first
        #: Times of the reference that count for the next candidate, and for later groups, by mode.
        self._known = {} if self._settings.fresh_reference else dict(known or {})
        self._times: dict[str, ReferenceTimes] = {}
        system = facts(device)
        self.device_name = str(system["cpu"] if device == "cpu" else system["gpu"])
        self.software = f"torch {system['torch']}, {system['runtime']}, {system['platform']}"
        #: A worker that has run no candidate's code; None: the last one is used up.
        self._fresh: WorkerClient | None = first
        self._used = 0
        self._began_ns = time.monotonic_ns()
        self._reference_side: ModuleSide | None = None
        #: The reference's row before the next candidate, by mode.
        self._rows: dict[bool, Row] = {}
        #: A worker for each further baseline, and its row by mode; and the reference's row with launches.
        self._further: dict[str, ModuleSide] = {}
        self._further_rows: dict[tuple[str, bool], Row] = {}
        self._host_rows: dict[bool, Row] = {}
        self._prepared: Prepared

    def run(self, directory: Path) -> None:
        """Judge every candidate, and send one step frame for each."""
        settings = self._settings
        try:
            self._prepare(directory)
        except InvalidReference as error:
            for candidate in self._group.candidates:
                result = Result(id=candidate.id, verdict="invalid", stage="reference", message=str(error))
                result.device, result.software = self.device_name, self.software
                self._emit(result)
            return
        order = list(self._group.candidates)
        secrets.SystemRandom().shuffle(order)
        for done, candidate in enumerate(order):
            self._frames.progress("candidates", done, len(order))
            attempt = _Attempt(self, candidate, settings, cached=done > 0)
            self._emit(attempt.judge(), attempt.parts_ms)
        self._frames.progress("candidates", len(order), len(order))

    def _emit(self, result: Result, parts_ms: Mapping[str, float] | None = None) -> None:
        captured = self._collector.take()
        passed = result.verdict == "accepted"
        self._frames.send(
            StepResult(
                name=f"candidate.{result.id}",
                command=f"judge candidate {result.id}",
                start_ns=time.monotonic_ns() - self._began_ns,
                duration_ns=round((result.eval_ms or 0.0) * 1e6),
                exit_code=0 if passed else 112,
                stdout=captured.stdout[:8000],
                stderr=captured.stderr[-8000:],
                stdout_bytes=captured.stdout_bytes,
                stderr_bytes=captured.stderr_bytes,
                judged=Judged(
                    verdict=result.verdict,
                    message=result.message or None,
                    assurance={"correctness": "judge", "timing": result.timing or "claimed"},
                    details={
                        "module": result.to_message(),
                        "parts_ms": dict(parts_ms or {}),
                        **({"gate": self.gate} if self.gate else {}),
                        **(
                            {"reference_times": {mode: times.to_message() for mode, times in self._times.items()}}
                            if self._times
                            else {}
                        ),
                    },
                ),
            ).to_message()
        )

    # -- the reference -------------------------------------------------------------------------------------------

    def _prepare(self, directory: Path) -> None:
        """Let a worker of the reference's own try it, then find out in this process how it behaves."""
        settings = self._settings
        limit_ns = round(settings.timeout_s * 1e9)
        reference = Reference(
            self._group.reference,
            self._group.entry_point,
            directory=directory,
            weight_seed=secrets.randbelow(_SEEDS),
            limit_s=settings.timeout_s,
        )
        reference.device = self._device
        reference.precision = None if settings.precision is None else getattr(torch, settings.precision)
        for name in (settings.baseline, *settings.further_baselines):
            if name in DEVICE_BASELINES and self._device == "cpu":
                raise InvalidReference(f"the baseline {name} needs a device, and this GPU type has none")
        # A reference that crashes or hangs does so there first, not in this process.
        side = self._reference_worker(reference, settings.baseline)
        self._prepared = prepare(reference, settings, memory_bytes=self._request.memory_bytes)
        self._reference_side = side
        further = [name for name in settings.further_baselines if name != settings.baseline]
        if settings.timed_calls:
            self._further = {name: self._reference_worker(reference, name) for name in further}
        try:
            for each in (side, *self._further.values()):
                each.load_state(self._prepared.state, deadline_ns=time.monotonic_ns() + limit_ns)
        except Fault as fault:
            raise InvalidReference(f"the reference's weights cannot be loaded: {fault.message}") from fault

    def _reference_worker(self, reference: Reference, baseline: str) -> ModuleSide:
        """A worker that hosts the reference, and has called it once.

        Raises:
            InvalidReference: it does not run.
        """
        args, kwargs = reference.init_inputs()
        side = ModuleSide(self._connect("reference"), reference, control=self._control, subject="the reference")
        deadline = time.monotonic_ns() + round(self._settings.timeout_s * 1e9)
        try:
            side.client.load_module(self._group.reference, [self._group.entry_point], deadline_ns=deadline)
            side.construct(args, kwargs, deadline_ns=deadline, baseline=baseline)
            side.observe(reference.inputs(secrets.randbelow(_SEEDS)), 1, deadline_ns=deadline)
            side.rest(deadline_ns=deadline)
        except Fault as fault:
            raise InvalidReference(f"the reference does not run: {fault.message}") from fault
        return side

    @property
    def prepared(self) -> Prepared:
        """Facts about the reference."""
        return self._prepared

    @property
    def control(self) -> Control | None:
        """The control process."""
        return self._control

    def reference_row(
        self, calls: int, *, in_eval: bool, side: ModuleSide | None = None, by_message: bool = False
    ) -> Row:
        """Timed calls of the reference, now. Its worker serves all candidates, so no candidate's time limit ends them.

        Args:
            calls: how many.
            in_eval: in eval mode.
            side: a further baseline; None: the one that counts.
            by_message: on a device, with the launches in the time.

        Raises:
            RuntimeError: its worker failed, which has worked before.
        """
        side = side or self._reference_side
        if side is None:
            raise RuntimeError("the reference has no worker")
        deadline_ns = time.monotonic_ns() + _START_NS + round(self._settings.timeout_s * 1e9)
        try:
            side.seeded = self._prepared.random_in_eval if in_eval else self._prepared.random
            side.by_message = by_message
            side.set_eval(on=in_eval, deadline_ns=deadline_ns)
            row = self.timed_row(side, calls, deadline_ns=deadline_ns)
            side.rest(deadline_ns=deadline_ns)
        except Fault as fault:
            raise RuntimeError(f"the reference's worker failed: {fault.message}") from fault
        return row

    def last_reference_row(self, calls: int, *, in_eval: bool) -> Row:
        """The row that followed the last candidate, or one that is made now."""
        return self._rows.pop(in_eval, None) or self.reference_row(calls, in_eval=in_eval)

    def keep_reference_row(self, row: Row, *, in_eval: bool) -> None:
        """Keep a row for the next candidate."""
        self._rows = {in_eval: row}

    def further_rows(self, calls: int, *, in_eval: bool) -> Mapping[str, Row]:
        """A row of each further baseline, made once for all candidates."""
        for name, side in self._further.items():
            if (name, in_eval) not in self._further_rows:
                self._further_rows[name, in_eval] = self.reference_row(calls, in_eval=in_eval, side=side)
        return {name: self._further_rows[name, in_eval] for name in self._further}

    def host_row(self, *, in_eval: bool) -> Row:
        """Calls of the reference with their launches in the time, made once for all candidates."""
        if in_eval not in self._host_rows:
            self._host_rows[in_eval] = self.reference_row(_HOST_CALLS, in_eval=in_eval, by_message=True)
        return self._host_rows[in_eval]

    @property
    def is_marked(self) -> bool:
        """Whether the judge's own work on a device marks calls, so that launches are not in their time."""
        return self._measured is not None

    def known_times(self, *, in_eval: bool) -> ReferenceTimes | None:
        """Times of the reference from earlier groups."""
        return self._known.get(_mode(in_eval))

    def note_times(self, times: ReferenceTimes, *, in_eval: bool, drifted: bool) -> None:
        """Keep times for later groups; with `drifted` the known ones do not count any more."""
        if drifted:
            self._known.pop(_mode(in_eval), None)
        self._times[_mode(in_eval)] = times

    def timed_row(self, side: ModuleSide, calls: int, *, deadline_ns: int) -> Row:
        """Timed calls of a module, each with new inputs and each checked.

        Raises:
            Fault: a call failed, or its output is wrong.
        """
        now = time.monotonic_ns()
        mode = ModeRequest(name="benchmark", cases=("seed: 1",), timeout_s=0.0)
        cases = parse_cases(mode.cases, global_seed=None)
        run = ModeRun(request=mode, cases=cases, start_ns=now, deadline_ns=deadline_ns)
        # Of Workers, timing uses these methods alone: call, check, control.
        workers = cast("Workers", side)
        timed = TimedCase(workers, run, cases[0], rng_seed=1)
        timed.warm_up()
        most = math.inf
        stopping = Stopping(
            max_runs=calls, min_runs=calls, width=0.0, max_kernel_ns=most, max_wall_ns=most, max_check_ns=most
        )
        benchmark = Benchmark(
            self._request,
            device=self._device,
            workers=workers,
            readings=self._collector.readings,
            calibration=self._calibration,
            most_controls=_MOST_CONTROLS,
        )
        timed.call_first_controls()
        row = benchmark.time(run, timed, stopping)
        return Row(samples=row.samples, controls_ns=timed.controls_ns)

    # -- workers -------------------------------------------------------------------------------------------------

    def fresh_worker(self) -> WorkerClient:
        """A worker in which no candidate's code has run."""
        if self._fresh is None:
            self._fresh = self._connect("candidate")
        return self._fresh

    def use_up(self, candidate: int) -> None:
        """From now on the worker is the candidate's, and so is what was built for it."""
        self._fresh = None
        if self._unpack is not None and candidate in self._builds:
            # Without it the candidate compiles for itself.
            self._unpack(candidate)

    def refused(self, candidate: int) -> str | None:
        """What the compilers said of a candidate that they refused ahead; None: they did not."""
        return self._builds.get(candidate)

    def _connect(self, role: str) -> WorkerClient:
        sock = self._new_worker(role)
        if role == "candidate":
            # Now the last worker is dead, so nothing that it wrote counts as this one's.
            self._used += 1
            self._collector.expect_worker(self._used)
            self._spent.free_device()
        watched = self._collector if role == "candidate" else _Alone()
        client = WorkerClient(sock, watched, core=self._core)
        deadline = time.monotonic_ns() + _START_NS
        try:
            if self._control is not None and client.open_flags(deadline_ns=deadline):
                client.warm_up(deadline_ns=deadline)
            if self._measured is not None:
                why_not = client.prepare_device(flush_bytes=None, deadline_ns=deadline, known=self._measured)
                if why_not is not None:
                    raise RuntimeError(f"a worker cannot be timed as the first one was: {why_not}")
        except Fault as fault:
            raise RuntimeError(f"a worker failed before any code was loaded: {fault.message}") from fault
        client.memory_bytes = self._request.memory_bytes
        if role == "candidate":
            self._spent = client
        return client


class _Alone:
    """Stands in for a collector: init says nothing of the reference's worker."""

    wake_fd = None
    flooded = False

    def wait_exit(self, timeout_s: float) -> None:  # noqa: ARG002 it is not waited for
        """Return None: nothing is known."""
        return


def _mode(in_eval: bool) -> str:  # noqa: FBT001 a name for either
    return "eval" if in_eval else "made"


class _Wrong(Exception):
    """The candidate's output is wrong."""


class _Attempt:
    """One candidate."""

    def __init__(self, group: GroupJudge, candidate: Candidate, settings: Any, *, cached: bool) -> None:
        self._group = group
        self._candidate = candidate
        self._settings = settings
        prepared = self._prepared = group.prepared
        self._result = Result(
            id=candidate.id,
            mode=prepared.mode,
            random=prepared.random or prepared.random_in_eval,
            tolerance=prepared.tolerance_shown,
            degenerate=prepared.degenerate,
            flags=flags_of(candidate.code),
            reference_cached=cached,
            device=group.device_name,
            software=group.software,
        )
        self._side: ModuleSide
        self._deadline_ns = 0
        self._matched: list[str] = []
        self._full = False
        #: The weights that the candidate has now: None: its own.
        self._loaded: bool | None = None
        self._in_eval = False
        #: Whether seeds make a random candidate's outputs equal the reference's.
        self._seeds_agree = True
        #: Where the time went: milliseconds by part of the evaluation.
        self.parts_ms: dict[str, float] = {}
        self._part_began_ns = 0

    def judge(self) -> Result:
        """Judge it; whatever happens, there is a result."""
        start = self._part_began_ns = time.monotonic_ns()
        self._deadline_ns = start + round(self._settings.timeout_s * 1e9)
        result = self._result
        client: WorkerClient | None = None
        try:
            client = self._group.fresh_worker()
            self._end_part("worker")
            self._run(client)
        except _Wrong as wrong:
            result.verdict, result.message, result.correct = "wrong_answer", str(wrong), False
        except Fault as fault:
            result.verdict = _VERDICTS.get(fault.verdict, fault.verdict)
            result.message = self._told(fault)
            if result.stage in ("compile", "construct"):
                result.compiled = False if result.stage == "compile" else result.compiled
            if result.verdict != "internal_error":
                result.correct = False
        except InvalidReference as error:
            result.verdict, result.message = "invalid", str(error)
        except (DeviceUnsteady, DeviceFailed) as unfit:
            # Neither the candidate's fault nor the reference's: it is evaluated again, on another device if it can.
            result.verdict, result.message = "internal_error", str(unfit)
        if result.correct is False and result.kb_correct is None and result.stage in ("compile", "construct"):
            result.kb_correct = False
        if client is not None and client is not self._group._fresh:  # noqa: SLF001 the same module
            client.close()
        self._end_part(result.stage)
        result.eval_ms = round((time.monotonic_ns() - start) / 1e6, 3)
        return result

    def _end_part(self, name: str) -> None:
        """Add the time since the last call to a part."""
        now = time.monotonic_ns()
        self.parts_ms[name] = round(self.parts_ms.get(name, 0.0) + (now - self._part_began_ns) / 1e6, 3)
        self._part_began_ns = now

    def _told(self, fault: Fault) -> str:
        text = fault.message.replace("custom_kernel", "the module")
        if fault.timed_out:
            text = f"the candidate did not finish within {self._settings.timeout_s:g} s"
        return text[:4000]

    def _run(self, client: WorkerClient) -> None:
        result, deadline = self._result, self._deadline_ns
        result.stage = "compile"
        built = time.monotonic_ns()
        # Nothing of the candidate runs for this, so a worker with a syntax error serves the next candidate.
        client.parse(self._candidate.code, deadline_ns=deadline)
        if self._settings.require_custom_kernel and "no_custom_kernel" in result.flags:
            raise Fault("rejected", "a custom kernel is demanded, and the candidate's text defines none")
        refused = self._group.refused(self._candidate.id)
        if refused is not None:
            raise Fault("compile_error", refused)
        self._group.use_up(self._candidate.id)
        client.load_module(self._candidate.code, self._candidate.entry_points, deadline_ns=deadline)
        result.compiled = True
        result.build_ms = round((time.monotonic_ns() - built) / 1e6, 3)
        self._end_part("compile")
        result.stage = "construct"
        prepared = self._prepared
        side = self._side = ModuleSide(client, prepared.reference, control=self._group.control, subject="the candidate")
        made = side.construct(prepared.args, prepared.kwargs, deadline_ns=deadline)
        self._matched = matching(prepared.state, made.entries)
        self._full = is_full(prepared.state, made.entries, self._matched)
        result.weights = describe_match(prepared.state, made.entries, self._matched)
        self._end_part("construct")
        result.stage = "correctness"
        trials = prepared.trials
        if prepared.stateful and len(self._matched) < len(prepared.state):
            # Train calls move a state that cannot be given back to this candidate, and eval calls depend on it.
            trials = sorted(trials, key=lambda trial: not trial.in_eval)
        for trial in trials:
            self._try(trial)
        result.correct = True
        self._end_part("correctness")
        if self._settings.timed_calls:
            result.stage = "timing"
            self._time()
        result.stage, result.verdict = "done", "accepted"
        result.message = result.message or "every output was right"

    # -- correctness ---------------------------------------------------------------------------------------------

    def _enter(self, *, perturbed: bool, in_eval: bool) -> None:
        """Give the candidate the weights and the mode of a call."""
        prepared, deadline = self._prepared, self._deadline_ns
        if self._matched and (self._loaded is not perturbed or prepared.stateful):
            source = prepared.shifted_state if perturbed and prepared.shifted_state is not None else prepared.state
            self._side.load_state({name: source[name] for name in self._matched}, deadline_ns=deadline)
            self._loaded = perturbed
        if in_eval != self._in_eval:
            self._side.set_eval(on=in_eval, deadline_ns=deadline)
            self._in_eval = in_eval

    def _try(self, trial: Trial) -> None:
        prepared, result = self._prepared, self._result
        perturbed = trial.perturbed and self._full and prepared.shifted_state is not None
        expected = prepared.expected(trial, perturbed=perturbed)
        self._enter(perturbed=perturbed, in_eval=trial.in_eval)
        kernelbench = not perturbed and trial.distribution == "original" and trial.in_eval == (prepared.mode == "eval")
        where = f"input {trial.number} ({trial.distribution}{', shifted weights' if perturbed else ''}"
        where += f"{', eval mode' if trial.in_eval else ''})"
        result.failing_input = trial.number
        try:
            output, after = self._side.observe(expected.args, prepared.seed_of(trial), deadline_ns=self._deadline_ns)
        except Fault:
            if kernelbench:
                result.kb_correct = False
            raise
        if kernelbench:
            says = kernelbench_allclose(expected.output, output, prepared.tolerance)
            result.kb_correct = None if says is None else says and result.kb_correct is not False
        result.perturbed = result.perturbed or perturbed
        if trial.distribution not in result.distributions:
            result.distributions.append(trial.distribution)
        problem = self._problem(trial, expected, output, perturbed=perturbed)
        if problem is not None:
            raise _Wrong(f"{where}: {problem}")
        problem = _mutation(expected, after, prepared.tolerance)
        if problem is not None:
            raise _Wrong(f"{where}: {problem}")
        result.failing_input = None

    def _problem(self, trial: Trial, expected: Expected, output: object, *, perturbed: bool) -> str | None:
        """Why an output is wrong; None: it is right."""
        prepared, result = self._prepared, self._result
        found = compare(expected.output, output, prepared.tolerance)
        random = prepared.random_in_eval if trial.in_eval else prepared.random
        if random and found.problem is not None:
            return self._unlike(trial, expected, output, perturbed=perturbed)
        if not random or self._seeds_agree:
            result.max_abs_error = max(result.max_abs_error or 0.0, found.max_abs_error)
            result.max_rel_error = max(result.max_rel_error or 0.0, found.max_rel_error)
        return found.problem

    def _unlike(self, trial: Trial, expected: Expected, output: object, *, perturbed: bool) -> str | None:
        """Where seeds do not make random outputs equal: whether they have the same distribution."""
        prepared = self._prepared
        structure = [(item.shape, item.dtype) for item in tensors_of(output)]
        if structure != [(item.shape, item.dtype) for item in tensors_of(expected.output)]:
            return compare(expected.output, output, prepared.tolerance).problem
        first = self._seeds_agree
        self._seeds_agree = False
        if not first or perturbed:
            return None
        args = expected.args
        draws = [
            self._side.observe(args, secrets.randbelow(_SEEDS), deadline_ns=self._deadline_ns)[0] for _ in range(DRAWS)
        ]
        return unlike(prepared.draws(trial), draws)

    # -- time ----------------------------------------------------------------------------------------------------

    def _time(self) -> None:
        prepared, result, group = self._prepared, self._result, self._group
        calls, deadline = self._settings.timed_calls, self._deadline_ns
        in_eval = prepared.mode == "eval"
        if (prepared.random or prepared.random_in_eval) and not self._seeds_agree:
            if prepared.random_in_eval or prepared.mode != "both":
                result.message = "right as far as distributions show; not timed, since single outputs cannot be checked"
                return
            in_eval = True
        perturbed = self._full and prepared.shifted_state is not None
        known = group.known_times(in_eval=in_eval)
        full = max(calls // 2, _FEWEST_REFERENCE_CALLS)
        rows = full if known is None else _FEWEST_REFERENCE_CALLS
        began = time.monotonic_ns()
        before = group.last_reference_row(rows, in_eval=in_eval)
        # The reference's time is not the candidate's.
        deadline += time.monotonic_ns() - began
        self._end_part("reference_timing")
        self._enter(perturbed=perturbed, in_eval=in_eval)
        prepared.enter(perturbed=perturbed, in_eval=in_eval)
        side = self._side
        side.seeded = prepared.random_in_eval if in_eval else prepared.random
        side.checker = self._check_timed
        own = group.timed_row(side, calls, deadline_ns=deadline)
        host = None
        if group.is_marked:
            side.by_message = True
            host = group.timed_row(side, _HOST_CALLS, deadline_ns=deadline)
        side.rest(deadline_ns=deadline)
        self._end_part("timing")
        after = group.reference_row(rows, in_eval=in_eval)
        tolerance = group._request.tolerance  # noqa: SLF001 the same module
        found = speedup_of(before.joined(after), own, tolerance=tolerance, known=known)
        drifted = known is not None and not found.with_known
        if drifted:
            after = after.joined(group.reference_row(full, in_eval=in_eval))
            found = speedup_of(before.joined(after), own, tolerance=tolerance)
        further = group.further_rows(full, in_eval=in_eval)
        host_reference = None if host is None else group.host_row(in_eval=in_eval)
        self._end_part("reference_timing")
        group.keep_reference_row(after, in_eval=in_eval)
        group.note_times(found.counted, in_eval=in_eval, drifted=drifted)
        if found.is_forged:
            raise Fault("rejected", "the candidate claims times that are far below what passed on the judge's clock")
        self._tell(found)
        if host is not None and host_reference is not None:
            result.speedup_device = result.speedup
            result.speedup_host = round(claimed_ratio(host_reference, host), 4)
        for name, row in further.items():
            other = speedup_of(row, own, tolerance=tolerance)
            result.baselines[name] = {
                "reference_ns": round(other.reference_ns, 1),
                "speedup": round(other.ratio, 4),
                "speedup_low": round(other.low, 4),
                "speedup_high": round(other.high, 4),
            }

    def _tell(self, found: Speedup) -> None:
        """Write a speed-up into the result."""
        result = self._result
        result.reference_ns, result.candidate_ns = round(found.reference_ns, 1), round(found.candidate_ns, 1)
        result.speedup = round(found.ratio, 4)
        result.speedup_low, result.speedup_high = round(found.low, 4), round(found.high, 4)
        result.timing = found.timing
        result.reference_stats = stats_of(found.counted.counted_ns)
        result.candidate_stats = stats_of(found.candidate_counted_ns)
        result.reference_time_cached = found.with_known

    def _check_timed(self, args: list[Any], seed: int | None, output: object) -> None:
        prepared, result = self._prepared, self._result
        expected, _ = prepared.reference.run(args, seed)
        found = compare(expected, output, prepared.tolerance)
        result.max_abs_error = max(result.max_abs_error or 0.0, found.max_abs_error)
        result.max_rel_error = max(result.max_rel_error or 0.0, found.max_rel_error)
        if found.problem is not None:
            raise _Wrong(f"in a timed call: {found.problem}")


def _mutation(expected: Expected, after: Sequence[torch.Tensor], tolerance: Tolerance) -> str | None:
    """Why what a call did to its inputs is wrong: what the reference leaves alone must be left alone."""
    inputs = tensors_of(expected.args)
    if len(after) != len(inputs):
        return "the candidate does not give its inputs back"
    for index, (given, wanted, left) in enumerate(zip(inputs, expected.after, after, strict=True)):
        with contextlib.suppress(RuntimeError):
            if torch.equal(given, left) or compare(wanted, left, tolerance).problem is None:
                continue
            if given.is_floating_point() and compare(given, left, Tolerance(rtol=0.0, atol=0.0)).problem is None:
                continue
        return f"input tensor {index} was changed in another way than the reference changes it"
    return None
