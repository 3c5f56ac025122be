"""A group: prepare the reference, then judge one candidate after the other, each in a worker of its own.

A candidate's worker has never run another candidate's code. The one that is used up is killed with all its processes
and its files before the next is there. The order of candidates is secret.

While the reference is timed, no candidate lives: its row is made before any code of a candidate is loaded, or after the
candidate's worker has been killed for the next one. Whatever a candidate returns, the judge goes on: each has a verdict
of its own. What ends the judge is the harness's own failure, as when init gives no worker.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from runner.extras.trainers.inside.shared.own_memory import limit_note
from sandbox.protocol import Judged
from tasks.harness.judge.accelerator import OUT_OF_MEMORY, DeviceFailed, device_failure, held_by_others
from tasks.harness.judge.author_code import begin_at
from tasks.harness.judge.benchmark import Benchmark
from tasks.harness.judge.cases import parse_cases
from tasks.harness.judge.control import Control
from tasks.harness.judge.device_calls import Measured
from tasks.harness.judge.faults import Fault
from tasks.harness.judge.frames import Frames
from tasks.harness.judge.hand_over import Calibration
from tasks.harness.judge.mode_run import ModeRun
from tasks.harness.judge.request import ModeRequest
from tasks.harness.judge.single_rank import costs_by_message
from tasks.harness.judge.stopping import Stopping
from tasks.harness.judge.system_facts import facts
from tasks.harness.judge.throttling import DeviceUnsteady
from tasks.harness.judge.timed_case import TimedCase
from tasks.harness.judge.worker_client import WorkerClient
from tasks.harness.judge.worker_output import Captured, Collector, Watcher
from tasks.harness.judge.workers import Workers
from tasks.harness.shared.values import tensors_of

from .clock import Clock
from .compare import Comparison, Tolerance, compare, kernelbench_allclose, kind_of
from .group import CANDIDATES, DEVICE_BASELINES, Candidate, Group, Result
from .init_line import MOST_AHEAD, InitLine
from .moments import DRAWS
from .prepare import DEPENDS_ON_HISTORY, Expected, Prepared, Trial, prepare, require_fit
from .reference_module import InvalidReference, Reference, same_bits
from .request import GroupRequest
from .side import ModuleSide, load, parse
from .speedup import Row, Speedup, speedup_of, stats_of
from .static import flags_of
from .weights import describe_match, is_full, matching

#: How long a worker may take to start, and to answer with known code.
_START_NS = 120_000_000_000
#: The deadline of a row, on the monotonic clock: the side's own clock ends it.
_NO_DEADLINE_NS = 1 << 62
_SEEDS = 1 << 31
#: Calls of one row of the reference: half of a candidate's, one row before it and one after.
_FEWEST_REFERENCE_CALLS = 5
#: Calls of the reference that take longer are not compared: they fill the caches by themselves.
_COMPARED_UP_TO_S = 0.1
#: Control calls of a row. Of tiny modules, more would tell little more, and cost more than the row itself.
_MOST_CONTROLS = 30
_VERDICTS = {"output_limit": "runtime_error"}

#: Prepares calls of the first worker on a device: what they cost there, and the gate (see `Workers.prepare_device`).
PrepareDevice = Callable[..., tuple[Calibration | None, str]]

_T = TypeVar("_T")


class HarnessFailed(RuntimeError):
    """What fails is neither a candidate nor the reference: no judgement is possible here any more."""


class GroupJudge:
    """Judges one group."""

    def __init__(
        self,
        group: Group,
        *,
        request: GroupRequest,
        device: str,
        frames: Frames,
        collector: Collector,
        first: WorkerClient,
        reference: WorkerClient | None,
        control: Control | None,
        init: InitLine,
        prepare_device: PrepareDevice | None,
        gate: str,
    ) -> None:
        """Make the judge of one group.

        `first`: a worker that has run no candidate's code. `reference`: one for the reference, which has begun to
        prepare its device; None: none has been started. `control`: None on a device, or where it would say nothing.
        `prepare_device`: None: the first worker's calls need no preparation. `gate`: why the judge's own work marks no
        calls there, or nothing.
        """
        self._group = group
        self._settings = group.settings
        self._builds = request.builds
        #: What the timing of calls asks of a request.
        self._request = request.as_judge_request(device)
        self.device = device
        self._frames = frames
        self._collector = collector
        self.control = control
        self._init = init
        self._core = first.core
        self._for_reference = reference
        self._prepare_device = prepare_device
        #: On a device, what calls cost there.
        self._calibration: Calibration | None = None
        #: On a device, `open` if the judge's own work marks calls, or why not.
        self.gate = gate
        #: A claim counts if it is bounded to within this part of it.
        self.tolerance = self._request.tolerance
        #: What was measured of the device; None: calls on it go by message, as all do before it is measured.
        self._measured: Measured | None = None
        #: The candidate's worker that is there, or was last: what the judge holds for it is freed when it is gone.
        self._spent = first
        system = facts(device)
        self.device_name = str(system["cpu"] if device == "cpu" else system["gpu"])
        self.software = f"torch {system['torch']}, {system['runtime']}, {system['platform']}"
        #: A worker that has run no candidate's code; None: the last one is used up.
        self._fresh: WorkerClient | None = first
        self._used = 0
        self._began_ns = time.monotonic_ns()
        self._reference_side: ModuleSide
        #: The reference's row before the next candidate, by mode: one at most.
        self.rows: dict[bool, Row] = {}
        #: A worker for each further baseline, and its row by mode.
        self._further: dict[str, ModuleSide] = {}
        self._further_rows: dict[tuple[str, bool], Row] = {}
        #: Facts about the reference.
        self.prepared: Prepared
        #: By calls with wrong answers: whether a new reference has another answer than the one that is there.
        self.depends_on_history: dict[object, bool] = {}

    def run(self, directory: Path) -> None:
        """Judge every candidate, and send one step frame for each."""
        settings = self._settings
        try:
            self._prepare_or_refuse(directory)
        except InvalidReference as error:
            for candidate in self._group.candidates:
                result = Result(id=candidate.id, verdict="invalid", stage="reference", message=str(error))
                result.device, result.software = self.device_name, self.software
                self._emit(result, self.captured())
            return
        order = list(self._group.candidates)
        secrets.SystemRandom().shuffle(order)
        for done, candidate in enumerate(order):
            self._frames.progress(CANDIDATES, done, len(order))
            attempt = _Attempt(self, candidate, settings, cached=done > 0)
            result = attempt.judge()
            self._emit(result, attempt.captured, attempt.parts_ms)
        self._frames.progress(CANDIDATES, len(order), len(order))

    def captured(self) -> Captured:
        """What the worker that is there has written since the last look."""
        return self._collector.take()

    def _emit(self, result: Result, captured: Captured, parts_ms: Mapping[str, float] | None = None) -> None:
        passed = result.verdict == "accepted"
        gate: dict[str, object] = {"gate": self.gate} if self.gate else {}
        if self._calibration is not None:
            gate["calibration"] = self._calibration.as_details()
        judged = Judged(
            verdict=result.verdict,
            message=result.message or None,
            assurance={"correctness": "judge", "timing": result.timing or "claimed"},
            details={"module": result.to_message(), "parts_ms": dict(parts_ms or {}), **gate},
        )
        self._frames.step(
            f"candidate.{result.id}",
            judged,
            captured,
            start_ns=time.monotonic_ns() - self._began_ns,
            duration_ns=round((result.eval_ms or 0.0) * 1e6),
            exit_code=0 if passed else 112,
            stdout=captured.stdout[:8000],
            stderr=captured.stderr[-8000:],
        )

    @property
    def is_marked(self) -> bool:
        """Whether the judge's own work on a device marks calls, so that launches are not in their time."""
        return self._measured is not None

    # -- the reference -------------------------------------------------------------------------------------------

    def _prepare_or_refuse(self, directory: Path) -> None:
        """Prepare the reference, and the device. Whatever its values make the judge raise is the reference's fault.

        Raises:
            InvalidReference: it cannot be used.
            DeviceFailed: the device does not work.
            HarnessFailed: there is no worker for it.
        """
        try:
            self._prepare(directory)
        except (InvalidReference, HarnessFailed, DeviceFailed):
            raise
        except Exception as error:
            failed = device_failure(self.device)
            if failed is not None:
                raise failed from error
            traceback.print_exc()
            raise InvalidReference(f"the reference cannot be judged: {type(error).__name__}: {error}") from error

    def _prepare(self, directory: Path) -> None:
        """Let a worker of the reference's own try it, then find out in this process how it behaves."""
        settings = self._settings
        # A reference that crashes or hangs does so there first, not in this process.
        client, failed = self._load_reference()
        reference = Reference(
            self._group.reference,
            self._group.entry_point,
            directory=directory,
            weight_seed=secrets.randbelow(_SEEDS),
            limit_s=settings.timeout_s,
            # What a device's driver maps would count, too.
            memory_bytes=self._request.memory_bytes if self.device == "cpu" else None,
            device=self.device,
            precision=None if settings.precision is None else getattr(torch, settings.precision),
        )
        for name in (settings.baseline, *settings.further_baselines):
            if name in DEVICE_BASELINES and self.device == "cpu":
                raise InvalidReference(f"the baseline {name} needs a device, and this GPU type has none")
        if failed is not None:
            raise InvalidReference(f"the reference does not run: {_of_module(failed)}") from failed
        side = self._reference_worker(reference, settings.baseline, client)
        self.prepared = prepare(
            reference, settings, memory_bytes=self._request.memory_bytes, await_others=self._await_contexts
        )
        self._reference_side = side
        self._measure_device()
        self._mark_calls(side.client)
        further = [name for name in settings.further_baselines if name != settings.baseline]
        if settings.timed_calls:
            for name in further:
                client, failed = self._load_reference()
                if failed is not None:
                    raise InvalidReference(f"the reference does not run: {_of_module(failed)}") from failed
                self._further[name] = self._reference_worker(reference, name, client)
        try:
            for each in (side, *self._further.values()):
                each.clock = Clock(settings.timeout_s)
                each.load_state(self.prepared.state)
        except Fault as fault:
            raise InvalidReference(f"the reference's weights cannot be loaded: {_of_module(fault)}") from fault

    def _await_contexts(self) -> None:
        """Wait until no other process makes a context. Raises HarnessFailed: init does not say so."""
        try:
            self._init.await_ahead()
        except (OSError, RuntimeError) as error:
            raise HarnessFailed(str(error)) from error

    def _measure_device(self) -> None:
        """Measure what calls on the device cost, when all contexts have been made. No candidate's code has run."""
        if self._prepare_device is None or self._fresh is None:
            return
        try:
            deadline_ns = time.monotonic_ns() + _START_NS
            self._calibration, self.gate = self._prepare_device(deadline_ns=deadline_ns)
        except Fault as fault:
            raise HarnessFailed(f"a worker failed before any code was loaded: {fault.message}") from fault
        except (OSError, RuntimeError) as error:
            raise HarnessFailed(f"the device cannot be prepared: {error}") from error
        self._measured = self._fresh.device_measured
        self.prepared.measure_call()

    def _measure_messages(self) -> bool:
        """Measure what calls by message cost there, if it is not known."""
        if self._calibration is None or self._calibration.message is not None or self._fresh is None:
            return False
        try:
            costs = costs_by_message(self._fresh, self.device, deadline_ns=time.monotonic_ns() + _START_NS)
        except Fault as fault:
            raise HarnessFailed(f"a worker failed before any code was loaded: {fault.message}") from fault
        self._calibration = replace(self._calibration, message=costs)
        return True

    def _mark_calls(self, client: WorkerClient) -> None:
        """Let the judge's own work mark a worker's calls, if it does so here."""
        if self._measured is None:
            return
        why_not = client.prepare_device(deadline_ns=time.monotonic_ns() + _START_NS, measured=self._measured)
        if why_not is not None:
            raise HarnessFailed(f"a worker cannot be timed as the first one was: {why_not}")

    def _load_reference(self) -> tuple[WorkerClient, Fault | None]:
        """A worker that has run the reference's file; and what the file raised, which is said better in this process.

        Raises:
            InvalidReference: it ends the worker, so it would end this process, too.
        """
        client = self._connect("reference")
        clock = Clock(self._settings.timeout_s)
        try:
            load(client, self._group.reference, [self._group.entry_point], deadline_ns=clock.deadline_ns)
        except Fault as fault:
            if fault.timed_out:
                limit_s = self._settings.timeout_s
                raise InvalidReference(
                    f"the reference cannot be imported: its file takes over {limit_s:g} s"
                ) from fault
            if fault.gone:
                raise InvalidReference(f"the reference does not run: {_of_module(fault)}") from fault
            return client, fault
        return client, None

    def _reference_worker(self, reference: Reference, baseline: str, client: WorkerClient) -> ModuleSide:
        """A worker that hosts the reference, and has called it once. `client`: has run its file.

        Raises:
            InvalidReference: it does not run.
        """
        args, kwargs = reference.init_inputs()
        inputs = reference.inputs(secrets.randbelow(_SEEDS))
        require_fit(inputs, {}, None, self._request.memory_bytes)
        clock = Clock(self._settings.timeout_s)
        side = ModuleSide(client, reference, control=self.control, subject="the reference", clock=clock)
        try:
            if reference.memory_bytes is not None and baseline == "eager":
                # Compilers need memory of their own.
                side.limit_memory(reference.memory_bytes)
            side.construct(args, kwargs, first_args=reference.first_args(), baseline=baseline)
            side.observe(inputs, 1)
            side.rest()
        except Fault as fault:
            text = _of_module(fault)
            note = limit_note(text, reference.memory_bytes)
            raise InvalidReference(f"the reference does not run: {text}{note}") from fault
        return side

    def reference_row(self, calls: int, *, in_eval: bool, side: ModuleSide | None = None) -> Row:
        """Timed calls of the reference, now. Its worker serves all candidates, so no candidate's time limit ends them.

        No candidate may live meanwhile: its processes could slow the reference. `side`: a further baseline.

        Raises:
            InvalidReference: it failed there, which has worked before.
            DeviceFailed: since the device did.
        """
        side = side or self._reference_side
        if self._fresh is None:
            raise HarnessFailed("a candidate lives while the reference is to be timed")
        side.clock = Clock(self._settings.timeout_s + _START_NS / 1e9 + calls * self.prepared.call_s)
        try:
            side.generators = self.prepared.used_generators(in_eval=in_eval)
            side.checker = self.compared if self.prepared.call_s <= _COMPARED_UP_TO_S else None
            self.prepared.enter(perturbed=False, in_eval=in_eval)
            side.set_eval(on=in_eval)
            row = self.timed_row(side, calls)
            if any(sample.by_host for sample in row.samples) and self._measure_messages():
                row = self.timed_row(side, calls)
            side.rest()
        except Fault as fault:
            failed = device_failure(self.device)
            if failed is not None:
                raise failed from fault
            if fault.gone or fault.timed_out or not self.prepared.time_original():
                raise InvalidReference(f"the reference failed in a later call: {_of_module(fault)}") from fault
            return self.reference_row(calls, in_eval=in_eval, side=side)
        return row

    def compared(
        self, args: list[Any], seed: int | None, output: object, changed: Sequence[torch.Tensor] | None
    ) -> tuple[Comparison, str | None]:
        """The output of a timed call beside what the reference gives in the judge; and `_mutation` of its inputs.

        `changed`: see `changed_inputs`.

        Calls of the reference's worker are compared, too, which decides nothing: where the judge does not work between
        two calls they find warmer caches, and a copy of the reference seemed a tenth slower than the reference.
        """
        tolerance = self.prepared.tolerance
        expected, after = self.prepared.reference.run(args, seed)
        own = Expected(args=args, output=expected, after=after)
        return compare(expected, output, tolerance), None if changed is None else _mutation(own, changed, tolerance)

    def row_before(self, calls: int, *, in_eval: bool) -> None:
        """Make sure that there is a row of the reference for the next candidate, if the device is steady.

        Else what is wrong is found wrong all the same, and what is right has no time.
        """
        if in_eval not in self.rows:
            with contextlib.suppress(DeviceUnsteady):
                self.rows = {in_eval: self.reference_row(calls, in_eval=in_eval)}

    def further_rows(self, calls: int, *, in_eval: bool) -> Mapping[str, Row]:
        """A row of each further baseline, made once for all candidates."""
        for name, side in self._further.items():
            if (name, in_eval) not in self._further_rows:
                self._further_rows[name, in_eval] = self.reference_row(calls, in_eval=in_eval, side=side)
        return {name: self._further_rows[name, in_eval] for name in self._further}

    def timed_row(self, side: ModuleSide, calls: int) -> Row:
        """Timed calls of a module, each with new inputs and each checked.

        Raises:
            Fault: a call failed, or its output is wrong.
        """
        now = time.monotonic_ns()
        mode = ModeRequest(name="benchmark", cases=("seed: 1",), timeout_s=0.0)
        cases = parse_cases(mode.cases, global_seed=None)
        side.inputs, side.control_inputs = self.prepared.timed_inputs(), self.prepared.timed_inputs()
        run = ModeRun(request=mode, cases=cases, start_ns=now, deadline_ns=_NO_DEADLINE_NS)
        begin_at("timed calls")
        # Of Workers, timing uses these methods alone: call, check, control.
        workers = cast("Workers", side)
        timed = TimedCase(workers, run, cases[0], rng_seed=1)
        timed.warm_up()
        most = math.inf
        stopping = Stopping(
            max_runs=calls,
            min_runs=calls,
            width=0.0,
            refuse=most,
            max_kernel_ns=most,
            max_wall_ns=most,
            max_check_ns=most,
        )
        benchmark = Benchmark(
            self._request,
            device=self.device,
            workers=workers,
            readings=self._collector.readings,
            calibration=self._calibration,
            most_controls=_MOST_CONTROLS,
        )
        row = benchmark.time(run, timed, stopping)
        # What the host does is not in the times of calls that a device marks.
        by_host = self.device == "cpu" or any(sample.by_host for sample in row.samples)
        return Row(
            samples=row.samples, controls_ns=timed.controls_ns, skippable_ns=side.skippable_ns if by_host else 0.0
        )

    # -- workers -------------------------------------------------------------------------------------------------

    def fresh_worker(self) -> WorkerClient:
        """A worker in which no candidate's code has run."""
        if self._fresh is None:
            self._fresh = self._connect_candidate()
            # None lives any more.
            self.prepared.reference.is_alone = True
        return self._fresh

    def discard_worker(self) -> None:
        """The worker that is there has run no candidate's code, and is of no use all the same."""
        if self._fresh is not None:
            self._fresh.close(for_good=True)
            self._fresh = None

    def end_candidate(self, client: WorkerClient) -> None:
        """Kill a candidate's worker with all that it has started: the next one takes its place."""
        client.close(for_good=True)
        self.fresh_worker()

    def use_up(self, candidate: int) -> None:
        """From now on the worker is the candidate's, and so is what was built for it."""
        self._fresh = None
        self.prepared.reference.is_alone = False
        if str(candidate) in self._builds:
            # Without it the candidate compiles for itself.
            self._init.unpack(candidate)

    def refused(self, candidate: int) -> str | None:
        """What the compilers said of a candidate that they refused ahead; None: they did not."""
        return self._builds.get(str(candidate))

    def _connect_candidate(self) -> WorkerClient:
        """A new worker for a candidate. On a device those that were started ahead may have ended while they waited."""
        for _ in range(MOST_AHEAD if self._prepare_device is not None else 0):
            with contextlib.suppress(HarnessFailed):
                return self._connect("candidate")
        return self._connect("candidate")

    def _connect(self, role: str) -> WorkerClient:
        begun = client = self._for_reference if role == "reference" else None
        deadline = time.monotonic_ns() + _START_NS
        try:
            if client is None:
                client = self._started(role)
                if self._measured is not None:
                    client.begin_device(flush_bytes=None, deadline_ns=deadline, tried=True)
            else:
                self._for_reference = None
            if self.control is not None and client.open_flags(deadline_ns=deadline):
                client.warm_up(deadline_ns=deadline)
            # It answers when it is up. The reference's calls, which may be next, would be timed beside its start.
            if self._measured is not None:
                self._mark_calls(client)
            elif begun is not None:
                client.await_device(deadline_ns=deadline)
            else:
                parse(client, "", deadline_ns=deadline)
        except Fault as fault:
            raise HarnessFailed(f"a worker failed before any code was loaded: {fault.message}") from fault
        except RuntimeError as error:
            raise HarnessFailed(str(error)) from error
        client.memory_bytes = self._request.memory_bytes
        return client

    def _started(self, role: str) -> WorkerClient:
        sock = self._init.new_worker(role)
        if role == "reference":
            return WorkerClient(sock, Watcher(), core=self._core)
        # Now the last worker is dead, so nothing that it wrote counts as this one's.
        self._used += 1
        self._collector.expect_worker(self._used)
        self._spent.free_device()
        self._spent = WorkerClient(sock, self._collector, core=self._core)
        return self._spent


class _Wrong(Exception):
    """The candidate's output is wrong."""

    def __init__(self, message: str, *, call: object, args: list[Any], seed: int | None, perturbed: bool) -> None:
        """`call`: what it is known by; `args`, `seed`: of the call; `perturbed`: whether it had shifted weights."""
        super().__init__(message)
        self.call = call
        # `args` would be the exception's own.
        self.inputs = args
        self.seed = seed
        self.perturbed = perturbed


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
        self._clock = Clock(settings.timeout_s)
        self._matched: list[str] = []
        self._full = False
        #: The weights that the candidate has now: None: its own.
        self._loaded: bool | None = None
        self._in_eval = False
        #: Whether seeds make a random candidate's outputs equal the reference's.
        self._seeds_agree = True
        #: The candidate's timed calls; None: it is not timed.
        self._own: Row | None = None
        #: What its worker has written.
        self.captured: Captured
        #: Where the time went: milliseconds by part of the evaluation.
        self.parts_ms: dict[str, float] = {}
        self._part_began_ns = 0
        #: A worker that has run the candidate's code.
        self._client: WorkerClient | None = None

    def judge(self) -> Result:
        """Judge it; whatever it does, there is a result."""
        start = self._part_began_ns = time.monotonic_ns()
        result = self._result
        client = self._group.fresh_worker()
        self.captured = self._group.captured()
        self._end_part("worker")
        try:
            self._judge(client)
        except InvalidReference as error:
            result.verdict, result.message = "invalid", str(error)
        except (DeviceUnsteady, DeviceFailed) as unfit:
            result.verdict, result.message = "internal_error", str(unfit)
        if result.correct is False and result.kb_correct is None and result.stage in ("compile", "construct"):
            result.kb_correct = False
        self._leave()
        self._end_part(result.stage)
        if result.verdict == "invalid":
            # Wherever the candidate was: of one that ended in `compile`, its own text would be to blame.
            result.stage = "reference"
        result.eval_ms = round((time.monotonic_ns() - start) / 1e6, 3)
        return result

    def _judge(self, client: WorkerClient) -> None:
        """Let it run, and the reference when no candidate lives.

        Raises:
            InvalidReference, DeviceUnsteady, DeviceFailed: by the reference's own calls.
        """
        result = self._result
        if not self._guarded(lambda: self._parse(client)):
            return
        if self._prepared.timed_calls:
            self._group.row_before(self._reference_calls, in_eval=self._prepared.mode == "eval")
            self._end_part("reference_timing")
        if not self._guarded(lambda: self._run(client)):
            return
        if self._own is None or self._compare_times(self._own):
            result.stage, result.verdict = "done", "accepted"
            result.message = result.message or "every output was right"

    def _leave(self, *, kill: bool = False) -> None:
        """Take what the candidate's worker has written, and close it; `kill`: have it killed now, not for the next."""
        if self._client is None:
            return
        client, self._client = self._client, None
        self.captured = self._group.captured()
        if kill:
            self._group.end_candidate(client)
        else:
            client.close(for_good=True)

    def _guarded(self, work: Callable[[], _T]) -> _T | None:
        """Do what touches a candidate's values. Whatever it raises is that candidate's verdict, and no other's."""
        try:
            return work()
        except HarnessFailed:
            raise
        except _Wrong as wrong:
            self._refuse("wrong_answer", str(wrong))
            self._suspect_history(wrong)
        except Fault as fault:
            if fault.gone and self._client is None:
                # It died of a text that it only parsed.
                self._group.discard_worker()
            self._refuse(_VERDICTS.get(fault.verdict, fault.verdict), self._sentence_of(fault))
        except InvalidReference as error:
            self._blame(error)
        except (DeviceUnsteady, DeviceFailed) as unfit:
            # Neither the candidate's fault nor the reference's: it is evaluated again, on another device if it can.
            self._result.verdict, self._result.message = "internal_error", str(unfit)
        except Exception as error:  # noqa: BLE001 values of a candidate, of whatever kind, end no other's judgement
            self._refuse_for(error)
        return None

    def _refuse(self, verdict: str, message: str) -> None:
        result = self._result
        result.verdict, result.message = verdict, message
        if verdict == "internal_error":
            return
        result.correct = False
        if result.stage == "compile":
            result.compiled = False

    def _refuse_for(self, error: Exception) -> None:
        """The verdict for an exception that no check expects: the candidate's, unless the device failed."""
        sys.stderr.write(f"candidate {self._candidate.id}:\n{''.join(traceback.format_exception(error))}")
        failed = device_failure(self._group.device)
        if failed is not None:
            self._result.verdict, self._result.message = "internal_error", str(failed)
        elif isinstance(error, (*OUT_OF_MEMORY, MemoryError)):
            self._refuse("memory_limit", _memory_note(self._group.device) or f"no memory is left to judge it: {error}")
            self._leave(kill=True)
        else:
            sentence = f"what the candidate returned cannot be judged: {type(error).__name__}: {error}"
            self._refuse("runtime_error", sentence[:4000])

    def _blame(self, error: InvalidReference) -> None:
        """Whose fault a failure of the reference is: its own if it fails again without the candidate."""
        if self._client is None or error.again is None:
            self._result.verdict, self._result.message = "invalid", str(error)
            return
        failed, note = device_failure(self._group.device), _memory_note(self._group.device)
        self._leave(kill=True)
        if failed is not None:
            self._result.verdict, self._result.message = "internal_error", str(failed)
            return
        try:
            error.again()
        except InvalidReference as again:
            self._result.verdict, self._result.message = "invalid", str(again)
            return
        if isinstance(error.__cause__, (*OUT_OF_MEMORY, MemoryError)):
            self._refuse("memory_limit", note or f"it left no memory to judge it: {error}")
        elif error.is_slow:
            self._refuse("time_limit", f"its processes kept the judge from its core: {error}, without them it does not")
        else:
            self._refuse("rejected", f"beside the candidate {error}; without it the same call succeeds")

    def _suspect_history(self, wrong: _Wrong) -> None:
        """A wrong answer says nothing if the reference has another one when it is new."""
        calls = self._group.depends_on_history
        if wrong.call not in calls:
            # What fails only beside a candidate says nothing of the reference.
            with contextlib.suppress(InvalidReference):
                calls[wrong.call] = self._prepared.depends_on_history(
                    wrong.inputs, wrong.seed, perturbed=wrong.perturbed, in_eval=self._in_eval
                )
        if calls.get(wrong.call):
            self._result.verdict, self._result.message, self._result.correct = "invalid", DEPENDS_ON_HISTORY, None

    def _end_part(self, name: str) -> None:
        """Add the time since the last call to a part."""
        now = time.monotonic_ns()
        self.parts_ms[name] = round(self.parts_ms.get(name, 0.0) + (now - self._part_began_ns) / 1e6, 3)
        self._part_began_ns = now

    def _sentence_of(self, fault: Fault) -> str:
        if fault.timed_out:
            return f"the candidate did not finish within {self._settings.timeout_s:g} s"
        return _of_module(fault)

    def _parse(self, client: WorkerClient) -> bool:
        """Refuse what needs no run. Nothing of the candidate runs for this, so the worker serves the next one, too."""
        result = self._result
        result.stage = "compile"
        parse(client, self._candidate.code, deadline_ns=self._clock.deadline_ns)
        if self._settings.require_custom_kernel and "no_custom_kernel" in result.flags:
            raise Fault("rejected", "a custom kernel is demanded, and the candidate's text defines none")
        refused = self._group.refused(self._candidate.id)
        if refused is not None:
            raise Fault("compile_error", refused)
        return True

    def _run(self, client: WorkerClient) -> bool:
        """All that needs the candidate's worker."""
        result, prepared = self._result, self._prepared
        built = time.monotonic_ns()
        self._group.use_up(self._candidate.id)
        self._client, self._clock = client, Clock(self._settings.timeout_s)
        load(client, self._candidate.code, self._candidate.entry_points, deadline_ns=self._clock.deadline_ns)
        result.compiled = True
        result.build_ms = round((time.monotonic_ns() - built) / 1e6, 3)
        self._end_part("compile")
        result.stage = "construct"
        side = self._side = ModuleSide(
            client, prepared.reference, control=self._group.control, subject="the candidate", clock=self._clock
        )
        constructed = side.construct(prepared.args, prepared.kwargs, first_args=prepared.first_args)
        self._matched = matching(prepared.state, constructed.entries)
        self._full = is_full(prepared.state, constructed.entries, self._matched)
        result.weights = describe_match(prepared.state, constructed.entries, self._matched)
        self._end_part("construct")
        result.stage = "correctness"
        trials = prepared.trials
        if prepared.stateful and len(self._matched) < len(prepared.state):
            # Train calls move a state that cannot be given back to this candidate, and eval calls depend on it.
            trials = sorted(trials, key=lambda trial: not trial.in_eval or trial.is_second)
        for trial in trials:
            (self._look_at_state if trial.is_second else self._try)(trial)
        result.correct = True
        self._end_part("correctness")
        if prepared.timed_calls:
            result.stage = "timing"
            self._time()
            self._end_part("timing")
        return True

    # -- correctness ---------------------------------------------------------------------------------------------

    def _enter(self, *, perturbed: bool, in_eval: bool) -> None:
        """Give the candidate the weights and the mode of a call."""
        prepared = self._prepared
        if self._matched and (self._loaded is not perturbed or prepared.stateful):
            source = prepared.shifted_state if perturbed and prepared.shifted_state is not None else prepared.state
            self._side.load_state({name: source[name] for name in self._matched})
            self._loaded = perturbed
        if in_eval != self._in_eval:
            self._side.set_eval(on=in_eval)
            self._in_eval = in_eval

    def _try(self, trial: Trial) -> None:
        prepared, result = self._prepared, self._result
        perturbed = trial.perturbed and self._full and prepared.shifted_state is not None
        where = f"input {trial.number} ({trial.distribution}{', shifted weights' if perturbed else ''}"
        where += f"{', eval mode' if trial.in_eval else ''})"
        begin_at(where)
        with self._clock.standing(prepared.reference.usual_ns):
            expected = prepared.expected(trial, perturbed=perturbed)
        self._enter(perturbed=perturbed, in_eval=trial.in_eval)
        self._side.generators = prepared.used_generators(in_eval=trial.in_eval)
        kernelbench = not perturbed and trial.distribution == "original" and trial.in_eval == (prepared.mode == "eval")
        result.failing_input = trial.number
        try:
            output, left = self._side.observe(expected.args, trial.seed)
        except Fault:
            if kernelbench:
                result.kb_correct = False
            raise
        with self._clock.standing(prepared.reference.usual_ns):
            if kernelbench:
                says = kernelbench_allclose(expected.output, output, prepared.tolerance)
                result.kb_correct = None if says is None else says and result.kb_correct is not False
            comparison = compare(expected.output, output, prepared.tolerance)
            changes = (_mutation(expected, each, prepared.tolerance) for each in left)
            changed = next(filter(None, changes), None)
        result.perturbed = result.perturbed or perturbed
        if trial.distribution not in result.distributions:
            result.distributions.append(trial.distribution)
        random = prepared.random_in_eval if trial.in_eval else prepared.random
        problem = comparison.problem
        if random and problem is not None:
            problem = self._unlike(trial, expected, output, perturbed=perturbed)
        elif not random or self._seeds_agree:
            self._note_errors(comparison)
        problem = problem or changed
        if problem is not None:
            call = (trial.number, perturbed)
            raise _Wrong(f"{where}: {problem}", call=call, args=expected.args, seed=trial.seed, perturbed=perturbed)
        result.failing_input = None

    def _note_errors(self, comparison: Comparison) -> None:
        result = self._result
        result.max_abs_error = max(result.max_abs_error or 0.0, comparison.max_abs_error)
        result.max_rel_error = max(result.max_rel_error or 0.0, comparison.max_rel_error)

    def _look_at_state(self, trial: Trial) -> None:
        """Flag it if the trial before this one has left another state than in the reference.

        That is no wrong answer: many candidates that replace a module keep no running statistics.
        """
        prepared, result = self._prepared, self._result
        with self._clock.standing(prepared.reference.usual_ns):
            expected = prepared.expected(trial, perturbed=False)
        self._side.set_eval(on=True)
        self._in_eval = True
        self._side.generators = prepared.used_generators(in_eval=True)
        result.failing_input = trial.number
        output, _ = self._side.observe(expected.args, trial.seed)
        with self._clock.standing(prepared.reference.usual_ns):
            if compare(expected.output, output, prepared.tolerance).problem is not None:
                result.flags.append("another_state")
        result.failing_input = None

    def _unlike(self, trial: Trial, expected: Expected, output: object, *, perturbed: bool) -> str | None:
        """Where seeds do not make random outputs equal: whether they have the same distribution."""
        prepared = self._prepared
        if list(map(kind_of, tensors_of(output))) != list(map(kind_of, tensors_of(expected.output))):
            return compare(expected.output, output, prepared.tolerance).problem
        first, self._seeds_agree = self._seeds_agree, False
        with self._clock.standing(DRAWS * prepared.reference.usual_ns):
            reference_draws = prepared.draws(trial, perturbed=perturbed, all_of_them=first)
            problem = reference_draws.implausible(output)
        if problem is not None or not first:
            return problem
        draws = [self._side.observe(expected.args, secrets.randbelow(_SEEDS))[0] for _ in range(DRAWS)]
        with self._clock.standing(DRAWS * prepared.reference.usual_ns):
            return reference_draws.unlike(draws)

    # -- time ----------------------------------------------------------------------------------------------------

    @property
    def _reference_calls(self) -> int:
        """Calls of one row of the reference."""
        return max(self._prepared.timed_calls // 2, _FEWEST_REFERENCE_CALLS)

    @property
    def _timed_in_eval(self) -> bool:
        """Whether calls are timed in eval mode: where seeds do not agree, single outputs can be checked there alone."""
        prepared = self._prepared
        return prepared.mode == "eval" or ((prepared.random or prepared.random_in_eval) and not self._seeds_agree)

    def _time(self) -> None:
        """The candidate's timed calls, if single outputs can be checked."""
        prepared, result, group, side = self._prepared, self._result, self._group, self._side
        in_eval = self._timed_in_eval
        if not self._seeds_agree and (prepared.random_in_eval or (prepared.random and prepared.mode != "both")):
            result.message = "right as far as distributions show; not timed, since single outputs cannot be checked"
            return
        perturbed = self._full and prepared.shifted_state is not None
        self._enter(perturbed=perturbed, in_eval=in_eval)
        with self._clock.standing(prepared.reference.usual_ns):
            prepared.enter(perturbed=perturbed, in_eval=in_eval)
        side.generators = prepared.used_generators(in_eval=in_eval)
        side.checker = self._check_timed
        self._own = group.timed_row(side, prepared.timed_calls)
        side.rest()

    def _compare_times(self, own: Row) -> bool:
        """Time the reference once more, now that the candidate is gone, and compare; whether times count."""
        group, in_eval = self._group, self._timed_in_eval
        self._leave(kill=True)
        self._end_part("worker")
        # Where the row from before the candidate was of the other mode, one is made now.
        before = group.rows.pop(in_eval, None) or group.reference_row(self._reference_calls, in_eval=in_eval)
        after = group.reference_row(self._reference_calls, in_eval=in_eval)
        speedup = self._guarded(lambda: speedup_of(before.joined(after), own, tolerance=group.tolerance))
        further = group.further_rows(self._reference_calls, in_eval=in_eval)
        group.rows = {in_eval: after}
        self._end_part("reference_timing")
        if speedup is None:
            return False
        return bool(self._guarded(lambda: self._tell(speedup, own, further)))

    def _tell(self, result_of_times: Speedup, own: Row, further: Mapping[str, Row]) -> bool:
        """Write a speed-up into the result."""
        if result_of_times.is_forged:
            raise Fault("rejected", "the candidate claims times that are far below what passed on the judge's clock")
        result = self._result
        for key, value in result_of_times.facts().items():
            setattr(result, key, value)
        result.candidate_ns = round(result_of_times.candidate_ns, 1)
        result.timing = result_of_times.timing
        result.reference_stats = stats_of(result_of_times.counted_ns)
        result.candidate_stats = stats_of(result_of_times.candidate_counted_ns)
        if self._group.is_marked:
            result.speedup_device = result.speedup
        for name, row in further.items():
            result.baselines[name] = speedup_of(row, own, tolerance=self._group.tolerance).facts()
        return True

    def _check_timed(
        self, args: list[Any], seed: int | None, output: object, changed: Sequence[torch.Tensor] | None
    ) -> None:
        comparison, mutation = self._group.compared(args, seed, output, changed)
        self._note_errors(comparison)
        problem = comparison.problem or mutation
        if problem is not None:
            message = f"in a timed call: {problem}"
            raise _Wrong(message, call=self._candidate.id, args=args, seed=seed, perturbed=bool(self._loaded))


def _of_module(fault: Fault) -> str:
    """A fault's message, in words that fit a module."""
    return fault.message.replace("custom_kernel", "the module")[:4000]


def _memory_note(device: str) -> str | None:
    """That the candidate holds too much of the device's memory, as a sentence; None: it does not."""
    try:
        held = None if device == "cpu" else held_by_others()
    except DeviceFailed:
        return None
    return None if held is None else held.replace("the submission", "the candidate")


def _mutation(expected: Expected, after: Sequence[torch.Tensor], tolerance: Tolerance) -> str | None:
    """Why what a call did to its inputs is wrong: what the reference leaves alone must be left alone."""
    inputs = tensors_of(expected.args)
    if len(after) != len(inputs):
        return "the candidate does not give its inputs back"
    for index, (given, allowed, left) in enumerate(zip(inputs, expected.after, after, strict=True)):
        if kind_of(left) == kind_of(given) and (same_bits(given, left) or _is_like(given, allowed, left, tolerance)):
            continue
        return f"input tensor {index} was changed in another way than the reference changes it"
    return None


def _is_like(given: torch.Tensor, expected: torch.Tensor, left: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether an input was left as the reference leaves it, or as it was but for numbers that mean the same."""
    exactly = Tolerance(rtol=0.0, atol=0.0)
    return compare(expected, left, tolerance).problem is None or (
        given.is_floating_point() and compare(given, left, exactly).problem is None
    )
