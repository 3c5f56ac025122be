"""Times of references between groups: what is kept, for whom, and what is believed of a judge's word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runner.evaluation.reference_times import KeptTimes, key_of
from sandbox.protocol import Judged, StepResult
from tasks.harness.judge.modules.group import Group
from tasks.harness.judge.modules.reference_times import from_message, last_reported
from tests.unit import samples

_GOOD: dict[str, Any] = {"counted_ns": [1.0, 2.5], "timing": "audited", "noise_ns": 3.0}


def test_times_come_back_by_mode() -> None:
    """Another mode is added, the same one replaced."""
    kept = KeptTimes()
    assert kept.get("a") == {}
    assert kept.put("a", {"made": _GOOD})
    assert kept.put("a", {"eval": {**_GOOD, "timing": "measured"}})
    assert kept.put("a", {"made": {**_GOOD, "counted_ns": [7.0]}})
    found = kept.get("a")
    assert (found["made"]["counted_ns"], found["eval"]["timing"]) == ([7.0], "measured")
    assert from_message(found)["made"].counted_ns == (7.0,)


def test_the_least_recently_used_is_dropped() -> None:
    """No more than so many references are kept."""
    kept = KeptTimes(most=2)
    for key in ("a", "b"):
        kept.put(key, {"made": _GOOD})
    kept.get("a")
    kept.put("c", {"made": _GOOD})
    assert [bool(kept.get(key)) for key in "abc"] == [True, False, True]


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {"train": _GOOD},
        {"made": {"counted_ns": [1.0]}},
        {"made": {**_GOOD, "more": 1}},
        {"made": {**_GOOD, "counted_ns": []}},
        {"made": {**_GOOD, "counted_ns": [1.0] * 201}},
        {"made": {**_GOOD, "counted_ns": [0.0]}},
        {"made": {**_GOOD, "counted_ns": [-1.0]}},
        {"made": {**_GOOD, "counted_ns": [float("nan")]}},
        {"made": {**_GOOD, "counted_ns": [True]}},
        {"made": {**_GOOD, "counted_ns": ["1"]}},
        {"made": {**_GOOD, "timing": "true"}},
        {"made": {**_GOOD, "noise_ns": 1e30}},
    ],
)
def test_what_makes_no_sense_is_dropped(said: object) -> None:
    """And what was known stays."""
    kept = KeptTimes()
    kept.put("a", {"made": _GOOD})
    assert kept.put("a", said) is False
    assert kept.get("a") == {"made": _GOOD}


def test_the_key_is_all_that_times_depend_on() -> None:
    """Candidates are no part of it; reference, baseline, precision, slot and image are."""
    slot = samples.SLOT

    def key(changes: dict[str, Any] | None = None, code: str = "a", slot: Any = slot, image: str = "i") -> str:  # noqa: ANN401 a slot
        message = {"kind": "module", "reference": "r", "candidates": [{"id": 1, "code": code}], **(changes or {})}
        return key_of(Group.from_message(message), slot, image=image, runtime="runc")

    assert key() == key(code="b") == key({"settings": {"timed_calls": 50}})
    others = [
        key({"reference": "s"}),
        key({"entry_point": "Net"}),
        key({"settings": {"baseline": "compile"}}),
        key({"settings": {"precision": "float16"}}),
        key(slot=replace(slot, cpus=(7,))),
        key(image="j"),
    ]
    assert len({key(), *others}) == 1 + len(others)


def test_the_last_report_counts() -> None:
    """Times grow from candidate to candidate; other steps say none."""
    steps = [_step({"reference_times": {"made": number}}) for number in (1, 2)]
    assert last_reported([*steps, _step({"module": {}}), replace(steps[0], judged=None)]) == {"made": 2}
    assert last_reported([_step({"module": {}})]) is None


def _step(details: Mapping[str, Any]) -> StepResult:
    judged = Judged(verdict="accepted", message=None, assurance={}, details=details)
    return StepResult(name="candidate", command="", start_ns=0, duration_ns=1, exit_code=0, judged=judged)
