"""Warm containers: who gets which, when they are started, and that none is forgotten or used by two owners."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

import pytest

from runner.devices.quarantine import Quarantine
from runner.evaluation import warm_pool
from runner.evaluation.container_spec import SLOT_LABEL, ContainerOwner
from runner.evaluation.plan import make_probe
from runner.evaluation.warm_pool import WarmPool
from sandbox.errors import EngineRefused, EngineUnavailable, NotThere
from sandbox.host.engine import Container, DockerEngine
from sandbox.spec import Boot, DeviceDriver, Devices, SandboxSpec
from tests.support.waiting import PATIENCE_S, wait_until
from tests.unit import samples

SPEC = make_probe(samples.PLACE).spec
OTHER = replace(SPEC, boot=Boot(kind="steps"))
OWNER: ContainerOwner = ("batch", 1)


class FakeContainer:
    """A container that only knows whether it was removed."""

    def __init__(self, number: int) -> None:
        self.id = f"container-{number:04d}"
        self.closed = False
        self.is_open = True
        self.requests = 1
        self.prepared = threading.Event()

    def wait_prepared(self, timeout_s: float, *, stop: Callable[[], bool]) -> bool:
        """Whether it was prepared before it was to stop."""
        wait_until(lambda: self.prepared.is_set() or stop(), "an import", patience_s=timeout_s)
        return self.prepared.is_set()

    def close(self) -> None:
        """Remove it."""
        self.closed = True


class FakeEngine:
    """Starts containers when it is let, and fails when it is told to."""

    def __init__(self) -> None:
        self.containers: list[FakeContainer] = []
        self.labels: list[dict[str, str]] = []
        #: The cores on which containers imported before they got their own.
        self.imported: list[tuple[int, ...]] = []
        self.go = threading.Event()
        self.go.set()
        self.broken: Exception | None = None
        #: Whether it fails before anything is imported, and how often it has failed.
        self.early = False
        self.failures = 0
        #: Whether a container is prepared as soon as it is started.
        self.quick = True

    def start(
        self,
        spec: Any,  # noqa: ANN401 the engine's signature is not the subject
        *,
        wait_for_cores: Callable[[], None],
    ) -> FakeContainer:
        """One container."""
        assert self.go.wait(PATIENCE_S)
        for early in (True, False):
            if self.broken is not None and self.early is early:
                self.failures += 1
                raise self.broken
            if early and spec.import_cpus:
                self.imported.append(spec.import_cpus)
                wait_for_cores()
        self.labels.append(dict(spec.labels))
        container = FakeContainer(len(self.containers))
        if self.quick:
            container.prepared.set()
        self.containers.append(container)
        return container


def take(pool: WarmPool, spec: SandboxSpec, owner: ContainerOwner | None = None) -> FakeContainer | None:
    """What slot cpu0 is given for a job."""
    return cast("FakeContainer | None", pool.take("cpu0", spec, cancel=threading.Event(), owner=owner))


def serve(pool: WarmPool, *, owner: ContainerOwner | None = OWNER, **changes: Any) -> FakeContainer:  # noqa: ANN401 its fields
    """A container of slot cpu0 that has served a request and was put away."""
    pool.release("cpu0", SPEC)
    eventually(lambda: pool.counts()["cpu0"] == 1)
    container = take(pool, SPEC)
    assert container is not None
    for name, value in changes.items():
        setattr(container, name, value)
    pool.put_away("cpu0", SPEC, cast("Container", container), owner=owner)
    return container


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something that another thread does has happened."""
    wait_until(condition, "what another thread does")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """An engine, and no waiting between starts."""
    monkeypatch.setattr(warm_pool, "IDLE_S", 0.0)
    monkeypatch.setattr(warm_pool, "RETRY_S", 0.02)
    return FakeEngine()


Make = Callable[..., WarmPool]


@pytest.fixture
def make(engine: FakeEngine) -> Iterator[Make]:
    """Makes pools of slot cpu0 in which as many containers wait as may, and closes them in the end."""
    made: list[WarmPool] = []

    def build(
        size: int,
        spec: SandboxSpec = SPEC,
        *,
        spare: tuple[int, ...] = (),
        wait: bool = True,
        quarantine: Quarantine | None = None,
    ) -> WarmPool:
        pool = WarmPool(cast("DockerEngine", engine), quarantine or Quarantine(), size=size)
        made.append(pool)
        pool.arrange(spare)
        pool.release("cpu0", spec)
        if wait:
            eventually(lambda: pool.counts()["cpu0"] == size)
        return pool

    yield build
    for each in made:
        each.close()


def test_a_free_slot_gets_its_containers_and_no_more(engine: FakeEngine, make: Make) -> None:
    """As many as configured wait, labelled with the slot; further releases start none, and size 0 turns it off.

    For another boot, image or limit the job starts its own, and nothing idles beside it.
    """
    assert take(make(0, wait=False), SPEC) is None
    assert engine.containers == []
    pool = make(2)
    pool.release("cpu0", SPEC)
    time.sleep(0.05)
    assert len(engine.containers) == 2
    assert engine.labels == [{warm_pool.WARM_LABEL: "cpu0", SLOT_LABEL: "cpu0"}] * 2
    assert take(pool, OTHER) is None
    assert all(container.closed for container in engine.containers)


def test_nothing_is_started_while_the_slot_is_busy(engine: FakeEngine, make: Make) -> None:
    """A start beside a timed run would disturb it; the next one comes when the slot is released.

    The last container is replaced before: its job has nothing left to disturb. While another one waits the next job
    takes that.
    """
    pool = make(2)
    assert take(pool, SPEC) is not None
    pool.replace_last("cpu0")
    time.sleep(0.05)
    assert len(engine.containers) == 2
    assert take(pool, SPEC) is not None
    pool.replace_last("cpu0")
    eventually(lambda: pool.counts()["cpu0"] == 2)
    assert take(pool, SPEC) in engine.containers[2:]
    time.sleep(0.05)
    assert len(engine.containers) == 4
    pool.release("cpu0", SPEC)
    eventually(lambda: len(engine.containers) == 5)


def test_with_spare_cores_the_next_container_is_imported_beside_the_job(engine: FakeEngine, make: Make) -> None:
    """It gets the slot's cores, on which judge and worker start, when the job has computed all."""
    pool = make(1, spare=(1, 2))
    assert take(pool, SPEC) is engine.containers[0]
    eventually(lambda: len(engine.imported) == 2)
    time.sleep(0.05)
    assert len(engine.containers) == 1
    pool.replace_last("cpu0")
    eventually(lambda: pool.counts()["cpu0"] == 1)
    assert engine.imported == [(1, 2), (1, 2)]
    pool.release("cpu0", SPEC)
    assert take(pool, SPEC) is engine.containers[1]


def test_a_container_that_waits_for_its_cores_gets_them_for_the_job_that_needs_it(
    engine: FakeEngine, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one waiting the next one lets the secret job come first; a job that finds none waiting does not wait."""
    pool = make(2, spare=(1, 2))
    assert take(pool, SPEC) is not None
    eventually(lambda: len(engine.imported) == 3)
    monkeypatch.setattr(warm_pool, "IDLE_S", 1000.0)
    pool.release("cpu0", SPEC)
    assert take(pool, SPEC) in engine.containers[:2]
    time.sleep(0.05)
    assert len(engine.containers) == 2
    pool.release("cpu0", SPEC)
    assert take(pool, SPEC) is engine.containers[2]


@pytest.mark.parametrize(
    "spec",
    [
        replace(SPEC, limits=replace(SPEC.limits, cpus=(0, 1, 2))),
        replace(SPEC, runtime="runsc"),
        replace(SPEC, devices=Devices(driver=DeviceDriver.NVIDIA, ids=("GPU-1",))),
    ],
    ids=["too-few", "gvisor", "nvidia-runtime"],
)
def test_where_spare_cores_do_not_do_containers_import_on_their_own(
    engine: FakeEngine, make: Make, spec: SandboxSpec
) -> None:
    """Libraries count the cores that they are loaded on; gVisor shows others; a runtime's devices may be lost."""
    make(1, spec, spare=(2, 3))
    assert engine.imported == []


def test_an_engine_that_refuses_is_asked_for_no_other_cores(engine: FakeEngine, make: Make) -> None:
    """It may not be able to change those of a container."""
    engine.broken = EngineRefused("not supported")
    pool = make(1, spare=(2, 3), wait=False)
    eventually(lambda: not pool._spare_cpus)
    engine.broken = None
    eventually(lambda: pool.counts()["cpu0"] == 1)
    assert engine.imported == [(2, 3)]


@pytest.mark.parametrize(
    ("refusal", "early"), [(EngineRefused("no such image"), True), (NotThere("no such container"), False)]
)
def test_a_refusal_that_says_nothing_of_cores_is_followed_by_the_same_request(
    engine: FakeEngine, make: Make, refusal: EngineRefused, *, early: bool
) -> None:
    """The engine lacks the image; or another tool has removed the container while it waited for its cores."""
    engine.broken, engine.early = refusal, early
    pool = make(1, spare=(2, 3), wait=False)
    # The second start follows what the first failure has led to.
    eventually(lambda: engine.failures > 1)
    engine.broken = None
    eventually(lambda: pool.counts()["cpu0"] == 1)
    assert set(engine.imported) == {(2, 3)}
    assert pool._spare_cpus


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_waits_for_the_start_it_would_have_to_make(engine: FakeEngine, make: Make, *, cancelled: bool) -> None:
    """With none waiting and one being started, that one is taken; a cancelled job waits for none.

    The start may take a minute; what comes of it is thrown away then, and the slot is refilled.
    """
    engine.go.clear()
    pool = make(1, wait=False)
    eventually(lambda: pool._pools["cpu0"].starting > 0)
    cancel = threading.Event()
    taken: list[Any] = []
    job = threading.Thread(target=lambda: taken.append(pool.take("cpu0", SPEC, cancel=cancel)))
    job.start()
    eventually(lambda: pool._pools["cpu0"].awaited)
    (cancel if cancelled else engine.go).set()
    job.join(PATIENCE_S)
    assert taken == ([None] if cancelled else engine.containers)
    if cancelled:
        engine.go.set()
        eventually(lambda: len(engine.containers) == 1 and engine.containers[0].closed)
        pool.release("cpu0", SPEC)
        eventually(lambda: len(engine.containers) == 2)
        assert not engine.containers[1].closed


def test_a_start_that_comes_too_late_is_thrown_away(engine: FakeEngine, make: Make) -> None:
    """The job took one that waited; the next, still starting, must not import torch beside it."""
    pool = make(2)
    assert take(pool, SPEC) is not None
    engine.go.clear()
    pool.release("cpu0", SPEC)
    eventually(lambda: pool._pools["cpu0"].starting > 0)
    assert take(pool, SPEC) is engine.containers[1]
    engine.go.set()
    eventually(lambda: len(engine.containers) == 3)
    eventually(lambda: engine.containers[2].closed)


@pytest.mark.parametrize("error", [EngineUnavailable("no engine"), ValueError("of an unforeseen kind")])
def test_an_engine_that_fails_costs_nothing_but_the_head_start(
    engine: FakeEngine, make: Make, error: Exception
) -> None:
    """The job starts its own and hears the reason; when the engine is back, containers wait again."""
    engine.broken = error
    pool = make(1, wait=False)
    assert take(pool, SPEC) is None
    engine.broken = None
    pool.release("cpu0", SPEC)
    eventually(lambda: len(engine.containers) == 1)


def test_a_slot_that_is_out_of_use_gets_no_container(engine: FakeEngine, make: Make) -> None:
    """Other slots do, as often as they need one; and it does, once it is back."""
    quarantine, fit = Quarantine(retry_s=0.02), threading.Event()
    quarantine.quarantine_devices("cpu0", "fell off the bus", mended=fit.is_set)
    pool = make(1, wait=False, quarantine=quarantine)
    for _ in range(5):
        pool.release("cpu1", SPEC)
        eventually(lambda: pool.counts()["cpu1"] == 1)
        assert pool.take("cpu1", SPEC, cancel=threading.Event()) is not None
    assert take(pool, SPEC) is None
    pool.release("cpu0", SPEC)
    assert {labels[SLOT_LABEL] for labels in engine.labels} == {"cpu1"}
    fit.set()
    eventually(lambda: pool.counts()["cpu0"] == 1)


def test_a_job_that_finds_none_has_one_started_for_the_next_job_too(engine: FakeEngine, make: Make) -> None:
    """One on each core, and neither is handed out while the other still imports: the first would be timed beside it."""
    spec = replace(SPEC, limits=replace(SPEC.limits, cpus=(0, 1)))
    pool = make(3, spec)
    for _ in range(3):
        assert take(pool, spec) is not None
    engine.quick = False
    taken: list[Any] = []
    job = threading.Thread(target=lambda: taken.append(take(pool, spec)))
    job.start()
    eventually(lambda: len(engine.containers) == 5)
    engine.containers[3].prepared.set()
    job.join(0.1)
    assert job.is_alive()
    assert pool.counts()["cpu0"] == 0
    engine.containers[4].prepared.set()
    job.join(PATIENCE_S)
    assert len(engine.containers) == 5
    assert take(pool, spec) in engine.containers[3:]
    assert taken[0] in engine.containers[3:]


def test_a_used_container_is_for_its_owner_alone(engine: FakeEngine, make: Make) -> None:
    """Its owner's next request gets it, for an equal container; any other job another one, and it is removed."""
    pool = make(1)
    used = serve(pool)
    assert take(pool, SPEC, OWNER) is used
    others: list[tuple[SandboxSpec, ContainerOwner | None]] = [
        (SPEC, ("batch", 2)), (SPEC, ("submission", 1)), (SPEC, None), (OTHER, OWNER),
    ]  # fmt: skip
    for spec, owner in others:
        pool.put_away("cpu0", SPEC, cast("Container", used), owner=OWNER)
        assert take(pool, spec, owner) is not used
        assert used.closed
        used = serve(pool)
    assert not used.closed


@pytest.mark.parametrize(
    ("owner", "changes"), [(None, {}), (OWNER, {"is_open": False}), (OWNER, {"requests": warm_pool.MOST_REQUESTS})]
)
def test_a_container_in_which_nothing_follows_is_removed(
    engine: FakeEngine, make: Make, owner: ContainerOwner | None, changes: dict[str, Any]
) -> None:
    """It has no owner, broke or met a limit, or has served enough.

    Else it waits for a moment, and a fresh one takes its place; a pool that closes removes it.
    """
    pool = make(1)
    assert serve(pool, owner=owner, **changes).closed
    used = serve(pool)
    pool.release("cpu0", SPEC)
    eventually(lambda: used.closed and pool.counts()["cpu0"] == 1)
    last = serve(pool)
    pool.close()
    assert last.closed
    assert engine.containers[-1] is last


def test_after_a_used_container_the_next_one_is_started_at_once(
    engine: FakeEngine, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When what followed in it has computed all; before that nothing is started beside it."""
    pool = make(1)
    used = serve(pool)
    monkeypatch.setattr(warm_pool, "IDLE_S", 1000.0)
    pool.release("cpu0", SPEC)
    assert take(pool, SPEC, OWNER) is used
    time.sleep(0.05)
    assert len(engine.containers) == 1
    pool.replace_last("cpu0")
    eventually(lambda: pool.counts()["cpu0"] == 1)


def test_a_used_container_waits_for_no_longer_where_none_is_missing(engine: FakeEngine, make: Make) -> None:
    """With spare cores the next container may be there already."""
    pool = make(1, spare=(1, 2))
    used = take(pool, SPEC)
    assert used is not None
    eventually(lambda: len(engine.imported) == 2)
    pool.put_away("cpu0", SPEC, cast("Container", used), owner=OWNER)
    assert not used.closed
    pool.release("cpu0", SPEC)
    eventually(lambda: used.closed and pool.counts()["cpu0"] == 1)
    assert len(engine.containers) == 2


@pytest.mark.parametrize("failing", ["warm-pool", "warm-pool cpu0", "warm-pool cpu0 one"])
def test_a_thread_that_cannot_be_started_keeps_no_job_waiting(
    engine: FakeEngine, make: Make, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The job starts its own container, and containers wait again once there are threads."""
    start, failed = threading.Thread.start, threading.Event()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == failing:
            failed.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool = make(1, wait=False)
    assert failed.wait(PATIENCE_S)
    assert take(pool, SPEC) is None
    monkeypatch.undo()
    monkeypatch.setattr(warm_pool, "RETRY_S", 0.02)
    pool.release("cpu0", SPEC)
    eventually(lambda: pool.counts()["cpu0"] == 1)


def test_a_container_whose_import_breaks_our_code_is_removed(engine: FakeEngine, make: Make) -> None:
    """Whatever is raised while it is waited for."""
    with patch.object(FakeContainer, "wait_prepared", side_effect=OSError("bad")):
        make(1, wait=False)
        eventually(lambda: any(container.closed for container in engine.containers))
