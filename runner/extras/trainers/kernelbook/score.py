"""Step 0, second half: evaluate completions through the queue, and write rows as published data sets have them.

The reward is `kernelbook@1`: the speed-up of a correct candidate, else 0. An outage is no reward, nor is a reference
that cannot be used: such rows go into the side file. A rerun asks the queue for the same keys, so nothing is evaluated
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from runner.extras.jsonl import Row
from runner.extras.trainers.client import Client, Item, Result
from runner.extras.trainers.client.adapters import code_of

from .report import StepReport, outcomes
from .rows import Source, content_of, info_of, number_of, text_of

REWARD: Final = "kernelbook@1"
OUTPUT: Final = "outputs/evals.jsonl"
_NO_CODE: Final = "no_candidate"
#: Facts of a result that a row has beside the published columns.
_FACTS: Final = ("speedup", "speedup_low", "speedup_high", "speedup_device", "timing", "message")


def run(
    source: Source,
    client: Client,
    *,
    device: str,
    output: Path,
    again: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> StepReport:
    """Evaluate all rows, then write them in the order of the input. They are read twice; the queue keeps results.

    Rows have `completion`, and `python_code` in the row or in its `info`. `device`: the GPU type, for the rows.
    `again`: how many times more to evaluate what ended as a fault of ours or was cancelled. `progress` gets how many
    results are there.
    """
    report = StepReport(step="score")
    results: dict[str, Result] = {}
    for time in range(again + 1):
        items = (item for row in source.rows() if (item := _item(row)) is not None)
        missing = (item for item in items if (earlier := results.get(item.key)) is None or earlier.is_fault)
        for result in client.stream(_named(item, time) for item in missing):
            results[result.key.partition("/again-")[0]] = result
            progress(len(results))
    facts = {"reward": REWARD, "device": device}
    with outcomes(output, report, {**source.facts, **facts}) as (write, write_failure):
        for number, row in enumerate(source.rows()):
            report.rows_in += 1
            why, evaluation = _row(number, row, results, device)
            if evaluation is None:
                write_failure(why, {"row": row})
            else:
                write(evaluation)
    return report


def planned(source: Source) -> StepReport:
    """How many rows there are, and how many different candidates would be evaluated. The queue is not asked."""
    report = StepReport(step="score")
    keys = set()
    for row in source.rows():
        report.rows_in += 1
        item = _item(row)
        if item is not None:
            keys.add(item.key)
    report.facts["would evaluate"] = len(keys)
    return report


def _candidate(row: Row) -> str | None:
    text = content_of(row, "completion")
    code = "" if text is None else code_of(text)
    return code if code.strip() else None


def _item(row: Row) -> Item | None:
    reference, code = text_of(row, "python_code"), _candidate(row)
    if reference is None or code is None:
        return None
    return Item(reference=reference, candidate=code, entry_point=text_of(row, "entry_point", "module_name") or "Model")


def _named(item: Item, time: int) -> Item:
    """The item, under another key for each further time: the queue evaluates a key once."""
    return item if time == 0 else replace(item, key=f"{item.key}/again-{time}")


def _row(number: int, row: Row, results: Mapping[str, Result], device: str) -> tuple[str, Row | None]:
    """The evaluation's row, or the reason why there is none."""
    if text_of(row, "python_code") is None:
        return "there is no python_code", None
    item = _item(row)
    if item is None:
        return "", _published(number, row, reward=0.0, verdict=_NO_CODE, facts={}, device=device)
    result = results.get(item.key)
    reward = None if result is None else result.reward(REWARD)
    if result is None or reward is None:
        verdict = "no result" if result is None else result.verdict or "cancelled"
        return f"{verdict}: {'' if result is None else result.message}"[:200], None
    return "", _published(number, row, reward=reward, verdict=str(result.verdict), facts=result.facts, device=device)


def _published(  # the published columns, then our own
    number: int, row: Row, *, reward: float, verdict: str, facts: Mapping[str, Any], device: str
) -> Row:
    info = dict(info_of(row)) or dict(_info(row))
    generation_ms = number_of(row, "generation_ms") or 0.0
    scoring_ms = sum(float(facts.get(name) or 0.0) for name in ("build_ms", "eval_ms"))
    example = row.get("example_id")
    return {
        "example_id": number if example is None else example,
        "prompt": _conversation(row, "prompt", "user"),
        "completion": _conversation(row, "completion", "assistant"),
        "task": row.get("task") or "kernelbook",
        "reward": reward,
        "generation_ms": generation_ms,
        "scoring_ms": scoring_ms,
        "total_ms": generation_ms + scoring_ms,
        "info": info,
        "answer": row.get("answer") or "",
        "speedup_reward": reward,
        "num_turns": row.get("num_turns") or 1,
        "oai_tools": row.get("oai_tools"),
        "verdict": verdict,
        "device": device,
        **{name: facts.get(name) for name in _FACTS},
    }


def _info(row: Row) -> Iterator[tuple[str, Any]]:
    name = text_of(row, "module_name", "entry_point")
    yield "module_name", name
    for column in ("python_code", "triton_code", "repo_name", "licenses", "uuid"):
        if row.get(column) is not None:
            yield column, row[column]


def _conversation(row: Row, column: str, role: str) -> list[Any]:
    value = row.get(column)
    if isinstance(value, list):
        return value
    return [] if value is None else [{"role": role, "content": str(value)}]
