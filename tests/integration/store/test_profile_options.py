"""Options of profiles: what SQL refuses of them, and that they stay with the job until a daemon has it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from runner.base.errors import SubmissionError
from runner.base.model import ProfileOptions, Verdict
from runner.extras.boards.again import Selection
from tests.integration.store.conftest import TASK, Bench, Db, enqueue, result, run_record
from tests.support.jobs import of_submission

ALL: dict[str, Any] = {"benchmark": 1, "kernel": "regex:a|b", "kernel_base": "demangled", "launches": 3}
#: Two benchmarks, and one on H200.
BOARD: dict[str, Any] = {
    "task": {**TASK, "benchmarks": [{"size": 8, "seed": 2}] * 2},
    "extra": {"cases": {"H200": {"benchmarks": [{"size": 8, "seed": 3}]}}},
}


@pytest.fixture
def board(bench: Bench, db: Db) -> Bench:
    """A leaderboard on three types of two vendors."""
    db.execute(
        "INSERT INTO runner.gpu_type (name, vendor) VALUES ('H100', 'nvidia'), ('H200', 'nvidia'), ('MI300', 'amd')"
    )
    bench.board("identity", "H100", "H200", "MI300", **BOARD)
    bench.board("ranks", "H100", task={**TASK, "multi_gpu": True})
    return bench


def test_they_reach_the_daemon_and_a_rerun_has_them(board: Bench) -> None:
    """From submit and from enqueue, and the defaults where nothing was given."""
    board.submit(mode="profile", gpu_types=["H100"], options=ALL)
    job = of_submission(board.claim("H100"))
    assert job.options == ProfileOptions(**ALL)
    board.store.complete(job, result(Verdict.ACCEPTED, run_record("profile.1")))
    board.store.rerun(Selection(submission_id=1))
    assert of_submission(board.claim("H100")).options == ProfileOptions(**ALL)
    board.submit(gpu_types=["H200"])
    enqueue(board.store, 2, mode="profile", gpu_types=["H100"], options={"benchmark": 0})
    assert of_submission(board.claim("H100")).options == ProfileOptions(benchmark=0)
    assert of_submission(board.claim("H200")).options == ProfileOptions()


def test_other_options_are_another_submission(board: Bench) -> None:
    """Under an idempotency key."""
    given: dict[str, Any] = {"mode": "profile", "gpu_types": ["H100"]}
    first = board.submit(**given, options=ALL, idempotency_key="k")
    assert board.submit(**given, options=ALL, idempotency_key="k") == first
    for other in (None, {"benchmark": 0}):
        with pytest.raises(SubmissionError, match="was used for submission 1 with another options"):
            board.submit(**given, options=other, idempotency_key="k")


BAD_OPTIONS: list[tuple[dict[str, Any], object, str]] = [
    ({}, [], "the options are of type array, expected an object"),
    ({}, {"kernels": "a"}, "option kernels is unknown. Choose from: benchmark, kernel, kernel_base, launches."),
    *(
        ({}, {"benchmark": value}, "expected the number of a benchmark, counted from 0")
        for value in (-1, 0.5, "0", None)
    ),
    ({}, {"benchmark": 2}, "there is no benchmark 2 on H100. The task has 2 there, counted from 0."),
    *(
        ({}, {"kernel": value}, "expected a name, or regex: and an expression, of 1 to 1024 characters")
        for value in ("", "regex:", "a\nb", "--export", "a" * 1025, 5)
    ),
    *(({}, {"kernel_base": value}, "expected function, demangled or mangled") for value in ("name", "", None)),
    *(({}, {"launches": value}, "expected a whole number from 1 to 10000") for value in (0, 1.5, 10001, True)),
    ({"mode": "test"}, {"benchmark": 0}, "mode test takes no options"),
    ({"gpu_types": ["H100", "H200"]}, {"benchmark": 1}, "there is no benchmark 1 on H200"),
    ({"gpu_types": ["MI300"]}, {"launches": 1}, "tasks of one NVIDIA device, not this task on MI300"),
    ({"leaderboard": "ranks"}, {"kernel": "a"}, "tasks of one NVIDIA device, not this task on H100"),
]


def test_bad_options_are_refused_before_anything_is_stored(board: Bench, db: Db) -> None:
    """In a sentence with what was found and expected; the only benchmark may be chosen on every type of every task."""
    given: dict[str, Any] = {"mode": "profile", "gpu_types": ["H100"]}
    for changes, options, says in BAD_OPTIONS:
        with pytest.raises(SubmissionError, match=re.escape(says)):
            board.submit(**{**given, **changes}, options=options)
    assert db.execute("SELECT count(*) FROM leaderboard.submission").fetchone() == {"count": 0}
    for changes in ({"gpu_types": ["H100", "H200"]}, {"gpu_types": ["MI300"]}, {"leaderboard": "ranks"}):
        board.submit(**{**given, **changes}, options={"benchmark": 0})


@pytest.mark.parametrize("benchmarks", ["null", "{}", "1"])
def test_a_task_of_another_program_has_the_benchmarks_that_can_be_counted(
    board: Bench, db: Db, benchmarks: str
) -> None:
    """Whatever its row holds, the user reads a sentence; KernelBot stores null where its author wrote nothing."""
    db.execute(
        "UPDATE leaderboard.leaderboard SET task = jsonb_set(task, '{benchmarks}', %s::jsonb) WHERE name = 'ranks'",
        [benchmarks],
    )
    with pytest.raises(SubmissionError, match="there is no benchmark 0 on H100"):
        board.submit(leaderboard="ranks", mode="profile", gpu_types=["H100"], options={"benchmark": 0})
