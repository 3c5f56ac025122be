"""What the daemon makes of a harness's report on a group: it believes nothing that it can check."""

from __future__ import annotations

import math
import re
from importlib import resources
from typing import Any

import pytest

from runner.base.model import GroupJob, Verdict
from runner.extras.trainers.kinds.module import KEYS, MAX_TEXT, VERDICTS, group_result
from tests.unit import samples

FINE: dict[str, Any] = {"verdict": "accepted", "stage": "done", "correct": True, "message": "right", "speedup": 1.5}


def group(*ids: int) -> GroupJob:
    """A claimed group with these items."""
    return samples.group(*({"id": number, "code": ""} for number in ids))


def test_every_candidate_has_its_result() -> None:
    """With all keys; the group is accepted whatever the candidates are."""
    found = group_result(
        group(4, 5), "cpu0", [{**FINE, "id": 4}, {"id": 5, "verdict": "time_limit", "message": "slow"}], eval_ns=9
    )
    assert found.verdict is Verdict.ACCEPTED
    assert [(item["id"], item["verdict"]) for item in found.items] == [(4, "accepted"), (5, "time_limit")]
    assert all(tuple(item) == KEYS for item in found.items)
    assert found.report["slot"] == "cpu0"
    assert (found.runs, found.build_ns, found.eval_ns) == ((), 0, 9)
    built = group_result(group(4), "cpu0", [{**FINE, "id": 4}], eval_ns=9, phases_ns={"build": 6, "wait": 1})
    assert (built.build_ns, built.eval_ns) == (6, 3)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({**FINE, "verdict": "perfect"}, "which is none"),
        ({**FINE, "verdict": None}, "which is none"),
        ({**FINE, "message": None}, "without a message"),
        ({**FINE, "correct": None}, "not correct"),
        ({**FINE, "speedup": 0}, "speedup 0"),
        ({**FINE, "speedup": -2.0}, "speedup -2.0"),
        ({**FINE, "speedup_low": -0.1}, "speedup_low -0.1"),
        ({**FINE, "candidate_ns": "fast"}, "candidate_ns 'fast'"),
        ({**FINE, "reference_ns": True}, "reference_ns True"),
    ],
)
def test_what_makes_no_sense_is_our_fault(result: dict[str, Any], says: str) -> None:
    """And evaluated again; the neighbour keeps its result."""
    found = group_result(group(4, 5), "cpu0", [{**result, "id": 4}, {**FINE, "id": 5}], eval_ns=1)
    assert [item["verdict"] for item in found.items] == ["internal_error", "accepted"]
    assert says in found.items[0]["message"]
    assert found.verdict is Verdict.INTERNAL_ERROR


def test_foreign_doubled_and_missing_candidates() -> None:
    """Only the first result of each candidate that was asked for counts; a missing one is evaluated again."""
    # An interval may begin at 0: a short call, beside what its hand-over may have cost.
    own = {**FINE, "id": 4, "speedup_low": 0.0}
    given = [{**FINE, "id": 9}, own, {**FINE, "id": 4, "message": "again"}, {**FINE, "id": "5"}, {**FINE}]
    found = group_result(group(4, 5), "cpu0", given, eval_ns=1)
    assert [(item["id"], item["message"], item["speedup_low"]) for item in found.items] == [(4, "right", 0.0)]
    assert found.error == "1 of 2 candidates have no result"


def test_results_are_bounded_and_fit_for_json() -> None:
    """Long texts, NUL, numbers that are not finite, deep and unknown things."""
    deep: list[Any] = []
    for _ in range(50):
        deep = [deep]
    given = {
        **FINE, "id": 4, "message": "a\0b" + "x" * 10_000, "speedup": math.nan, "max_abs_error": math.inf,
        "flags": ["f"] * 1000, "kernel_use": {"custom": deep, "lone": "\ud800"}, "more": "x" * 10_000,
    }  # fmt: skip
    (item,) = group_result(group(4), "cpu0", [given], eval_ns=1).items
    assert len(item["message"]) == MAX_TEXT
    assert "\0" not in item["message"]
    assert (item["speedup"], item["max_abs_error"], len(item["flags"])) == (None, None, 100)
    assert str(item["kernel_use"]["custom"]).count("[") <= 5 + 4 * 50
    item["kernel_use"]["lone"].encode()
    assert "more" not in item


def test_the_verdicts_are_those_of_the_database() -> None:
    """A new one needs a migration."""
    text = resources.files("runner.store.schema").joinpath("tables", "item_result.sql").read_text(encoding="utf-8")
    words = re.search(r"CHECK \(verdict IN \((.*?)\)\)", text, re.DOTALL)
    assert words is not None
    assert set(re.findall(r"'(\w+)'", words[1])) == VERDICTS
