"""Ways to cheat that need a device: streams, graphs and caches. Those that do not are in tests/acceptance/attacks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import pytest
import torch

from sandbox.protocol import StepResult
from tasks.harness.local import lines_of
from tests.gpu.bench import Machine, judge, task_of

CASE = "size: 1024; seed: 2"

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")

#: Holds a stream for some tens of milliseconds before the answer is written.
ANOTHER_STREAM = """
import torch

side = torch.cuda.Stream()


def custom_kernel(data):
    a, b, *rest = data
    output = torch.zeros_like(a)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        torch.add(a, b, out=output)
    output.record_stream(side)
    return output
"""
#: Captures a graph over its first inputs and replays that, whatever it is given.
BAKED_GRAPH = """
import torch

graph, kept = torch.cuda.CUDAGraph(), []


def custom_kernel(data):
    a, b, *rest = data
    if not kept:
        a, b = a.clone(), b.clone()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            kept.append(a + b)
    graph.replay()
    return kept[0]
"""
#: Sets lines of the cache aside for what it touches twice, and asks for the answer to stay in them.
PERSISTING_CACHE = """
import ctypes
import torch

PERSISTING_L2_CACHE_SIZE = 6
known = {}


def custom_kernel(data):
    a, b, *rest = data
    if not known:
        ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0]).cudaDeviceSetLimit(
            PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(1 << 20)
        )
    known.setdefault("answer", a + b)
    return known["answer"]
"""


#: Says that a tenth of the time has passed between two events.
FORGED_EVENTS = """
import torch

honest = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, other: honest(self, other) / 10


def custom_kernel(data):
    a, b, *rest = data
    torch.cuda._sleep(5_000_000)
    return a + b
"""
#: Nobody waits for the device any more, and it is said to be idle.
PATCHED_SYNCHRONIZE = (
    """
import torch

torch.cuda.synchronize = lambda *_, **__: None
torch.cuda.Event.synchronize = lambda self: None
torch.cuda.Event.query = lambda self: True
"""
    + ANOTHER_STREAM
)
#: What the allocator gives it may hold the answer to an earlier call.
STALE_MEMORY = """
import torch


def custom_kernel(data):
    a, b, *rest = data
    return torch.empty_like(a)
"""
#: Takes inputs at addresses that it has seen for the same inputs: the allocator gives the same ones again and again.
REMEMBERS_ADDRESSES = """
import torch

known = {}


def custom_kernel(data):
    a, b, *rest = data
    key = a.data_ptr(), b.data_ptr()
    if key in known:
        print("seen again", flush=True)
    else:
        known[key] = a + b
    return known[key]
"""
#: Returns, and has the device write the output a little later.
WRITES_LATER = """
import threading
import time
import torch


def custom_kernel(data):
    a, b, *rest = data
    output = torch.zeros_like(a)

    def later():
        time.sleep(0.02)
        torch.add(a, b, out=output)

    threading.Thread(target=later, daemon=True).start()
    return output
"""
#: Computes when somebody looks.
LAZY = """
import torch


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        for item in arguments:
            if isinstance(item, Lazy) and hasattr(item, "work"):
                work = item.work
                del item.work
                torch.cuda._sleep(20_000_000)
                item.copy_(work[0] + work[1])
        return super().__torch_function__(function, types, arguments, options or {})


def custom_kernel(data):
    a, b, *rest = data
    lazy = torch.zeros_like(a).as_subclass(Lazy)
    lazy.work = a, b
    return lazy
"""
#: Writes both flags of every page of flags that it finds among its mappings: let in, and done.
LETS_ITSELF_IN = """
import ctypes
import torch


def custom_kernel(data):
    a, b, *rest = data
    for line in open("/proc/self/maps"):
        if "memfd:arena" in line and " rw-s " in line:
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            if last - first == 65536:
                words = (ctypes.c_uint64 * 512).from_address(first)
                words[0] = words[8] = max(words[0], words[8]) + 1
    return a + b
"""


REFUSED = ("wrong_answer", "rejected", "runtime_error")


@dataclass(frozen=True)
class Attack:
    """A submission that gains nothing."""

    code: str
    _: KW_ONLY
    #: What its calls need, where it may be accepted.
    cycles: int | None = None
    #: Its time may be accepted without the work in it, as long as it is never called audited.
    may_claim: bool = False
    refused: tuple[str, ...] = REFUSED


ATTACKS = {
    # The reported time has all the device did for the call, on whichever stream.
    "another stream": Attack(ANOTHER_STREAM, cycles=50_000_000, refused=("wrong_answer", "rejected")),
    # Every timed call has values of its own, wherever the old answer is kept.
    "baked graph": Attack(BAKED_GRAPH, refused=("wrong_answer", "runtime_error")),
    "persisting cache": Attack(PERSISTING_CACHE, refused=("wrong_answer", "runtime_error")),
    "forged events": Attack(FORGED_EVENTS, cycles=5_000_000, may_claim=True),
    "patched synchronize": Attack(PATCHED_SYNCHRONIZE, cycles=50_000_000, may_claim=True),
    # What the device holds when the call ends is what counts, for the values of this call.
    "stale memory": Attack(STALE_MEMORY),
    "written after return": Attack(WRITES_LATER),
    "lazy tensor": Attack(LAZY, cycles=20_000_000, may_claim=True),
    "lets itself in": Attack(LETS_ITSELF_IN),
}


def evaluate(submission: str) -> StepResult:
    """The benchmark of the vector addition."""
    return judge(task_of("vectoradd"), submission, {"benchmark": (CASE,)}, Machine.here(), limit_s=120.0)[0]


@pytest.mark.parametrize("name", ATTACKS)
def test_it_gains_nothing(name: str) -> None:
    """Refused; or accepted with all its work in the time, or in a time that is never called audited."""
    attack = ATTACKS[name]
    if name == "lets itself in" and not torch.version.cuda:
        pytest.skip("flags are on CUDA alone")
    step = evaluate(attack.code)
    assert step.judged is not None
    if attack.cycles is None or step.judged.verdict != "accepted":
        assert step.judged.verdict in attack.refused, step.judged
    # At most three cycles in a nanosecond.
    elif float(lines_of(step)["benchmark.0.mean"]) <= attack.cycles / 3:
        assert attack.may_claim, step.judged
        assert not step.judged.assurance["timing"].startswith("audited"), step.judged


def test_addresses_that_come_again_have_other_values() -> None:
    """Wrong as soon as the allocator repeats itself; else nothing was remembered."""
    step = evaluate(REMEMBERS_ADDRESSES)
    assert step.judged is not None
    assert step.judged.verdict == ("wrong_answer" if "seen again" in step.stdout else "accepted"), step.judged
