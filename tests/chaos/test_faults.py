"""The plan of a storm: reproducible, complete, and possible."""

from __future__ import annotations

from collections import defaultdict

from tests.chaos.faults import Fault, Kind, draw

HOSTS = ("a", "b", "c")


def plan(seed: int, storm_s: float = 60.0) -> tuple[Fault, ...]:
    """A plan for three hosts."""
    return draw(seed=seed, hosts=HOSTS, storm_s=storm_s, gap_s=1.5, lease_s=2.5)


def test_a_seed_names_its_plan() -> None:
    """The same seed gives the same plan, another seed another one."""
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


def test_every_kind_comes_and_is_mended_in_time() -> None:
    """Whatever the seed: each kind at least once, nothing is broken any more when the storm ends."""
    for seed in range(60):
        faults = plan(seed)
        assert {fault.kind for fault in faults} == set(Kind), seed
        assert all(0 < fault.at_s <= fault.end_s <= 60.0 for fault in faults), seed


def test_a_broken_part_is_not_broken_again_before_it_is_mended() -> None:
    """A process, a network and a door take one fault at a time."""
    for seed in range(30):
        taken: dict[tuple[str | None, str], list[Fault]] = defaultdict(list)
        for fault in sorted(plan(seed), key=lambda fault: fault.at_s):
            part = {"network": "network", "daemon": "process", "host": "door"}.get(fault.kind.split()[0], fault.kind)
            before = taken[fault.host, part]
            if fault.host is not None:
                assert not before or before[-1].end_s <= fault.at_s, (seed, before[-1], fault)
            before.append(fault)
