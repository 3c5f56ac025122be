"""Completions through the real queue and daemon to rows of evaluations; only the evaluation itself is a stand-in."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.base.model import Job, JobResult, Progress
from runner.extras.trainers.client import Client
from runner.extras.trainers.kernelbook import difficulty, score
from runner.extras.trainers.kernelbook.asking import Request
from runner.extras.trainers.kernelbook.rows import Source, facts_of, read
from tests.integration.daemon.groups import looking
from tests.integration.daemon.rig import Rig

ROOT = Path(__file__).resolve().parents[3]

#: The columns of the published evaluations, in their order.
PUBLISHED = (
    *("example_id", "prompt", "completion", "task", "reward", "generation_ms", "scoring_ms", "total_ms", "info"),
    *("answer", "speedup_reward", "num_turns", "oai_tools"),
)


def completion(number: int, **found: object) -> dict[str, Any]:
    """A row whose candidate says what is found of it."""
    says = f"# found: {json.dumps(found)}\n" if found else ""
    text = f"Here it is.\nBEGIN_PYTHON\n{says}class Net{number}New: pass\nEND_PYTHON\n"
    return {
        "example_id": number,
        "prompt": f"write Net{number}",
        "completion": [{"role": "assistant", "content": text, "reasoning": "hm"}],
        "generation_ms": 5.0,
        "entry_point": f"Net{number}",
        "python_code": f"class Net{number}: pass  # {number // 8}",
    }


def test_half_of_two_hundred_completions_are_wrong(served: Rig, tmp_path: Path) -> None:
    """Rows in the order of the input and in the published layout; a rerun evaluates nothing and writes the same."""
    wrong = {"verdict": "wrong_answer", "correct": False, "message": "off by one"}
    rows = [completion(number, **(wrong if number % 2 else {})) for number in range(200)]
    rows[4]["completion"] = [{"role": "assistant", "content": None}]
    rows[6]["python_code"] = None
    rows[8] = completion(8, verdict="invalid", correct=None, message="the reference is no Python")
    file = tmp_path / "completions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "evals.jsonl"
    written, evaluated = [], []
    for _ in range(2):
        with Client(served.url, gpu_type="CPU") as client:
            report = score.run(Source(str(file)), client, device="CPU", output=output)
        written.append(output.read_bytes())
        evaluated.append(len(served.evaluator.seen))
        assert (report.rows_in, report.rows_out) == (200, 198)
        assert dict(report.failed) == {"there is no python_code": 1, "invalid: the reference is no Python": 1}
    assert written[0] == written[1]
    assert evaluated[0] == evaluated[1]
    made = list(read(output))
    assert [row["example_id"] for row in made] == [number for number in range(200) if number not in (6, 8)]
    assert tuple(made[0])[: len(PUBLISHED)] == PUBLISHED
    by_id = {row["example_id"]: row for row in made}
    assert by_id[0]["reward"] == by_id[0]["speedup_reward"] == 2.0
    assert (by_id[0]["speedup_low"], by_id[0]["speedup_high"], by_id[0]["device"]) == (1.9, 2.1, "CPU")
    assert (by_id[1]["reward"], by_id[1]["verdict"]) == (0.0, "wrong_answer")
    assert (by_id[4]["reward"], by_id[4]["verdict"]) == (0.0, "no_candidate")
    assert by_id[0]["info"] == {"module_name": "Net0", "python_code": rows[0]["python_code"]}
    failures = [json.loads(line) for line in (tmp_path / "evals.failures.jsonl").read_text().splitlines()]
    assert [row["row"]["example_id"] for row in failures] == [6, 8]
    # What was written is what the next step reads.
    step = difficulty.step()
    assert sum(isinstance(step.question(row), Request) for row in made) == 97


def test_a_fault_of_ours_is_evaluated_again_when_asked_for(served: Rig, tmp_path: Path) -> None:
    """A row without a reward fails the step; `again` gives it another chance, and the others none."""
    seen: list[str] = []

    def script(job: Job, cancel: threading.Event, on_progress: Callable[[Progress], None]) -> JobResult:
        candidates = []
        for candidate in job.task["candidates"]:
            seen.append(candidate["code"])
            # A job has three attempts. After them the engine is well again.
            well = seen.count(candidate["code"]) > 3
            text = candidate["code"].replace("# found: ", "# once: ") if well else candidate["code"]
            candidates.append({**candidate, "code": text})
        return looking()(replace(job, task={**job.task, "candidates": candidates}), cancel, on_progress)

    served.evaluator.script = script
    fault = {"verdict": "internal_error", "correct": None, "message": "the engine went away"}
    file = tmp_path / "completions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (completion(0), completion(1, **fault))))
    for again, rows_out in ((0, 1), (1, 2), (1, 2)):
        with Client(served.url, gpu_type="CPU") as client:
            report = score.run(Source(str(file)), client, device="CPU", output=tmp_path / "evals.jsonl", again=again)
        assert report.rows_out == rows_out
        assert report.complete == (again == 1)
    assert facts_of(tmp_path / "evals.jsonl") == {"source": str(file), "reward": "kernelbook@1", "device": "CPU"}
    assert score.planned(Source(str(file))).facts == {"would evaluate": 2}
