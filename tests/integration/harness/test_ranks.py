"""Several ranks as real processes: every ending that one of them can bring about, and who is blamed for it."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.protocol import StepResult
from tasks.harness.local import LocalReport, Pair, lines_of
from tests.acceptance.judging.forked_judges import ForkedJudges

from .conftest import make_request, message_of, verdict_of

TESTS = ("size: 64; seed: 11; world_size: 2", "size: 257; seed: 12; world_size: 2")
#: Takes so long to copy that no rank is quiet meanwhile by accident.
LARGE = ("size: 4194304; seed: 13; world_size: 2", "size: 64; seed: 11; world_size: 2")
BENCHMARKS = ("size: 4096; seed: 21; world_size: 2",)

#: submission, request fields, verdict, part of the sentence
ENDINGS: tuple[tuple[str, dict[str, object], str, str], ...] = (
    ("ring_raises_on_rank_1", {}, "runtime_error", "test 1 of 2: rank 1: ValueError: rank 1 gives up"),
    ("ring_dies_on_rank_1", {}, "runtime_error", "test 1 of 2: rank 1: the process was killed by signal 11 (SIGSEGV)"),
    ("ring_writes_on_rank_1", {"tests": LARGE}, "rejected", "test 1 of 2: rank 1: the output was still being written"),
    ("syntax_error", {}, "compile_error", "rank 0: "),
    ("forges_done", {}, "rejected", "harness's own channel"),
    ("ring_sends_nan", {}, "rejected", "rank 0: the submission wrote to the harness's own channel"),
    ("flood", {}, "output_limit", "64 MiB"),
    (
        "ring_right",
        {"tests": ("size: 64; seed: 1; world_size: 3",)},
        "invalid",
        "expected 2, as many as there are ranks",
    ),
    ("ring_right", {"tests": ("size: -1; seed: 1; world_size: 2",)}, "invalid", "generate_input raised"),
)


def evaluate(processes: ForkedJudges, submission: str, **fields: object) -> LocalReport:
    """Run a request on two forked ranks, and see that nothing is left of it."""
    asked: dict[str, object] = {"task": "ring", "tests": TESTS, "benchmarks": BENCHMARKS, "ranks": 2} | fields
    request = make_request(submission, **asked)  # type: ignore[arg-type]  # checked by make_request
    with Pair(ranks=2, start=processes.start) as pair:
        report = pair.run(request)
        # The rank checkers are in their judge's session.
        sessions = {pair._judge.pid, *(worker.pid for worker in pair.workers)}
    assert not [path.name for path in Path("/proc").glob("[0-9]*") if _session(path) in sessions]
    return report


def _session(process: Path) -> int | None:
    try:
        return os.getsid(int(process.name))
    except ProcessLookupError:
        return None


@pytest.mark.parametrize("ending", ENDINGS, ids=[f"{ending[0]}-{ending[2]}" for ending in ENDINGS])
def test_ending(processes: ForkedJudges, ending: tuple[str, dict[str, object], str, str]) -> None:
    """Each bad ending gets its verdict and a sentence that names the rank; all ranks end with it, at once."""
    submission, fields, verdict, sentence = ending

    # On a busy machine the thread may write when the judge does not look; it must be seen once.
    for _ in range(12 if submission == "ring_writes_on_rank_1" else 1):
        report = evaluate(processes, submission, **fields)
        assert [step.name for step in report.steps] == ["test"]
        step = report.steps[0]
        if verdict_of(step) == verdict:
            break
    assert (verdict_of(step), lines_of(step)["check"]) == (verdict, "fail"), message_of(step)
    assert sentence in message_of(step)
    assert not step.timed_out
    assert "test.1.status" not in lines_of(step)


def test_a_rank_that_hangs_is_told_with_where_all_were(processes: ForkedJudges) -> None:
    """The limit ends all ranks; whatever it is, they are ended in the same way, at the first test."""
    # Two seconds are enough for both to get there, unless the machine is busy.
    for timeout_s in (2.0, 10.0, 50.0):
        (step,) = evaluate(processes, "ring_hangs_on_rank_1", timeout_s=timeout_s).steps
        assert (step.name, verdict_of(step), lines_of(step)["check"]) == ("test", "time_limit", "fail"), message_of(
            step
        )
        assert step.timed_out
        assert "test.1.status" not in lines_of(step)
        if "rank 0 waited for the others" in message_of(step):
            break
    where = "rank 1 was at submission.py:11, in custom_kernel; rank 0 waited for the others at submission.py:13"
    assert where in message_of(step)


def test_what_leaves_the_ranks_alive_leaves_the_next_test_its_chance(processes: ForkedJudges) -> None:
    """Wrong answers and errors of all ranks are told test by test, with their rank; a right one after them passes."""
    step = evaluate(
        processes, "ring_fails", tests=tuple(f"size: {size}; seed: 5; world_size: 2" for size in range(1, 6))
    ).steps[0]

    assert verdict_of(step) == "wrong_answer"
    assert message_of(step).startswith("test 1 of 5: rank 1: found [")
    errors = [lines_of(step).get(f"test.{index}.error", "") for index in range(5)]
    assert errors[1] == "rank 1: custom_kernel returned a SimpleNamespace, which cannot be read as tensor data"
    assert errors[2].startswith("rank 1: the output could not be compared: TypeError")
    assert errors[3] in {f"rank {rank}: ValueError: nothing on rank {rank} of 2" for rank in range(2)}
    assert [lines_of(step)[f"test.{index}.status"] for index in range(5)] == ["fail"] * 4 + ["pass"]


def test_a_right_submission_passes_every_mode(processes: ForkedJudges) -> None:
    """Classes of the task's own among the inputs, collectives in the reference: accepted, with the contract's keys."""
    modes = ("test", "benchmark", "leaderboard", "profile.0")
    report = evaluate(processes, "ring_right", modes=modes, seed=77)

    assert [(step.name, verdict_of(step), step.exit_code) for step in report.steps] == [
        (mode, "accepted", 0) for mode in modes
    ], [message_of(step) for step in report.steps]
    assert lines_of(report.steps[0]) == {
        "test-count": "2",
        "test.0.spec": TESTS[0],
        "test.0.status": "pass",
        "test.1.spec": TESTS[1],
        "test.1.status": "pass",
        "check": "pass",
    }
    for step in report.steps[1:3]:
        assert 3 <= int(lines_of(step)["benchmark.0.runs"]) <= 100
        case = details_of(step)
        assert len(case["claimed_median_by_rank_ns"]) == 2
        assert not case["fixed_inputs"]
        assert case["checked"] > case["calls"] >= int(lines_of(step)["benchmark.0.runs"])
    table = base64.b64decode(lines_of(report.steps[3])["benchmark.0.report"]).decode()
    assert table.startswith("rank 0\n")
    assert "\nrank 1\n" in table
    assert table.count("gloo:all_gather") >= 2
    assert [name for name, _, _ in report.artifacts] == [f"profile.0.rank{rank}.trace.json.gz" for rank in range(2)]


def details_of(step: StepResult) -> dict[str, Any]:
    """What the judge says of the only benchmark."""
    assert step.judged is not None
    (case,) = step.judged.details["cases"]
    return dict(case)
