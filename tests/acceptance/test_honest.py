"""Honest submissions that do what cheats do: keep buffers, return views, start threads, remember, overwrite.

Every file of honest/submissions names its task in its first line and, in its second, what might be held against it.
None may be refused, whatever else the machine is doing: `KERNEL_RUNNER_TEST_EXAMPLES` is how often each is judged. Once
is with few calls; more often is with as many as a competition's judge makes, for the public job and for the secret one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.judge.stopping import Timing
from tests.acceptance.attacks.relax import FEW_CONTROLS
from tests.acceptance.judging.forked_judges import ForkedJudges

HONEST = Path(__file__).parent / "honest"
ROUNDS = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "1"))
#: Of a rank, and what the judge does without, see `attacks.relax`. Times that are noise say what else the host did,
#: which is held against no submission: a daemon tries again.
FEW, MANY = Timing(max_runs=20, refuse=1e9), Timing(refuse=1e9)
TIMING, WITHOUT = (FEW, (FEW_CONTROLS,)) if ROUNDS == 1 else (MANY, ())
#: Task -> sizes tested, size timed; what follows an underscore is another size of the same task.
SIZES = {
    "add": ((64, 1000), 4096),
    "add_large": ((1 << 16,), 1 << 20),
    "add_tiny": ((1, 2), 1),
    "matmul": ((16, 33), 192),
    "parts": ((5, 300), 2000),
    "spectrum": ((8, 100), 1024),
    "scale": ((4, 33), 128),
    "total": ((1, 999), 5000),
    "edges": ((1, 7), 16),
    "rows": ((3, 17), 64),
}


def _submissions() -> list[str]:
    found = sorted(path.stem for path in (HONEST / "submissions").glob("*.py"))
    assert len(found) >= 40
    return found


@pytest.mark.parametrize("name", _submissions())
def test_nothing_is_held_against_it(processes: ForkedJudges, name: str) -> None:
    """Tested and ranked: accepted, every time."""
    source = (HONEST / "submissions" / f"{name}.py").read_text(encoding="utf-8")
    task = source.splitlines()[0].removeprefix("# task: ")
    tests, timed = SIZES[task]
    again = ROUNDS > 1
    request = JudgeRequest(
        modes=(
            ModeRequest(name="test", cases=tuple(_case(size) for size in tests), timeout_s=60.0),
            ModeRequest(name="leaderboard", cases=(_case(timed),), timeout_s=60.0, timing=TIMING),
            *(
                (ModeRequest(name="benchmark", cases=(_case(timed),), timeout_s=60.0, timing=FEW, ranked=False),)
                * again
            ),
        ),
        files={
            path.name: path.read_text(encoding="utf-8")
            for path in (HONEST / "tasks" / task.partition("_")[0]).iterdir()
        },
        worker_files=(),
        submission_name="submission.py",
        submission=source,
    )
    for _ in range(ROUNDS):
        report = processes.evaluate(request, without=WITHOUT)
        said = [(step.name, step.judged.verdict if step.judged else None, step.judged) for step in report.steps]
        assert [(mode, verdict) for mode, verdict, _ in said] == [(mode.name, "accepted") for mode in request.modes], (
            said
        )


def _case(size: int) -> str:
    return f"size: {size}; seed: {size + 40}"
