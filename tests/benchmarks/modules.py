"""How many candidates a second groups of modules reach without a container, beside a plain loop; where the time goes.

    python -m tests.benchmarks.modules [--groups 8]

Tiny modules, eight candidates to a group, five inputs and twenty timed calls each. The loop starts one Python for each
candidate and evaluates it in that process, as the public evaluators do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from tasks.harness.local_modules import evaluate
from tests.acceptance.judging.nursery import nursery
from tests.acceptance.modules.problems import PROBLEMS, candidate

_GROUP = 8
_NAMES = ("linear", "norm", "softmax", "swish", "matmul", "attention", "gelu", "pair")
_ONE = (
    "import sys; from pathlib import Path; from tests.acceptance.modules.plain import evaluate; "
    "evaluate(Path(sys.argv[1]).read_text(), Path(sys.argv[2]).read_text())"
)


def _group(number: int) -> dict[str, Any]:
    """A group as trainers send them: six right, one wrong, one with a syntax error."""
    name = _NAMES[number % len(_NAMES)]
    right = candidate(name)
    codes = [right] * 6 + [right.replace("return ", "return 2 * ", 1), right + ")"]
    rows = [{"id": index, "code": code} for index, code in enumerate(codes)]
    return {"kind": "module", "reference": PROBLEMS[name], "candidates": rows}


def _ours(groups: list[dict[str, Any]]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    with nursery() as made:
        evaluate(groups[0], start=made.start)
        start = time.perf_counter()
        for group in groups:
            rows += evaluate(group, start=made.start)
        seconds = time.perf_counter() - start
    timed = [row for row in rows if row["speedup"] is not None]
    return {
        "candidates": len(rows),
        "seconds": round(seconds, 2),
        "per_second": round(len(rows) / seconds, 3),
        "verdicts": dict(Counter(row["verdict"] for row in rows)),
        "eval_ms_median_of_right": median(row["eval_ms"] for row in timed) if timed else None,
        "build_ms_median_of_right": median(row["build_ms"] for row in timed) if timed else None,
        "in_candidates_share": round(sum(row["eval_ms"] for row in rows) / 1000 / seconds, 3),
        "timing": dict(Counter(row["timing"] for row in timed)),
    }


def _loop(groups: list[dict[str, Any]]) -> dict[str, Any]:
    count = 0
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        reference, code = Path(directory) / "reference.py", Path(directory) / "candidate.py"
        for group in groups:
            reference.write_text(group["reference"], encoding="utf-8")
            for row in group["candidates"]:
                code.write_text(row["code"], encoding="utf-8")
                subprocess.run([sys.executable, "-c", _ONE, reference, code], check=False, capture_output=True)
                count += 1
    seconds = time.perf_counter() - start
    return {"candidates": count, "seconds": round(seconds, 2), "per_second": round(count / seconds, 3)}


def main() -> None:
    """Run both and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=8)
    groups = [_group(number) for number in range(parser.parse_args().groups)]
    print(json.dumps({"groups": _ours(groups), "loop": _loop(groups)}, indent=2))


if __name__ == "__main__":
    main()
