"""What a host of overlapping slots asks for, and which slot gets what."""

from __future__ import annotations

from dataclasses import replace

from runner.base.model import Job, Mode
from runner.daemon.capacity import Capacity
from runner.daemon.leases import Lease
from tests.unit.daemon.hosts import REGISTRY, Worker, job, workers


def free(capacity: Capacity) -> set[str]:
    """Names of the slots that could start a job."""
    return {worker.slot.name for worker in capacity.free()}


def placed(capacity: Capacity, *jobs: Job) -> dict[int, str]:
    """Which slot each job got, all at once."""
    found: dict[int, str] = {}
    for each, worker in capacity.assign(jobs):
        worker.give(Lease(each, deadline_s=None))
        found[each.id] = worker.slot.name
    return found


def test_a_slot_is_free_when_nothing_runs_on_its_devices() -> None:
    """The big one needs all, the small ones theirs, the CPU none of them."""
    host = workers()
    capacity = Capacity(tuple(host.values()), REGISTRY)
    assert free(capacity) == set(host)
    host["one0"].busy = True
    assert free(capacity) == {"right", "one1", "one2", "one3", "cpu"}
    host["one0"].busy = False
    host["right"].busy = True
    assert free(capacity) == {"left", "one0", "one1", "cpu"}
    host["right"].busy = False
    host["four"].busy = True
    assert free(capacity) == {"cpu"}


def test_offers_name_every_alias_and_ask_for_one_job_where_slots_exclude_each_other() -> None:
    """As soon as no choice takes another away, as many are asked for as are free."""
    host = workers()
    capacity = Capacity(tuple(host.values()), REGISTRY)
    request = capacity.request()
    assert request.slots == {"Four": 1, "Quad": 1, "Two": 2, "One": 4, "Single": 4, "CPU": 1}
    assert request.at_most == 1
    host["one0"].busy = host["one2"].busy = True
    request = capacity.request()
    assert request.slots == {"One": 2, "Single": 2, "CPU": 1}
    assert request.at_most is None


def test_a_job_gets_the_slot_that_leaves_the_most_possible() -> None:
    """Single devices are taken next to ones that work, so that a pair stays free."""
    host = workers()
    capacity = Capacity(tuple(host.values()), REGISTRY)
    host["one2"].busy = True
    assert placed(capacity, job("Single")) == {1: "one3"}
    assert free(capacity) == {"left", "one0", "one1", "cpu"}


def test_slots_that_rank_nothing_are_offered_for_the_rest_when_no_other_is_free() -> None:
    """A type is asked for in all modes as long as a slot of it may rank; one around a degraded one may not."""
    host = workers()
    worse = {"one0", "cpu"}
    capacity = Capacity(tuple(host.values()), REGISTRY, degraded=lambda: worse)
    request = capacity.request()
    assert request.slots == {"Four": 1, "Quad": 1, "Two": 1, "One": 3, "Single": 3, "CPU": 1}
    assert request.unranked == {"Four", "Quad", "CPU"}
    for name in ("one1", "one2", "one3"):
        host[name].busy = True
    request = capacity.request()
    assert (request.slots, request.unranked) == ({"One": 1, "Single": 1, "CPU": 1}, frozenset({"One", "Single", "CPU"}))
    worse.clear()
    assert capacity.request().unranked == frozenset()


def test_what_is_not_ranked_leaves_the_slots_that_rank_free() -> None:
    """And a ranked job never goes to a degraded one while another is free."""
    host = workers()
    capacity = Capacity((host["one0"], host["one1"]), REGISTRY, degraded=lambda: {"one1"})
    ranked = replace(job("One", job_id=2, avoid_slot="one0"), mode=Mode.LEADERBOARD)
    assert placed(capacity, job("One", job_id=1), ranked) == {1: "one1", 2: "one0"}


def test_no_device_is_kept_free_for_a_slot_that_ranks_nothing() -> None:
    """The job that waits for it may be one that it must not run."""
    host = workers()
    worse: set[str] = set()
    capacity = Capacity(tuple(host.values()), REGISTRY, degraded=lambda: worse)
    host["one0"].busy = True
    assert [worker.slot.name for worker in capacity.blocked()] == ["four"]
    worse.add("one2")
    assert capacity.blocked() == []


def test_a_job_that_failed_on_a_slot_gets_another() -> None:
    """It chooses first; if there is no other, it takes the same again."""
    host = workers()
    capacity = Capacity((host["one0"], host["one1"]), REGISTRY)
    assert placed(capacity, job("One", job_id=1), job("One", job_id=2, avoid_slot="one0")) == {2: "one1", 1: "one0"}
    lonely = Capacity((Worker(slot=host["one0"].slot),), REGISTRY)
    assert placed(lonely, job("One", avoid_slot="one0")) == {1: "one0"}


def test_what_is_free_beside_a_choice_shares_nothing_with_it() -> None:
    """Whether the choice is still at work or has ended meanwhile."""
    host = workers()
    capacity = Capacity(tuple(host.values()), REGISTRY)
    before = capacity.free()
    assert {worker.slot.name for worker in capacity.beside(before, host["right"])} == {"left", "one0", "one1", "cpu"}
    assert capacity.beside(capacity.beside(before, host["four"]), host["cpu"]) == []


def test_only_slots_around_busy_ones_are_blocked() -> None:
    """An idle host has none, and a small slot under a busy big one is not starved by it."""
    host = workers()
    capacity = Capacity(tuple(host.values()), REGISTRY)
    assert capacity.blocked() == []
    host["one0"].busy = True
    assert capacity.blocked() == [host["four"]], "a job of type Two has the right one"
    host["one2"].busy = True
    assert capacity.blocked() == [host["four"], host["left"], host["right"]]
    assert capacity.names(capacity.blocked()) == ["Four", "Quad", "Two"]
    host["one0"].busy = host["one2"].busy = False
    host["four"].busy = True
    assert capacity.blocked() == []


def test_withholding_frees_the_devices_of_one_slot_and_no_other() -> None:
    """The slot that waits for the fewest runs; the rest of the host goes on."""
    host = workers()
    capacity = Capacity(tuple(host.values()), REGISTRY)
    host["one0"].busy = host["one1"].busy = host["one2"].busy = True
    chosen = capacity.cheapest(capacity.blocked(), "Two")
    assert chosen is host["right"]
    capacity.withhold_for(host["right"])
    assert free(capacity) == {"cpu"}
    host["one2"].busy = False
    assert free(capacity) == {"right", "cpu"}
    host["one0"].busy = False
    assert free(capacity) == {"right", "one0", "cpu"}
    capacity.withhold_nothing()
    assert free(capacity) == {"right", "one0", "one2", "one3", "cpu"}


def test_types_are_offered_in_turns() -> None:
    """The one that was served least recently comes first: types that share slots take turns, as users do."""
    host = workers()
    capacity = Capacity(tuple(host.values()), REGISTRY)
    for name in ("One", "Four", "Single", "One"):
        for each, _ in capacity.assign([job(name)]):
            assert each.gpu_type == name
    assert list(capacity.request().slots)[-3:] == ["Four", "Single", "One"]


def test_a_slot_whose_container_does_not_go_is_not_offered_nor_what_shares_its_devices() -> None:
    """The others go on; nothing is reserved for a slot around it, which would wait for ever."""
    host, stuck = workers(), {"one0"}
    capacity = Capacity(tuple(host.values()), REGISTRY, quarantined=lambda: stuck)
    assert free(capacity) == {"right", "one1", "one2", "one3", "cpu"}
    assert capacity.request().slots == {"Two": 1, "One": 3, "Single": 3, "CPU": 1}
    host["one2"].busy = True
    assert {worker.slot.name for worker in capacity.blocked()} == {"right"}
    assert capacity.usable()
    stuck |= {"one1", "one2", "one3", "cpu"}
    assert not capacity.usable()
    stuck.clear()
    host["one2"].busy = False
    assert free(capacity) == set(host)
