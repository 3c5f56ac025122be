"""A CUDA device that is not there: where tensors say they are, what is refused, and what `torch.cuda` answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tasks.harness.emulate import VARIABLE
from tasks.harness.emulate.device import Event
from tasks.harness.emulate.errors import EmulationError
from tasks.harness.emulate.mode import EmulatedCuda
from tests.support.waiting import PATIENCE_S

SITE = Path(__file__).resolve().parents[3] / "tasks" / "harness" / "site"
CUDA = torch.device("cuda", 0)


@pytest.fixture
def emulated() -> Iterator[EmulatedCuda]:
    """The device with a megabyte of memory, for the calling thread and the time of a test."""
    with EmulatedCuda(1 << 20) as mode:
        yield mode


def host() -> torch.Tensor:
    """A tensor of the host's."""
    return torch.ones(2, 3)


def _inside_context() -> torch.Tensor:
    with torch.device("cuda"):
        return torch.ones(2)


MOVES: dict[str, Callable[[], torch.Tensor]] = {
    "factory": lambda: torch.zeros(2, 3, device="cuda"),
    "factory with a device object": lambda: torch.zeros(2, 3, device=torch.device("cuda:0")),
    "factory with an index": lambda: torch.zeros(2, 3, device=0),
    "tensor": lambda: torch.tensor([[1.0, 2.0, 3.0]] * 2, device="cuda"),
    "cuda": lambda: host().cuda(),
    "cuda with an index": lambda: host().cuda(0, non_blocking=True),
    "to": lambda: host().to("cuda"),
    "to with a dtype": lambda: host().to(torch.device("cuda"), torch.float16),
    "to by name": lambda: host().to(dtype=torch.float64, device="cuda:0", non_blocking=True),
    "another's type": lambda: host().type_as(torch.zeros(1, device="cuda")),
    "to another's place": lambda: host().to(torch.zeros(1, device="cuda")),
    "operation": lambda: host().cuda() * 2,
    "view": lambda: host().cuda().T[1:],
    "like": lambda: torch.empty_like(host().cuda()),
    "new": lambda: host().cuda().new_zeros(3),
    "dtype": lambda: host().cuda().to(torch.bfloat16),
    "several results": lambda: torch.topk(host().cuda(), 2).values,
    "scalar of the host's": lambda: host().cuda() + torch.tensor(1.0),
    "index of the host's": lambda: host().cuda()[torch.tensor([0])],
    "written into": lambda: torch.empty(2, 3, device="cuda").copy_(host()),
    "type by name": lambda: host().type("torch.cuda.HalfTensor"),
    "pinned": lambda: torch.empty(2, pin_memory=True).pin_memory().cuda(),
    "device context": _inside_context,
}
STAYS: dict[str, Callable[[], torch.Tensor]] = {
    "factory": lambda: torch.zeros(2),
    "back": lambda: host().cuda().cpu(),
    "back by name": lambda: host().cuda().to("cpu"),
    "written into": lambda: torch.empty(2, 3).copy_(host().cuda()),
    "type by name": lambda: host().cuda().type("torch.FloatTensor"),
}


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("make", MOVES.values(), ids=MOVES)
def test_what_is_on_the_device_says_so(make: Callable[[], torch.Tensor]) -> None:
    """By device, is_cuda and get_device, whatever made it."""
    found = make()
    assert (found.device, found.is_cuda, found.is_cpu, found.get_device()) == (CUDA, True, False, 0)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("make", STAYS.values(), ids=STAYS)
def test_what_is_the_hosts_stays_there(make: Callable[[], torch.Tensor]) -> None:
    """A tensor that was never moved, one that came back, one that was written into."""
    found = make()
    assert (found.device.type, found.is_cuda, found.get_device()) == ("cpu", False, -1)


@pytest.mark.usefixtures("emulated")
def test_moving_copies_and_staying_does_not() -> None:
    """What is done on one side is not seen on the other; a tensor that is there already is the same one."""
    here = host()
    there = here.cuda()
    there.zero_()
    torch.as_tensor(here, device="cuda").zero_()
    assert here.sum() == 6
    torch.as_tensor(there, device="cpu").fill_(3)
    assert there.sum().item() == 0
    assert torch.as_tensor(here, device="cpu") is here
    back = there.cpu()
    back.fill_(7)
    assert there.sum().item() == 0
    assert there.cuda() is there
    assert there.to("cuda") is there
    assert here.cpu() is here


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    "mix",
    [
        lambda one, other: one + other,
        lambda one, other: one @ other.T,
        lambda one, other: torch.cat([one, other]),
        lambda one, other: torch.where(one > 0, one, other),
        torch.allclose,
        lambda one, other: torch.nn.functional.layer_norm(one, (3,), weight=other[0]),
        lambda one, other: one.gather(0, other.long()),
        lambda one, other: one.masked_fill(other > 0, 1.0),
        lambda one, other: torch.nn.functional.embedding(other.long(), one),
        torch.ops.aten.add,
        torch.ops.aten.add.Tensor,
    ],
)
def test_operands_on_two_devices_are_refused(mix: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    """As a device does, so that a submission fails here and not only there."""
    with pytest.raises(RuntimeError, match="on the same device"):
        mix(host().cuda(), host())


@pytest.mark.usefixtures("emulated")
def test_a_device_tensor_is_no_array() -> None:
    """Numpy has to be asked for a copy."""
    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        host().cuda().numpy()
    assert host().cuda().cpu().numpy().sum() == 6


@pytest.mark.usefixtures("emulated")
def test_there_is_one_device() -> None:
    """Another one's number is refused by name."""
    with pytest.raises(EmulationError, match="one CUDA device is emulated"):
        host().cuda(1)
    with pytest.raises(EmulationError, match="one CUDA device is emulated"):
        torch.zeros(1, device="cuda:7")


@pytest.mark.usefixtures("emulated")
def test_the_device_has_only_so_much_memory() -> None:
    """A flush buffer for the largest of devices is an error that says so, not the end of the container."""
    assert torch.empty(1 << 20, dtype=torch.uint8, device="cuda").is_cuda
    with pytest.raises(torch.OutOfMemoryError, match="1048576 bytes"):
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")


def test_an_events_time_is_the_hosts() -> None:
    """Milliseconds between two records; without enable_timing or a record there is none, as on a device."""
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    began_s = time.monotonic()
    start.record()
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    end.record()
    assert 0 <= start.elapsed_time(end) <= (time.monotonic() - began_s) * 1e3
    with pytest.raises(ValueError, match="enable_timing"):
        Event().elapsed_time(end)


def run(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter whose path has the emulation, as a task's own eval program is run."""
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, VARIABLE: str(1 << 30), "PYTHONPATH": str(SITE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


#: Every line must hold; what torch.cuda answers, and where the device follows a program to.
PROGRAM = """
import importlib, multiprocessing, sys, threading, time, warnings
import torch
from torch.cuda import Event, nvtx
from torch.profiler import ProfilerActivity, profile


def refused(call, why="needs a CUDA device", kind=RuntimeError):
    try:
        call()
    except kind as error:
        return why in str(error)
    return False


def elsewhere(n):
    return str(torch.ones(n, device="cuda").device)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        ctx.save_for_backward(value)
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.full_like(ctx.saved_tensors[0], 2.0, device="cuda")


def main():
    x = torch.rand(8, 8, device="cuda")
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
    assert "emulated" in torch.cuda.get_device_name() and torch.cuda.get_device_properties(0).total_memory == 1 << 30
    assert torch.cuda.get_device_capability() == (8, 0) and torch.cuda.is_bf16_supported()
    free, total = torch.cuda.mem_get_info(device=0)
    assert torch.cuda.memory_allocated(device="cuda") > 0 and torch.cuda.current_stream(device="cuda").query()
    torch.cuda.set_rng_state(new_state=torch.cuda.get_rng_state(device="cuda"))
    assert 0 < free <= total == 1 << 30
    torch.cuda.set_device(0), torch.cuda.empty_cache(), torch.cuda.synchronize(), torch.cuda.reset_peak_memory_stats()
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.cuda.device(0), nvtx.range("here"):
        start.record(), x @ x, end.record(side)
    side.wait_stream(torch.cuda.current_stream()), side.synchronize()
    assert start.elapsed_time(end) >= 0 and torch.cuda.current_stream().cuda_stream == 0
    began_ns = time.perf_counter_ns()
    # The kernel that the judge calibrates with: a nanosecond for each cycle.
    torch.cuda._sleep(2_000_000)
    assert time.perf_counter_ns() - began_ns >= 2_000_000
    torch.manual_seed(5), torch.cuda.manual_seed(5), torch.cuda.manual_seed_all(5)
    first = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(5)
    assert torch.equal(first, torch.rand(3, device="cuda"))
    assert torch.Generator(device="cuda").device.type == "cuda" and isinstance(torch.Generator(), torch.Generator)
    assert torch.nn.Linear(8, 8, device="cuda").weight.is_cuda and torch.nn.Parameter(x).is_cuda
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.ones(1, 2, 3, device="cuda"), torch.tensor([1, 1]))
    with warnings.catch_warnings(action="error"):
        assert torch.nn.GRU(3, 2, device="cuda")(packed)[0].data.is_cuda
    torch.set_default_device("cuda")
    assert torch.ones(1).is_cuda and torch.get_default_device().type == "cuda"
    torch.set_default_device("cpu")
    x.requires_grad_()
    Double.apply(x).sum().backward()
    assert x.grad.is_cuda and x.grad.sum() == 128
    with torch.autocast("cuda"):
        assert (x @ x).dtype is torch.float16
    assert torch.compile(lambda value: value + 1)(x).is_cuda and torch.compile(mode="max-autotune")(main) is main
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        x @ x
    assert "aten::mm" in profiler.key_averages().table(sort_by="self_cuda_time_total")
    seen = []
    thread = threading.Thread(target=lambda: seen.append(elsewhere(1)))
    thread.start(), thread.join()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seen += pool.map(elsewhere, [1])
    assert seen == ["cuda:0", "cuda:0"], seen
    assert torch.accelerator.current_accelerator().type == "cuda"
    from torch.utils.cpp_extension import CUDAExtension, load, load_inline
    assert refused(torch.cuda.CUDAGraph, "torch.cuda.CUDAGraph needs a CUDA device")
    assert refused(lambda: torch.cuda.graph(None)) and refused(lambda: load("a", ["a.cu"]))
    assert refused(lambda: load_inline("a", "", cuda_sources="x"), "the CUDA extension 'a' needs a CUDA device")
    assert refused(lambda: CUDAExtension("a", ["a.cu"]))
    assert refused(lambda: importlib.import_module("triton"), "triton", ImportError)
    print("through")


if __name__ == "__main__":
    main()
"""


def test_a_program_finds_the_device_everywhere(tmp_path: Path) -> None:
    """Unchanged, in threads, spawned processes and backward passes; device code is refused by name."""
    done = run(PROGRAM, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "through"), done.stderr


def test_an_installed_library_for_devices_is_refused_by_name(tmp_path: Path) -> None:
    """The import says why; a submission that tries it and goes on without can."""
    (tmp_path / "triton.py").write_text("raise AssertionError('must not run')\n", encoding="utf-8")
    done = run("try:\n    import triton\nexcept ImportError as error:\n    print(error)\n", tmp_path)
    assert done.stdout.startswith("triton compiles for devices"), done.stderr
