"""From what was found of a group's candidates to the group's result. Pure.

What comes in is the harness's report, and of the harness's report the daemon believes nothing that it can check: ids,
words, numbers and lengths. A faulty value becomes `internal_error`, so the candidate is evaluated again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.model import Job, JobResult, Json, Slot, Verdict

#: How an item can end. `invalid` is the reference's fault, `internal_error` ours.
VERDICTS: Final = frozenset(
    {
        *("accepted", "wrong_answer", "compile_error", "runtime_error", "time_limit", "memory_limit"),
        *("rejected", "invalid", "internal_error"),
    }
)
#: The keys of an item's result that the daemon keeps; others are dropped, so that a report cannot grow without bound.
KEYS: Final = (
    *("id", "verdict", "stage", "compiled", "correct", "kb_correct", "message", "reference_ns", "candidate_ns"),
    *("speedup", "speedup_low", "speedup_high", "speedup_device", "speedup_host", "timing"),
    *("reference_stats", "candidate_stats", "baselines", "max_abs_error", "max_rel_error"),
    *("failing_input", "weights", "perturbed", "distributions", "mode", "random", "tolerance", "degenerate", "flags"),
    *("kernel_use", "memory_bytes", "reference_memory_bytes", "reference_cached", "reference_time_cached"),
    *("device", "software", "build_ms", "eval_ms"),
)
#: No text of a result is longer, and no list or object has more entries.
MAX_TEXT: Final = 4000
MAX_ENTRIES: Final = 100
#: How deep lists and objects may be nested.
_MAX_DEPTH: Final = 4


@dataclass(frozen=True, kw_only=True)
class FoundGroup:
    """What an evaluation found of a group."""

    #: One result for each candidate of which something was heard.
    rows: Sequence[Mapping[str, Any]]
    #: Where the time went, in nanoseconds: docs/trainers.md.
    phases_ns: Mapping[str, int]


def group_result(
    job: Job,
    slot: Slot,
    found: Sequence[Mapping[str, Any]],
    *,
    eval_ns: int,
    phases_ns: Mapping[str, int] | None = None,
) -> JobResult:
    """The result of a group. A candidate without a result of its own is left out: it is evaluated again.

    Args:
        job: the group.
        slot: where it ran.
        found: what the harness reports of its candidates.
        eval_ns: how long it took, its builds included.
        phases_ns: where that time went, for the job's report.
    """
    asked = [candidate["id"] for candidate in job.task["candidates"]]
    items: dict[int, Json] = {}
    for result in found:
        number = result.get("id")
        if isinstance(number, int) and number in asked and number not in items:
            items[number] = _item(result)
    ours = [str(item["message"]) for item in items.values() if item["verdict"] == "internal_error"]
    missing = len(asked) - len(items)
    if missing:
        ours.append(f"{missing} of {len(asked)} candidates have no result")
    report = {
        "slot": slot.name,
        "items": len(asked),
        "internal_errors": len(ours),
        "causes": ours[:3],
        "phases_ns": dict(phases_ns or {}),
    }
    built_ns = min(eval_ns, (phases_ns or {}).get("build", 0))
    return JobResult(
        verdict=Verdict.INTERNAL_ERROR if ours else Verdict.ACCEPTED,
        runs=(),
        error=ours[0] if ours else None,
        report=report,
        build_ns=built_ns,
        eval_ns=eval_ns - built_ns,
        items=tuple(items.values()),
    )


def _item(result: Mapping[str, Any]) -> Json:
    """One result with all keys; what makes no sense is our fault."""
    kept = {key: _plain(result.get(key), _MAX_DEPTH) for key in KEYS}
    kept["id"] = result["id"]
    trouble = _trouble(kept)
    if trouble is not None:
        return {**dict.fromkeys(KEYS), "id": result["id"], "verdict": "internal_error", "message": trouble}
    return kept


def _trouble(item: Mapping[str, Any]) -> str | None:
    """The fault of a result; None: no fault."""
    if item["verdict"] not in VERDICTS:
        return f"the harness reports the verdict {item['verdict']!r}, which is none"
    if not isinstance(item["message"], str):
        return f"the harness reports {item['verdict']} without a message"
    for key in (
        "reference_ns",
        "candidate_ns",
        "speedup",
        "speedup_low",
        "speedup_high",
        "speedup_device",
        "speedup_host",
    ):
        value = item[key]
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            return f"the harness reports {key} {value!r}, expected a number above 0"
        # An interval may begin at 0: a short call, beside what its hand-over may have cost.
        if value == 0 and key != "speedup_low":
            return f"the harness reports {key} 0, expected a number above 0"
    if item["verdict"] == "accepted" and item["correct"] is not True:
        return "the harness reports an accepted candidate that is not correct"
    return None


def _plain(value: object, depth: int) -> object:
    """The value in JSON's own types, bounded; a number that is not finite is not known."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            # PostgreSQL stores neither.
            return value[:MAX_TEXT].replace("\0", "�").encode("utf-8", "replace").decode("utf-8")
        case Mapping() if depth:
            return {str(key)[:200]: _plain(item, depth - 1) for key, item in list(value.items())[:MAX_ENTRIES]}
        case list() | tuple() if depth:
            return [_plain(item, depth - 1) for item in value[:MAX_ENTRIES]]
        case _:
            return str(value)[:MAX_TEXT]
