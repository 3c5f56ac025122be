"""Whose fault it is when the judge cannot compute on the device: the host's, the submission's, or the task's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import torch

from tasks.harness.judge import accelerator
from tasks.harness.judge.accelerator import (
    DeviceFailed,
    DeviceFull,
    expect_others,
    held_by_others,
    raise_for_device,
    require_device,
)
from tasks.harness.judge.evaluation import Judge
from tasks.harness.judge.faults import Fault
from tasks.harness.judge.frames import Frames
from tasks.harness.judge.problem import Problem, TaskFault
from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.judge.worker_client import WorkerClient
from tasks.harness.judge.worker_output import Captured, Collector
from tasks.harness.judge.workers import Workers
from tasks.harness.shared.cuda_driver import DriverError

GIB = 1 << 30
REFERENCE = "def generate_input(size): return size\ndef check_implementation(data, output): return ''\n"


class Cuda:
    """What torch.cuda says, and whether the device computes."""

    def __init__(self) -> None:
        #: Bytes of the device, of this process's tensors, and of all others.
        self.total, self.own, self.others = 80 * GIB, 10 * GIB, 1 * GIB
        self.emptied = 0
        #: What computing raises.
        self.broken: Exception | None = None

    def empty_cache(self) -> None:
        """Give kept memory back."""
        self.emptied += 1

    def arange(self, count: int, *, device: str) -> torch.Tensor:
        """Compute, on whatever there is."""
        assert device == "cuda"
        if self.broken is not None:
            raise self.broken
        return torch.tensor(range(count))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """A device that is in use."""
    made = Cuda()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (made.total - made.own - made.others, made.total))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: made.own)
    monkeypatch.setattr(torch.cuda, "empty_cache", made.empty_cache)
    monkeypatch.setattr(torch, "arange", made.arange)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: None)
    monkeypatch.setattr(accelerator, "_expected_bytes", 0)
    return made


def driver_error(code: int) -> Exception:
    """An error of the driver, as torch raises it."""
    error = torch.AcceleratorError("CUDA error")
    error.error_code = code  # type: ignore[attr-defined]  # torch sets it where it makes one
    return error


def task(generate: Callable[..., object], check: Callable[..., object] = lambda *_: "") -> Problem:
    """A task of these functions."""
    return Problem(generate=generate, check=check, reference=None, modules=frozenset())


def raising(error: Exception) -> Callable[..., object]:
    """A function that raises."""

    def function(*_: object, **__: object) -> object:
        raise error

    return function


def test_a_judge_without_its_device_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks would make their inputs on the CPU, and the results would be accepted."""
    require_device("cpu")
    monkeypatch.setattr(torch, "arange", raising(AssertionError("Torch not compiled with CUDA enabled")))
    with pytest.raises(DeviceFailed, match="this process cannot use device 'cuda'"):
        require_device("cuda")


@pytest.mark.usefixtures("cuda")
def test_a_device_that_computes_wrong_or_reports_no_memory_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of squares is known. Neither task nor submission can be blamed then."""
    require_device("cuda")
    monkeypatch.setattr(torch, "arange", lambda count, **_: torch.zeros(count))
    with pytest.raises(DeviceFailed, match="computes 0 where 85344 is right"):
        require_device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", raising(driver_error(999)))
    with pytest.raises(DeviceFailed, match="does not report its memory"):
        held_by_others()


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), driver_error(2), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED at X")],
    ids=["allocator", "driver", "library"],
)
def test_memory_that_a_submission_holds_is_not_the_tasks_fault(cuda: Cuda, error: Exception) -> None:
    """Whichever of the task's functions misses it. What the task alone needs too much of stays the task's fault."""
    cuda.others = 60 * GIB
    with pytest.raises(DeviceFull, match=r"the submission keeps 60\.0 of the device's 80\.0 GiB"):
        task(raising(error)).generate({}, rng_seed=1)
    with pytest.raises(DeviceFull):
        task(raising(error), raising(error)).check(None, None)
    with pytest.raises(DeviceFull):
        Problem(generate=raising(error), check=raising(error), reference=raising(error), modules=frozenset()).expected(
            0
        )
    cuda.own, cuda.others = 77 * GIB, 1 * GIB
    with pytest.raises(TaskFault, match="generate_input raised"):
        task(raising(error)).generate({}, rng_seed=1)


def test_what_workers_hold_that_wait_for_their_turns_is_no_submissions(cuda: Cuda) -> None:
    """What comes to it is."""
    cuda.others = 5 * GIB
    assert held_by_others() is not None
    expect_others()
    assert held_by_others() is None
    cuda.others = 8 * GIB
    assert held_by_others() is not None


@pytest.mark.parametrize("code", [46, 100, 214, 802, 999])
def test_a_device_that_fails_during_the_check_is_not_the_tasks_fault(cuda: Cuda, code: int) -> None:
    """Neither where its first error is an ordinary one: a device that was lost fails in many words."""
    cuda.broken = driver_error(code)
    for error in (driver_error(code), RuntimeError("cuDNN error")):
        with pytest.raises(DeviceFailed, match="cannot use device 'cuda'"):
            task(raising(error)).generate({}, rng_seed=1)


def test_a_kernel_of_the_tasks_own_that_breaks_its_context_is_the_tasks_fault(cuda: Cuda) -> None:
    """An illegal address ends the context, and every later call says so. So does an exception without a device."""
    cuda.broken = driver_error(700)
    with pytest.raises(TaskFault):
        task(raising(driver_error(700))).generate({}, rng_seed=1)
    for broken in (None, torch.OutOfMemoryError("full, which is not broken")):
        cuda.broken = broken
        with pytest.raises(TaskFault):
            task(raising(ValueError("a bug"))).generate({}, rng_seed=1)


def test_without_a_device_every_error_is_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of torch.cuda on a CPU type."""
    asked: list[object] = []
    for name in ("mem_get_info", "synchronize", "current_device"):
        monkeypatch.setattr(torch.cuda, name, asked.append)
    for error in (torch.OutOfMemoryError("no device"), ValueError()):
        raise_for_device(error)
    assert (asked, torch.cuda.is_initialized()) == ([], False)  # type: ignore[no-untyped-call]  # torch lacks it


class _Frames(Frames):
    """Keeps the steps."""

    def __init__(self) -> None:
        self.steps: list[Mapping[str, Any]] = []

    def send(self, message: Mapping[str, Any]) -> None:
        """A step."""
        self.steps.append(message)

    def progress(self, phase: str, done: int, total: int) -> None:
        """Not kept."""


class _Workers:
    """Workers whose calls raise what they are told, one after the other."""

    waited_ns = 0

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.done: list[str] = []
        self.before_raising: Callable[[], None] = lambda: None

    def call(self, *_: object, **__: object) -> None:
        """One call."""
        self.done.append("call")
        error = self.errors.pop(0) if self.errors else None
        self.before_raising()
        if error is not None:
            raise error

    def prepare_device(self, *_: object, **__: object) -> tuple[None, str]:
        """Nothing is known of it."""
        self.done.append("prepare_device")
        return None, "open"

    def check(self, *, deadline_ns: int) -> str:
        """Right."""
        del deadline_ns
        return ""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self.done.append(name)


class _Collector:
    """No output."""

    readings = None

    def take(self) -> Captured:
        """Nothing was written."""
        return Captured(stdout="", stderr="", stdout_bytes=0, stderr_bytes=0)


def judged(workers: _Workers, tmp_path: Path, *, device: str = "cpu", mode: str = "test") -> Mapping[str, Any]:
    """The step of a mode of two cases. On the CPU nothing but these workers can fail."""
    asked = ModeRequest(name=mode, cases=("size: 1", "size: 2"), timeout_s=60)
    files = {"reference.py": REFERENCE}
    request = JudgeRequest(modes=(asked,), files=files, worker_files=(), submission_name="s.py", submission="")
    frames = _Frames()
    judge = Judge(
        request,
        device=device,
        frames=frames,
        workers=cast("Workers", workers),
        collector=cast("Collector", _Collector()),
    )
    judge.run(tmp_path)
    (step,) = frames.steps
    return step


_FULL = torch.OutOfMemoryError("CUDA out of memory")


def test_a_case_is_tried_again_when_what_was_kept_for_later_is_released(cuda: Cuda, tmp_path: Path) -> None:
    """An honest worker keeps memory for its next tensors; it is asked to give that back before it is blamed."""
    cuda.others = 70 * GIB
    workers = _Workers(_FULL)
    step = judged(workers, tmp_path)
    assert step["judged"]["verdict"] == "accepted"
    assert workers.done.count("call") == 3
    assert workers.done.index("flush") == workers.done.index("call") + 1
    assert cuda.emptied == 1


@pytest.mark.parametrize(
    ("device", "own", "others", "later", "verdict", "message"),
    [
        # Not the task's fault, and no further case is tried.
        ("cpu", 10, 70, None, "memory_limit", "test 1 of 2: the submission keeps 70.0 of the device's 80.0 GiB"),
        # No other process holds any.
        ("cpu", 78, 1, None, "invalid", "the judge needs more memory than the device has"),
        # A display, a monitor, another service: what such a device has too little of, the task needs too much of.
        ("cuda", 10, 30, None, "invalid", "the judge needs more memory than the device has"),
        ("cuda", 10, 30, 60, "memory_limit", "the submission keeps 30.0 of the device's 80.0 GiB"),
    ],
    ids=["hoarded", "needed", "held before", "hoarded beside what was held before"],
)
def test_only_memory_that_a_submission_has_taken_since_it_was_loaded_is_its_own(
    cuda: Cuda, tmp_path: Path, *, device: str, own: int, others: int, later: int | None, verdict: str, message: str
) -> None:
    """In GiB: of the judge, of all others before the first call, and in the calls."""
    cuda.own, cuda.others = own * GIB, others * GIB
    workers = _Workers(*[_FULL] * 9)

    def hoard() -> None:
        cuda.others = (later or others) * GIB

    workers.before_raising = hoard
    step = judged(workers, tmp_path, device=device)
    assert step["judged"]["verdict"] == verdict
    assert message in step["judged"]["message"]
    assert workers.done.count("call") == (2 if verdict == "memory_limit" else 1)


def worker_client() -> WorkerClient:
    """Its worker enqueues a call at once."""
    client = object.__new__(WorkerClient)
    answer = {"op": "enqueued", "parts": []}
    vars(client).update(
        _send=MagicMock(),
        _enqueued=lambda _: answer,
        _wait_finished=MagicMock(),
        _calls=0,
        _output_sizes=(),
        waiting_cpu_ns=0,
        waited_ns=0,
        memory_bytes=GIB,
    )
    return client


@pytest.mark.parametrize("broken", [None, 700, 999])
@pytest.mark.parametrize("step", ["open_output", "close_output"])
def test_an_output_that_cannot_be_read_since_the_device_is_lost_is_not_the_submissions_fault(
    cuda: Cuda, step: str, broken: int | None
) -> None:
    """A device that works, or that an access to what the worker gave has broken for the judge, leaves it to blame."""
    calls = MagicMock(arena_handle=b"")
    getattr(calls, step).side_effect = DriverError(f"{step} failed")
    packed = MagicMock(nbytes=0, **{"place.return_value": ((), 0), "message.return_value": {}})
    if broken is not None:
        cuda.broken = driver_error(broken)
    with pytest.raises((Fault, DeviceFailed)) as raised:
        worker_client()._call_on_device(calls, packed, keeps_inputs=False, deadline_ns=0)
    assert isinstance(raised.value, DeviceFailed) is (broken == 999)


_LOST = DeviceFailed("device 'cuda' is lost")
_FAULT = Fault("runtime_error", "DriverError: cuStreamWriteValue32_v2 failed with CUresult 999")


@pytest.mark.parametrize(
    ("raised", "broken", "verdict", "message"),
    [
        # It is evaluated again elsewhere.
        (_LOST, None, "internal_error", "test 1 of 2: device 'cuda' is lost"),
        (_FAULT, driver_error(999), "internal_error", "cuStreamWriteValue32_v2 failed"),
        (_FAULT, driver_error(2), "runtime_error", "cuStreamWriteValue32_v2 failed"),
        (_FAULT, None, "runtime_error", "cuStreamWriteValue32_v2 failed"),
    ],
    ids=["lost in the judge", "lost", "full", "works"],
)
def test_a_device_that_is_lost_in_a_call_is_not_the_submissions_fault(
    cuda: Cuda, tmp_path: Path, *, raised: Exception, broken: Exception | None, verdict: str, message: str
) -> None:
    """The worker is the first to fail then. A kernel that breaks its own context leaves the judge's as it is."""
    workers = _Workers(raised)

    def lose() -> None:
        cuda.broken = broken

    workers.before_raising = lose
    step = judged(workers, tmp_path, device="cuda")
    assert step["judged"]["verdict"] == verdict
    assert message in step["judged"]["message"]
    assert workers.done.count("call") == (1 if verdict == "internal_error" else 2)
