"""One evaluation: prepare the workers, load the submission, run the modes, send one step frame for each."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any

from sandbox.protocol import Artifact, Judged, to_b64
from tasks.harness.emulate import asked
from tasks.harness.shared.device_memory import release_memory
from tasks.harness.shared.profilers import FILES

from .accelerator import (
    OUT_OF_MEMORY,
    DeviceFailed,
    DeviceFull,
    device_failure,
    expect_others,
    held_by_others,
    require_device,
)
from .author_code import begin_at
from .benchmark import TOTAL_NS, Benchmark
from .cases import Case, CaseError, parse_cases
from .faults import Fault
from .frames import Frames
from .hand_over import Calibration
from .mode_run import ModeRun, check_time_limit, shown
from .problem import TaskFault, rng_seed_of
from .report import CaseReport
from .request import JudgeRequest, ModeRequest
from .system_facts import facts
from .throttling import DeviceUnsteady
from .worker_output import Collector
from .workers import Workers

EXIT_PASSED = 0
EXIT_NOT_PASSED = 112
EXIT_TIMED_OUT = 114
_CALIBRATION_TIMEOUT_NS = 30_000_000_000
#: How long the interpreters of several ranks, and the judge's own processes beside them, may take to import torch.
START_TIMEOUT_NS = 120_000_000_000


class WorkerLost(Exception):
    """The worker cannot be asked anything any more. The reason has been recorded."""


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
        self._benchmark: Benchmark
        self._extra: dict[str, Any] = {"system": facts(device)}

    def run(self, directory: Path) -> None:
        """Judge every requested mode and send one step frame for each.

        Raises:
            DeviceFailed: the judge's device is missing or does not work.
        """
        if self._times_on_device:
            # Worker and judge each take some tenths of a second for their context: side by side.
            self._workers.begin_device(
                flush_bytes=self._request.flush_bytes,
                deadline_ns=time.monotonic_ns() + START_TIMEOUT_NS,
                tried=self._request.streams_wait,
            )
        if self._request.ranks is None:
            require_device(self._device)
        if not self._request.modes:
            self._answer_facts()
            return
        runs = self._prepare(directory)
        if runs is None:
            return
        self._benchmark = Benchmark(
            self._request,
            device=self._device,
            workers=self._workers,
            readings=self._collector.readings,
            calibration=self._calibration,
        )
        for run in runs:
            run.start_ns = time.monotonic_ns()
            run.deadline_ns = run.start_ns + round(run.request.timeout_s * 1e9)
            gone = self._run_mode(run)
            if gone or (run.verdict != "accepted" and run.kind != "profile"):
                return

    @property
    def _times_on_device(self) -> bool:
        """Whether calls on a device are timed. An emulated device needs no preparation."""
        timed = any(mode.name.partition(".")[0] in TOTAL_NS for mode in self._request.modes)
        return timed and self._device != "cpu" and not asked()

    def _answer_facts(self) -> None:
        start = time.monotonic_ns()
        run = ModeRun(request=ModeRequest(name="facts", cases=(), timeout_s=0), cases=(), start_ns=start, deadline_ns=0)
        run.details["round_trip_ns"] = self._workers.probe(deadline_ns=start + _CALIBRATION_TIMEOUT_NS)
        self._emit(run)

    def _prepare(self, directory: Path) -> list[ModeRun] | None:
        """Parse, import, calibrate, load. None if that ended the evaluation; its step has been sent."""
        first = ModeRun(request=self._request.modes[0], cases=(), start_ns=time.monotonic_ns(), deadline_ns=0)
        self._frames.progress("build", 0, 1)
        try:
            runs = self._parse()
            self._workers.prepare(self._request.files, directory, deadline_ns=time.monotonic_ns() + START_TIMEOUT_NS)
            self._extra["prepare_ns"] = time.monotonic_ns() - first.start_ns
            if self._device == "cpu" and any(run.kind in TOTAL_NS for run in runs):
                deadline = time.monotonic_ns() + _CALIBRATION_TIMEOUT_NS
                self._calibration = self._workers.calibrate(deadline_ns=deadline)
                self._extra["calibrate_ns"] = time.monotonic_ns() - first.start_ns - self._extra["prepare_ns"]
            elif self._times_on_device:
                self._calibration, self._extra["gate"] = self._workers.prepare_device(
                    self._device, deadline_ns=time.monotonic_ns() + START_TIMEOUT_NS
                )
                self._extra["calibrate_ns"] = time.monotonic_ns() - first.start_ns - self._extra["prepare_ns"]
            if self._device != "cpu":
                # A worker that cannot use its device is not the fault of a submission, which is not loaded yet. This
                # comes last: the worker tries in a fork whether streams can wait, and no use of a device survives one.
                self._workers.probe(deadline_ns=time.monotonic_ns() + START_TIMEOUT_NS)
                if self._request.ranks is None:
                    expect_others()
        except TaskFault as fault:
            first.fail(None, "invalid", str(fault))
            self._emit(first)
            return None
        except Fault as fault:
            errors = self._collector.take().stderr[-2000:]
            raise RuntimeError(
                f"the worker failed before any submission was loaded: {fault.message}\n{errors}"
            ) from fault
        load_start = time.monotonic_ns()
        try:
            self._load(load_start)
        except Fault as fault:
            first.cases = runs[0].cases
            first.announced = len(first.cases)
            first.fail_with(None, fault)
            if not fault.gone:
                # Its output up to the failure is still in the worker's buffers.
                with contextlib.suppress(Fault):
                    self._workers.flush(deadline_ns=time.monotonic_ns() + 1_000_000_000)
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
            for case in cases:
                self._check_world_size(mode, case)
            runs.append(ModeRun(request=mode, cases=cases, start_ns=0, deadline_ns=0))
        return runs

    def _check_world_size(self, mode: ModeRequest, case: Case) -> None:
        world_size, ranks = case.arguments.get("world_size"), self._request.ranks
        if world_size != ranks:
            expected = (
                "none, as the task is for one device" if ranks is None else f"{ranks}, as many as there are ranks"
            )
            raise TaskFault(f"mode {mode.name!r}: case {case.spec!r} has world_size {world_size}, expected {expected}")

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
        """Run one mode and send its step. True if the worker is lost."""
        gone = False
        run.announced = len(run.cases)
        waited_ns = self._workers.waited_ns
        try:
            for index, case in enumerate(run.cases):
                self._frames.progress(run.request.name, index, len(run.cases))
                run.reports.append(CaseReport(spec=case.spec))
                begin_at(run.place(index))
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
        if run.verdict == "time_limit":
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
            full = self._call(run, index, case)
            if full is not None:
                # What judge and workers keep for later tensors may be all that is missing.
                release_memory()
                self._workers.flush(deadline_ns=run.deadline_ns)
                full = self._call(run, index, case)
            if full is not None:
                run.fail(index, "memory_limit", full)
                raise WorkerLost
        except (DeviceUnsteady, DeviceFailed) as unfit:
            # Neither the submission's fault nor the task's: the daemon evaluates again, on another device if it can.
            run.fail(index, "internal_error", str(unfit))
            if isinstance(unfit, DeviceFailed):
                raise WorkerLost from unfit
        except Fault as fault:
            failed = device_failure(self._device) if fault.verdict == "runtime_error" else None
            if failed is not None:
                run.fail(index, "internal_error", f"{failed}; the submission's process said: {fault.message}")
                raise WorkerLost from fault
            run.fail_with(index, fault)
            if fault.gone:
                raise WorkerLost from fault

    def _call(self, run: ModeRun, index: int, case: Case) -> str | None:
        """Run one case; why the judge got no memory of the device for it, None if it did.

        The exception holds tensors of the calls that failed, so it must be gone before memory can be released.
        """
        try:
            if run.kind == "test":
                self._test(run, index, case)
            elif run.kind == "profile":
                self._profile(run, index, case)
            else:
                self._benchmark.run(run, index, case)
        except OUT_OF_MEMORY as error:
            held = str(error) if isinstance(error, DeviceFull) else held_by_others()
            if held is None:
                raise TaskFault(f"the judge needs more memory than the device has: {error}") from error
            return held
        return None

    def _test(self, run: ModeRun, index: int, case: Case) -> None:
        rng_seed = rng_seed_of(self._request.seed)
        self._workers.call(case.arguments, rng_seed=rng_seed, output_capacities=(), deadline_ns=run.deadline_ns)
        message = self._workers.check(deadline_ns=run.deadline_ns)
        run.report(index, status="pass", message=shown(message) if message else None)
        check_time_limit(run)

    def _profile(self, run: ModeRun, index: int, case: Case) -> None:
        rng_seed = rng_seed_of(self._request.seed)
        # The first call builds and warms up, and is not profiled.
        self._workers.call(case.arguments, rng_seed=rng_seed, output_capacities=(), deadline_ns=run.deadline_ns)
        profiles = self._workers.profile(
            case.arguments, rng_seed=rng_seed, capture=self._request.capture, deadline_ns=run.deadline_ns
        )
        several = len(profiles) > 1
        tables = [
            (f"rank {rank}\n".encode() if several else b"") + profiled.table for rank, profiled in enumerate(profiles)
        ]
        run.report(index, profile_b64=to_b64(b"\n".join(tables)), profiler=profiles[0].profiler)
        name = run.request.name if len(run.cases) == 1 else f"{run.request.name}.{index}"
        for rank, profiled in enumerate(profiles):
            base = f"{name}{f'.rank{rank}' if several else ''}"
            for suffix, data in profiled.files.items():
                artifact = Artifact(name=f"{base}.{suffix}", media_type=FILES[suffix][0], data=data)
                self._frames.send(artifact.to_message())
            if profiled.failure is not None:
                run.fail(index, "runtime_error", profiled.failure)

    def _emit(self, run: ModeRun) -> None:
        captured = self._collector.take()
        passed, timed_out = run.verdict == "accepted", run.verdict == "time_limit"
        stderr = "\n".join(part for part in (captured.stderr, *run.traces) if part)
        details = run.details | self._extra
        if run.phases_ns:
            details["phases_ns"] = run.phases_ns
        if self._calibration is not None and run.kind in TOTAL_NS:
            details["calibration"] = self._calibration.as_details()
        self._extra = {}
        exit_code = EXIT_PASSED if passed else EXIT_TIMED_OUT if timed_out else EXIT_NOT_PASSED
        judged = Judged(
            verdict=run.verdict,
            message=run.message,
            assurance={"correctness": "judge", "timing": run.timing},
            details=details,
            announced=run.announced,
            cases=tuple(report.to_message() for report in run.reports),
        )
        self._frames.step(
            run.request.name,
            judged,
            captured,
            start_ns=run.start_ns - self._began_ns,
            duration_ns=time.monotonic_ns() - run.start_ns,
            exit_code=exit_code,
            timed_out=timed_out,
            output_limit=run.verdict == "output_limit",
            stderr=stderr,
        )
