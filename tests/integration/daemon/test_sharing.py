"""Devices that serve jobs of one and jobs of several: no job starves, and nothing idles for long or twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from runner.base.model import Device, Job, JobResult, JobState, Progress, Slot
from tests.integration.daemon.rig import Gate, Rig, accepted, at_once, cpu_slots
from tests.support.waiting import PATIENCE_S

RESERVED = "SELECT reserved_by FROM runner.job WHERE reserved_by IS NOT NULL AND reserved_until > now()"


def slots(devices: int) -> tuple[Slot, ...]:
    """One slot around as many as there are devices."""
    found = tuple(
        Device(uuid=f"GPU-{number}", name="NVIDIA L4", vendor="nvidia", index=number) for number in range(devices)
    )
    singles = (
        Slot(name=f"one{number}", gpu_type="L4", devices=(device,), cpus=(number,))
        for number, device in enumerate(found)
    )
    return (Slot(name="all", gpu_type="L4x4", devices=found, cpus=tuple(range(devices))), *singles)


@pytest.fixture
def make_host(make_rig: Callable[..., Rig], database_url: str) -> Callable[..., Rig]:
    """Makes hosts with so many devices, not yet started."""

    def make(devices: int = 2, **settings: object) -> Rig:
        rig = make_rig(database_url, **{"poll_s": 0.01, **settings})
        rig.slots = slots(devices)
        return rig

    return make


class Stream:
    """So many runs, of which one at least goes on all the time: each ends when a later one has begun.

    Where a big job may hold up the later ones, it ends all the same after a second. Elsewhere a busy machine may take
    longer than that to bring the next one, and only the last ends by itself.
    """

    def __init__(self, runs: int, *, held_up: bool) -> None:
        self._begun = threading.Condition()
        self._count = 0
        self._runs = runs
        self._held_up = held_up

    def __call__(self, job: Job, _cancel: threading.Event, _progress: Callable[[Progress], None]) -> JobResult:
        """Run until another single begins."""
        if job.gpu_type == "L4":
            with self._begun:
                self._count += 1
                mine = self._count
                self._begun.notify_all()
                if self._held_up or mine < self._runs:
                    self._begun.wait_for(lambda: self._count > mine, timeout=1.0 if self._held_up else PATIENCE_S)
        return accepted()


@pytest.mark.parametrize(("reserve_after_s", "starves"), [(0.0, False), (3600.0, True)])
def test_a_stream_of_small_jobs_does_not_starve_a_big_one(
    make_host: Callable[..., Rig], reserve_after_s: float, *, starves: bool
) -> None:
    """Once it is due only the runs that go on come before it; until then its devices are used, whatever waits."""
    rig = make_host(devices=4, reserve_after_s=reserve_after_s)
    rig.board(gpus=("L4", "L4x4"))
    rig.evaluator.script = Stream(21, held_up=not starves)
    rig.start()
    first = rig.submit(gpu_type="L4")
    rig.wait_for(lambda: rig.evaluator.seen, "the stream has begun")
    big = rig.submit(gpu_type="L4x4")
    stream = [rig.submit(gpu_type="L4") for _ in range(20)]
    (view,) = rig.wait_done(big)
    rig.wait_done(first, *stream)
    order = [job_id for job_id, _, _ in rig.evaluator.seen]
    assert order.index(view.jobs[0].id) == 21 if starves else order.index(view.jobs[0].id) < 8
    assert all(attempt == 1 for _, attempt, _ in rig.evaluator.seen)


def test_slots_that_share_devices_never_work_at_the_same_time(make_host: Callable[..., Rig]) -> None:
    """Big and small jobs in any order; each run notes what runs beside it."""
    rig = make_host(devices=2, reserve_after_s=0.0)
    rig.board(gpus=("L4", "L4x4"))
    running: set[str] = set()
    lock = threading.Lock()
    clashes: list[set[str]] = []

    def script(job: Job, cancel: threading.Event, progress: Callable[[Progress], None]) -> JobResult:
        # Runs of the big type are told apart from the small ones by the job; two small ones may meet.
        me = f"{job.gpu_type}.{job.id}"
        with lock:
            running.add(me)
            if len(running) > 1 and any(name.startswith("L4x4") for name in running):
                clashes.append(set(running))
        cancel.wait(0.01)
        with lock:
            running.discard(me)
        return at_once(job, cancel, progress)

    rig.evaluator.script = script
    submissions = [rig.submit(gpu_type="L4x4" if number % 5 == 0 else "L4") for number in range(25)]
    rig.start()
    rig.wait_done(*submissions)
    assert clashes == []
    assert {slot for _, _, slot in rig.evaluator.seen} == {"all", "one0", "one1"}


def test_only_one_of_two_hosts_keeps_devices_free_for_a_job(make_host: Callable[..., Rig]) -> None:
    """The other goes on with small jobs; the big one runs where its devices came free."""
    hosts = {name: make_host(host_name=name, reserve_after_s=0.0) for name in ("a", "b")}
    any_host = hosts["a"]
    any_host.board(gpus=("L4", "L4x4"))
    gates: dict[str, Gate] = {}
    for name, rig in hosts.items():
        gates[name] = gate = Gate()
        rig.evaluator.script = gate
        rig.start()
        any_host.submit(gpu_type="L4")
        # The first may take the second's job too: one at a time, so that each has one.
        rig.wait_for(gate.begun.is_set, f"{name} works")
        rig.evaluator.script = at_once
        if name == "a":
            any_host.store.drain("a")
            rig.wait_for(lambda rig=rig: rig.waiting_for is not None, "a takes no more for now")  # type: ignore[misc]  # mypy: default in lambda
    any_host.store.undrain("a")
    any_host.wait_for(lambda: hosts["a"].waiting_for is None, "a goes on")
    big = any_host.submit(gpu_type="L4x4")
    any_host.wait_for(lambda: any_host.sql(RESERVED), "devices are kept free")
    holder = any_host.sql(RESERVED)[0]["reserved_by"]
    other = "b" if holder == "a" else "a"
    any_host.wait_done(*(any_host.submit(gpu_type="L4") for _ in range(5)))
    assert len(hosts[holder].evaluator.seen) == 1
    assert len(hosts[other].evaluator.seen) == 6
    assert any_host.view(big).jobs[0].state is JobState.QUEUED
    gates[holder].go.set()
    (view,) = any_host.wait_done(big)
    assert (view.jobs[0].host, hosts[holder].evaluator.seen[-1][2]) == (holder, "all")
    gates[other].go.set()


def test_devices_kept_free_are_used_again_when_the_job_is_cancelled(make_host: Callable[..., Rig]) -> None:
    """Found out at the next poll."""
    rig = make_host(reserve_after_s=0.0)
    rig.board(gpus=("L4", "L4x4"))
    gate = rig.evaluator.script = Gate()
    rig.start()
    rig.submit(gpu_type="L4")
    assert gate.begun.wait(PATIENCE_S)
    rig.evaluator.script = at_once
    big = rig.submit(gpu_type="L4x4")
    rig.wait_for(lambda: rig.sql(RESERVED), "devices are kept free")
    small = rig.submit(gpu_type="L4")
    assert rig.view(small).jobs[0].state is JobState.QUEUED
    assert len(rig.evaluator.seen) == 1
    rig.store.cancel(big)
    rig.wait_done(small)
    gate.go.set()


@pytest.mark.parametrize(("priority", "reserve_after_s", "place"), [(5, 3600.0, 2), (-5, 0.0, 12)])
def test_priorities_are_strict_between_big_and_small_jobs(
    make_host: Callable[..., Rig], priority: int, reserve_after_s: float, place: int
) -> None:
    """A big job above all small ones does not wait to be due; one below them waits for them, due or not."""
    rig = make_host(reserve_after_s=reserve_after_s)
    rig.board(gpus=("L4", "L4x4"))
    gate = rig.evaluator.script = Gate()
    rig.start()
    running = [rig.submit(gpu_type="L4") for _ in range(2)]
    rig.wait_for(lambda: len(rig.evaluator.seen) == 2, "both devices are used")
    big = rig.submit(gpu_type="L4x4", priority=priority)
    waiting = [rig.submit(gpu_type="L4") for _ in range(10)]
    if priority > 0:
        rig.wait_for(lambda: rig.sql(RESERVED), "devices are kept free")
    gate.go.set()
    view, *_ = rig.wait_done(big, *running, *waiting)
    assert [job_id for job_id, _, _ in rig.evaluator.seen].index(view.jobs[0].id) == place


def test_a_retry_runs_on_another_slot(make_rig: Callable[..., Rig], database_url: str) -> None:
    """A job that failed on one slot of the only host gets the other one, each time."""
    rig = make_rig(database_url)
    rig.board()
    rig.slots = cpu_slots(2)

    def broken(_job: Job, _cancel: threading.Event, _progress: Callable[[Progress], None]) -> JobResult:
        raise OSError("a broken device")

    rig.evaluator.script = broken
    submission = rig.submit()
    rig.start()
    rig.wait_through_retries(submission)
    used = [slot for _, _, slot in rig.evaluator.seen]
    assert len(used) == 3
    assert all(before != after for before, after in pairwise(used))
