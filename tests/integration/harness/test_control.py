"""The process that is called to know what a call costs beside its kernel."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tasks.harness.judge import audit
from tasks.harness.judge import control as module
from tasks.harness.judge.activity import Activity, Look
from tasks.harness.judge.control import Control, ControlOutputs, read_all
from tasks.harness.judge.worker_client import Called, WorkerClient
from tasks.harness.judge.workers import Call
from tasks.harness.shared.arenas import Arena
from tasks.harness.shared.values import Packed, pack, tensors_of
from tests.support.waiting import PATIENCE_S

_PATIENCE_NS = int(PATIENCE_S * 1e9)


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    """One that is warm; the test's own thread stays where it is, however many cores there are."""
    monkeypatch.setattr(module, "judge_core", lambda: min(os.sched_getaffinity(0)))
    monkeypatch.setattr(module, "leave_judge_core", lambda: True)
    monkeypatch.setattr(audit, "CROWDED_NS", _PATIENCE_NS)
    before = os.sched_getaffinity(0)
    monkeypatch.setattr("tasks.harness.judge.worker_client.stay_on", lambda _: None)
    started = Control.start()
    assert started is not None
    try:
        assert started.open(deadline_ns=time.monotonic_ns() + _PATIENCE_NS)
        yield started
    finally:
        started.close()
        os.sched_setaffinity(0, before)


def _calls(control: Control, value: object, count: int, *, beside: Activity | None = None) -> list[float]:
    def make() -> Packed:
        return pack(value)

    deadline_ns = time.monotonic_ns() + _PATIENCE_NS
    return [*control.calls(make, count, parts=1, deadline_ns=deadline_ns, beside=beside).costs_ns]


def change_calls(monkeypatch: pytest.MonkeyPatch, change: Callable[[Called], Called]) -> None:
    """What a client hears of each call is changed."""
    call = WorkerClient.call
    monkeypatch.setattr(WorkerClient, "call", lambda *given, **options: change(cast("Any", call)(*given, **options)))


def test_a_call_costs_something_beside_its_kernel(control: Control) -> None:
    """Copied, mapped in small pages or in huge ones: as many costs as calls."""
    for nbytes in (64, 100_000, 300_000):
        began_ns = time.perf_counter_ns()
        costs = _calls(control, {"x": torch.ones(nbytes, dtype=torch.uint8), "n": 3}, 5)
        took_ns = time.perf_counter_ns() - began_ns
        assert len(costs) == 5
        assert min(costs) > 0, costs
        assert sum(costs) < took_ns, costs


@pytest.mark.parametrize(
    ("nbytes", "made"), [(300_000, 5 + module._FIRST), (module._OWN_UP_TO_BYTES + 8, 1), (8 << 20, 1)]
)
def test_each_call_has_an_input_of_its_own_and_the_first_do_not_count(control: Control, nbytes: int, made: int) -> None:
    """Calls with one input would follow each other faster than the submission's, and cost less; the first cost more.

    Large inputs, which take longer to make than to hand over, serve a whole row.
    """
    inputs = []

    def make() -> Packed:
        inputs.append(pack(torch.ones(nbytes, dtype=torch.uint8)))
        return inputs[-1]

    deadline_ns = time.monotonic_ns() + _PATIENCE_NS
    assert len(control.calls(make, 5, parts=1, deadline_ns=deadline_ns).costs_ns) == 5
    assert len(inputs) == made


def test_its_kernel_takes_as_long_as_it_is_told_to(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the judge's clock and by its own; that is no part of what a call costs."""
    kernel_ns = 3_000_000
    seen: list[Called] = []

    def note(called: Called) -> Called:
        seen.append(called)
        return called

    change_calls(monkeypatch, note)
    deadline_ns = time.monotonic_ns() + _PATIENCE_NS
    began_ns = time.perf_counter_ns()
    before_ns, used_ns = control.waiting_cpu_ns, time.thread_time_ns()
    row = control.calls(partial(pack, torch.ones(8)), 4, parts=1, kernel_ns=kernel_ns, deadline_ns=deadline_ns)
    kernels_ns = (4 + module._FIRST) * kernel_ns
    assert time.perf_counter_ns() - began_ns >= kernels_ns
    # It is a part of what a case takes the judge, which a mode's cases share: the rest of its time would not do.
    waited_ns = control.waiting_cpu_ns - before_ns
    assert waited_ns <= time.thread_time_ns() - used_ns - kernels_ns
    assert row.kernel_ns == kernel_ns
    assert row.costs_ns == [each.outside_ns - each.claim_ns for each in seen[module._FIRST :]]
    assert all(each.claim_ns >= kernel_ns for each in seen)
    began_ns = time.perf_counter_ns()
    read_all((torch.ones(8), 1, 8, kernel_ns))
    assert time.perf_counter_ns() - began_ns >= kernel_ns


class Settling(Activity):
    """A worker that has been told to wait for messages, and sleeps after N looks."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def look(self, *, may_list: bool = True) -> Look | None:  # noqa: ARG002 none is new
        """See Activity."""
        self.left -= 1
        return Look(ran_ns={1: 1}, asleep=self.left < 0)


def test_a_row_begins_when_the_worker_sleeps(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that still returns to its line, behind the control process on the same core, seemed to compute.

    All control calls of one case in eight were lost so, and whole spans counted.
    """
    costs = _calls(control, torch.ones(8), 5, beside=Settling(20))
    assert all(map(math.isfinite, costs)), costs
    # One that never sleeps is not waited for.
    monkeypatch.setattr(module, "_SETTLE_NS", 1)
    assert all(map(math.isnan, _calls(control, torch.ones(8), 5, beside=Settling(1 << 60))))


@pytest.mark.parametrize(("span_ns", "counts"), [(50 * _PATIENCE_NS, False), (51 * _PATIENCE_NS, True)])
def test_a_long_call_may_wait_longer(
    control: Control, monkeypatch: pytest.MonkeyPatch, span_ns: int, *, counts: bool
) -> None:
    """By the same part of its span as a submission's."""
    change_calls(
        monkeypatch,
        lambda called: replace(called, claim_ns=0, outside_ns=span_ns, delayed_ns=_PATIENCE_NS + 1),
    )
    assert [math.isfinite(cost) for cost in _calls(control, torch.ones(8), 3)] == [counts] * 3


class Beside(Activity):
    """A worker whose processes have computed for so long."""

    def __init__(self, busy_ns: Callable[[], int | None]) -> None:
        self._busy_ns = busy_ns

    def look(self, *, may_list: bool = True) -> Look | None:  # noqa: ARG002 it says nothing
        """Say nothing of them."""
        return Look(ran_ns={}, asleep=True)

    def busy_ns(self, before: Look | None) -> int | None:
        """See Activity."""
        assert before == Look(ran_ns={}, asleep=True)
        return self._busy_ns()


@pytest.mark.parametrize(("busy_ns", "count"), [(0, 5), (module._BUSY_NS, 5), (60_000_000_000, 0), (None, 0)])
def test_nothing_is_known_beside_a_busy_process(
    control: Control, monkeypatch: pytest.MonkeyPatch, busy_ns: int | None, count: int
) -> None:
    """A submission that computes while control calls are made spoils them, to its own cost; one that waits does not.

    Nor does one that computes for a moment; where nothing is known of its processes, nothing is known of the calls. By
    a clock of the test's: how much of a core a process gets beside many others is chance. How long copies may take is
    learned from calls that count alone.
    """
    settled: list[bool] = []
    monkeypatch.setattr(control.pace, "settle", lambda *, counts: settled.append(counts))
    costs = _calls(control, torch.ones(8), 5, beside=Beside(lambda: busy_ns))
    assert [not math.isnan(cost) for cost in costs] == [count > 0] * 5
    assert settled == [False] * module._FIRST + [count > 0] * 5


def test_a_process_that_computes_spoils_the_calls(control: Control) -> None:
    """The control process itself computes beside them, as its activity says."""
    activity = Activity(control._pid)
    costs = _calls(control, torch.ones(1 << 20), 20, beside=activity)
    assert len(costs) == 20
    assert all(map(math.isnan, costs))
    activity.close()


def test_a_call_that_waited_for_a_core_costs_infinitely_much(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one of the calls, so that the share of those is known."""
    numbers = iter(range(100))
    change_calls(monkeypatch, lambda called: replace(called, delayed_ns=(2 * _PATIENCE_NS) * (next(numbers) % 2)))
    costs = _calls(control, torch.ones(8), 6)
    assert len(costs) == 6
    assert sorted(map(math.isfinite, costs)) == [False] * 3 + [True] * 3


def test_a_call_whose_copy_stalled_has_its_cost_and_is_counted(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not one beside which the worker computed: it could make copies stall."""
    change_calls(monkeypatch, lambda called: replace(called, stalled=True))
    deadline_ns = time.monotonic_ns() + _PATIENCE_NS
    for busy_ns, count in ((0, 4), (60_000_000_000, 0)):
        beside = Beside(partial(int, busy_ns))
        row = control.calls(lambda: pack(torch.ones(8)), 4, parts=1, deadline_ns=deadline_ns, beside=beside)
        assert (sum(map(math.isfinite, row.costs_ns)), row.stalled) == (count, count)


def test_calls_in_small_pages_do_not_count_where_there_are_huge_ones(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission that fills the memory has nothing to subtract for it; smaller inputs lie in small pages anyway."""
    monkeypatch.setattr(Arena, "collapse", lambda _: False)
    large, small = (torch.ones(nbytes, dtype=torch.uint8) for nbytes in (300_000, 100_000))

    control._has_huge_pages = True
    assert _calls(control, large, 5) == []
    assert len(_calls(control, small, 5)) == 5
    control._has_huge_pages = False
    assert len(_calls(control, large, 5)) == 5


def test_it_has_no_descriptor_of_the_judges(control: Control) -> None:
    """Its standard streams lead nowhere, and files that the judge has open are not open in it."""
    with Path(__file__).open("rb") as ours:
        files = [file.readlink() for file in Path(f"/proc/{control._pid}/fd").iterdir()]
        assert Path(ours.name) not in files
    names = {str(file).partition(":")[0] for file in files}
    assert names <= {"/dev/null", "socket", "anon_inode", "/memfd"}, names


def test_its_death_is_no_submissions_fault(control: Control) -> None:
    """A control process that was killed breaks the judge, whose evaluation is made again."""
    os.kill(control._pid, 9)

    with pytest.raises(RuntimeError, match="the control process failed"):
        _calls(control, torch.ones(8), 5)


def test_it_ends_with_the_judge(control: Control) -> None:
    """Closing the line ends it; nothing stays behind."""
    control.close()

    assert not Path(f"/proc/{control._pid}").exists()


@pytest.mark.parametrize(("asked_mib", "made_mib", "size_ratio"), [(0, 0, 1.0), (1, 1, 1.0), (20, 8, 2.5)])
def test_large_outputs_are_said_to_be_larger(
    control: Control, asked_mib: int, made_mib: int, size_ratio: float
) -> None:
    """Control calls copy 8 MiB at most; their row has the ratio to what a submission's call copies."""
    assert control._client is not None
    row = control.calls(
        partial(pack, torch.ones(64)),
        2,
        parts=2,
        nbytes=asked_mib << 20,
        deadline_ns=time.monotonic_ns() + _PATIENCE_NS,
    )
    assert row.size_ratio == size_ratio
    layout = control._client._layout
    assert layout is not None
    assert sum(layout.sizes) == max(made_mib << 20, 16)


@pytest.mark.parametrize(("parts", "nbytes"), [(1, 8), (3, 1_536), (16, 256), (64, 4_096), (64, 8_192)])
def test_outputs_of_control_calls_end_their_calls_as_those_of_a_submission_do(
    control: Control, parts: int, nbytes: int
) -> None:
    """Bytes of the tensors count, without the gaps between them: whole copies of up to 4 KiB are in the spans."""
    client = control._client
    assert client is not None
    packed = pack((torch.ones(64), parts, nbytes // parts, 0))
    deadline_ns = time.monotonic_ns() + _PATIENCE_NS
    for _ in range(2):
        called = client.call(packed, output_capacity=parts * 512, deadline_ns=deadline_ns, ahead=False)
    assert called.by_flags
    call = Call.of(called, packed, shape=None, made_ns=0)
    assert ControlOutputs().like(call, asked_for=lambda: (parts, nbytes)) == (parts, sum(called.output.sizes))


def test_the_control_kernel_reads_whatever_a_task_makes() -> None:
    """Tensors in tuples, lists, dicts and records, strided and empty ones; it returns as many as it is told to."""
    value = (
        torch.ones(4, 4).t(),
        [torch.empty(0), {"a": torch.ones(3, dtype=torch.uint8)}],
        SimpleNamespace(b=torch.ones(2)[::2], n=4, s="text", none=None),
    )
    assert isinstance(read_all((value, 1, 0, 0)), torch.Tensor)
    assert isinstance(read_all((value, 0, 0, 0)), torch.Tensor)
    assert [tensor.nbytes for tensor in read_all((value, 3, 4096, 0))] == [4096] * 3
    assert len(tensors_of(value)) == 4


@pytest.mark.parametrize(
    ("parts", "nbytes", "asked_for", "made"),
    [
        # Few small tensors are taken as they are: the reference is not run for them.
        (3, 64 << 10, None, (3, 64 << 10)),
        (1, 1 << 20, (1, 1 << 20), (1, 1 << 20)),
        # A submission that returns more than the task asks for does not make control calls longer.
        (1, 4 << 20, (1, 1 << 20), (1, 1 << 20)),
        (40, 320, (2, 16), (4, 320)),
        (40, 320, (40, 320), (40, 320)),
        (1, 1 << 20, (0, 0), (1, 64 << 10)),
        (1, 64 << 20, (1, 64 << 20), (1, 64 << 20)),
    ],
)
def test_outputs_of_control_calls_are_like_the_submissions(
    parts: int, nbytes: int, asked_for: tuple[int, int] | None, made: tuple[int, int]
) -> None:
    """As many tensors and bytes, within what the task asks for."""
    asked = 0

    def ask() -> tuple[int, int]:
        nonlocal asked
        asked += 1
        assert asked_for is not None
        return asked_for

    call: Any = SimpleNamespace(parts=parts, parts_bytes=nbytes, calls=1, shape="a shape")
    outputs = ControlOutputs()
    assert outputs.like(call, asked_for=ask) == made
    # The reference is run once for a shape.
    assert outputs.like(call, asked_for=ask) == made
    assert asked == (asked_for is not None)
