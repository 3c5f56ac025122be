"""Groups as they are sent: defaults, and a sentence for what cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.extras.trainers.inside.judge.group import Group, GroupError, Result, failed_results
from runner.extras.trainers.inside.judge.request import GroupRequest
from tasks.harness.judge.request import RequestError


def _group(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 any field
    return {"kind": "module", "reference": "x", "candidates": [{"id": 7, "code": "y"}], **changes}


def test_a_group_has_defaults() -> None:
    """A group has defaults."""
    group = Group.from_message(_group())
    assert (group.settings.inputs, group.settings.timed_calls, group.settings.timeout_s) == (5, 20, 60.0)
    assert (group.entry_point, group.candidates[0].entry_points) == ("Model", ("ModelNew",))


def test_further_baselines_are_named_once() -> None:
    """In the order given."""
    group = Group.from_message(_group(settings={"further_baselines": ["graphs", "compile", "graphs"]}))
    assert group.settings.further_baselines == ("graphs", "compile")


def test_a_class_of_kernelbook_may_have_both_names() -> None:
    """A class of kernelbook may have both names."""
    group = Group.from_message(_group(entry_point="Swish"))
    assert group.candidates[0].entry_points == ("ModelNew", "SwishNew")
    named = Group.from_message(_group(candidates=[{"id": 1, "code": "", "entry_point": "Mine"}]))
    assert named.candidates[0].entry_points == ("Mine",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "task"}, "expected 'module'"),
        ({"reference": None}, "reference is NoneType"),
        ({"reference": "x" * (2 << 20)}, "more than"),
        ({"entry_point": "a b"}, "name of a class"),
        ({"candidates": []}, "1 to 16"),
        ({"candidates": [{"id": 1, "code": ""}] * 17}, "1 to 16"),
        ({"candidates": [{"id": 1, "code": ""}] * 2}, "same id"),
        ({"candidates": [{"id": "1", "code": ""}]}, "whole number"),
        ({"candidates": [{"id": 1}]}, "code is NoneType"),
        ({"settings": {"trials": 3}}, "'trials' is unknown"),
        ({"settings": {"inputs": 0}}, "inputs is 0"),
        ({"settings": {"inputs": True}}, "inputs is True"),
        ({"settings": {"timed_calls": 1001}}, "timed_calls is 1001"),
        ({"settings": {"rtol": -1}}, "rtol is -1"),
        ({"settings": {"timeout_s": "5"}}, "timeout_s is '5'"),
        ({"settings": {"precision": "int8"}}, "precision is 'int8'"),
        ({"settings": {"baseline": "best"}}, "baseline is 'best'"),
        ({"settings": {"perturb": 1}}, "perturb is 1"),
        ({"settings": {"separate_containers": None}}, "separate_containers is None"),
        ({"settings": {"further_baselines": "compile"}}, "further_baselines is 'compile'"),
        ({"settings": {"further_baselines": ["best"]}}, "expected a list of eager, compile, tf32, graphs"),
    ],
)
def test_what_cannot_be_read_is_told(change: dict[str, Any], said: str) -> None:
    """What cannot be read is told."""
    with pytest.raises(GroupError, match=said):
        Group.from_message(_group(**change))


def test_a_request_comes_back_as_it_was_sent() -> None:
    """A request comes back as it was sent."""
    sent = GroupRequest(group=_group(), memory_bytes=5, builds={"3": None, "4": "no"})
    payload = json.loads(json.dumps(sent.to_payload()))
    assert GroupRequest.from_payload(payload) == sent
    with pytest.raises(RequestError, match="version"):
        GroupRequest.from_payload({**payload, "version": 99})
    with pytest.raises(RequestError, match="'group' is str"):
        GroupRequest.from_payload({**payload, "group": "x"})


def test_a_result_is_json_without_infinities() -> None:
    """A result is json without infinities."""
    message = Result(id=3, max_abs_error=float("inf"), speedup_low=float("nan")).to_message()
    assert (message["max_abs_error"], message["speedup_low"]) == (None, None)
    assert json.loads(json.dumps(message, allow_nan=False))["id"] == 3


def test_failures_name_every_candidate() -> None:
    """Failures name every candidate."""
    rows = failed_results(_group(candidates=[{"id": 1}, {"id": 2}, "x"]), "invalid", "no")
    assert [(row["id"], row["verdict"], row["message"]) for row in rows] == [(1, "invalid", "no"), (2, "invalid", "no")]
