"""When a host asks to keep devices free, and what it does with the answer."""

from __future__ import annotations

from typing import Any, cast

from runner.base.config import Config
from runner.daemon.capacity import Capacity
from runner.daemon.reservations import Reservations
from runner.store import Store
from tests.unit.daemon.hosts import REGISTRY, workers


class FakeStore:
    """A database that answers as the test says."""

    def __init__(self) -> None:
        self.answer: str | None = None
        self.asked: list[dict[str, Any]] = []

    def reserve(self, **parameters: Any) -> str | None:  # noqa: ANN401 - as they come
        """Remember and answer."""
        self.asked.append(parameters)
        return self.answer


class Scene:
    """A host, its reservations, and a clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.host = workers()
        self.capacity = Capacity(tuple(self.host.values()), REGISTRY)
        config = Config(host_name="h", reserve_after_s=7.0, poll_s=2.0, lease_s=30.0)
        self.reservations = Reservations(self.capacity, config, clock=lambda: self.now_s)
        self.database = FakeStore()
        self.store = cast("Store", self.database)

    def renew(self, after_s: float = 0.0) -> set[str]:
        """As before a claim; what is free then."""
        self.now_s += after_s
        self.reservations.renew(self.store)
        return {worker.slot.name for worker in self.capacity.free()}

    def busy(self, *names: str) -> None:
        """Let these work and no others."""
        for name, worker in self.host.items():
            worker.busy = name in names


def test_a_host_where_nothing_is_blocked_never_asks() -> None:
    """Neither an idle one, nor one whose big slot works."""
    scene = Scene()
    scene.renew()
    scene.busy("four")
    scene.renew(after_s=60.0)
    assert scene.database.asked == []


def test_a_host_where_something_is_blocked_asks_at_most_once_per_poll() -> None:
    """For the types that are blocked, beside those that run on their devices."""
    scene = Scene()
    scene.busy("one0")
    free = scene.renew()
    scene.renew(after_s=1.0)
    (asked,) = scene.database.asked
    assert asked == {
        "host": "h",
        "gpu_types": ["Four", "Quad"],
        "smaller": ["One", "Single", "Two"],
        "waited_s": 7.0,
        "hold_s": 30.0,
    }
    assert free == {"right", "one1", "one2", "one3", "cpu"}, "nothing is due: nothing idles"
    scene.renew(after_s=1.1)
    assert len(scene.database.asked) == 2


def test_a_daemon_that_claims_nothing_keeps_nothing_free() -> None:
    """Draining, or waiting for new parts."""
    scene = Scene()
    scene.busy("one0")
    scene.database.answer = "Four"
    assert scene.renew() == {"cpu"}
    scene.reservations.forget()
    assert {worker.slot.name for worker in scene.capacity.free()} == {"right", "one1", "one2", "one3", "cpu"}
