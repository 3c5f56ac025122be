"""`python -m tests.acceptance.escapes`: every attempt on every board it is made for, on a runtime of one's choice.

    run [--runtime runsc] [--board judge] [--slots N] [NAME ...]   plays; a line each, then what is wrong
    table                                               the table of docs/attacks.md

The engine is the one DOCKER_HOST names; it must have the runtime.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import as_completed
from pathlib import Path

from tests.acceptance.escapes.case import Case, all_cases
from tests.acceptance.escapes.rig import Played, Rig
from tests.acceptance.escapes.table import table
from tests.plugins.live import ROOT


def main(arguments: Sequence[str]) -> int:
    """Run what was asked for; 1 where a verdict is another one or something is left."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.escapes")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("table")
    run = commands.add_parser("run")
    run.add_argument("names", nargs="*")
    run.add_argument("--runtime", default="runc")
    run.add_argument("--board")
    run.add_argument("--slots", type=int, default=4)
    asked = parser.parse_args(arguments)
    if asked.command == "table":
        print(table(all_cases()), end="")
        return 0
    return _run(asked)


def _run(asked: argparse.Namespace) -> int:
    plays = [
        (case, board)
        for case in all_cases()
        for board in case.verdicts
        if (not asked.names or case.name in asked.names) and asked.board in (None, board)
    ]
    eval_python = Path(os.environ.get("KERNEL_RUNNER_EVAL_PYTHON") or ROOT / ".venv-eval" / "bin" / "python")
    wrong = 0
    with Rig(engine_url=None, eval_python=eval_python, runtime=asked.runtime, slots=asked.slots) as rig:
        queued = {rig.play(case, board): (case, board) for case, board in plays}
        for future in as_completed(queued):
            case, board = queued[future]
            problems = _problems(case, board, future.result(), runtime=asked.runtime)
            wrong += bool(problems)
            print(_line(case, board, future.result()), *(f"\n    {problem}" for problem in problems), flush=True)
    print(f"{len(plays)} attempts, {wrong} of them wrong")
    return 1 if wrong else 0


def _line(case: Case, board: str, played: Played) -> str:
    return f"{case.name:32} {board:8} {played.verdict:15} {played.seconds:6.1f} s, honest job x {played.slowdown:.2f}"


def _problems(case: Case, board: str, played: Played, *, runtime: str) -> list[str]:
    expected = case.expected(board, runtime=runtime)
    found = []
    if played.verdict not in expected:
        found.append(f"expected {' or '.join(sorted(expected))}: {played.error} {played.output[:2000]}")
    if played.honest_verdict != "accepted":
        found.append(f"the honest job after it: {played.honest_verdict}")
    return [*found, *(f"left: {trace}" for trace in played.left)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
