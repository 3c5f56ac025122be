"""Tasks written for a CUDA device, unchanged, on a host without one: the real daemon, with a type that emulates it.

The folder is a third party's: its eval program, its reference and its submissions name `cuda` and never ask.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from runner.base.model import Verdict
from runner.store.records import JobView
from tests.plugins.live import ROOT, LiveRunner, live_runner

TASK = ROOT / "tests" / "fixtures" / "cuda_task"
BOARDS = ("program", "builtin")


@pytest.fixture(scope="module")
def live(
    create_database: Callable[[str | None], str], migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveRunner]:
    """A daemon whose CPU type emulates CUDA, with a task under its own eval program and the built-in harness."""
    folder = tmp_path_factory.mktemp("emulation")
    overlay = folder / "gpus.d"
    overlay.mkdir()
    (overlay / "CPU.toml").write_text('extends = "CPU"\nname = "CPU"\nmemory_gib = 2.0\nemulate_cuda = true\n')
    judged = shutil.copytree(TASK, folder / "cuda_task")
    (judged / "runner.yml").write_text("harness: builtin\n")
    with live_runner(
        create_database(migrated_template), gpus_dir=str(overlay), build_timeout_s=60, warm_containers=0
    ) as runner:
        runner.board(TASK, name="program")
        runner.board(judged, name="builtin")
        yield runner


def evaluate(live: LiveRunner, board: str, file: str, mode: str = "test") -> tuple[JobView, ...]:
    """Submit a file of the task's; its jobs."""
    return live.wait(live.submit(board, (TASK / "solutions" / file).read_bytes(), mode=mode)).jobs


@pytest.mark.parametrize("board", BOARDS)
def test_a_right_submission_passes_and_its_result_says_what_it_is_worth(live: LiveRunner, board: str) -> None:
    """Its row names the emulation, and no time but a claimed one."""
    (job,) = evaluate(live, board, "correct/one_pass.py", "benchmark")
    assert job.verdict is Verdict.ACCEPTED, job.error
    (run,) = job.runs
    assert run.score_s is None
    assert run.result is not None
    assert all(float(run.result[f"benchmark.{index}.mean"]) > 0 for index in range(2))
    assert run.system_info["gpu"] == "CUDA, emulated on the CPU"
    assert run.system_info["runner"]["emulated"] == "cuda"
    assert run.system_info["runner"]["assurance"]["timing"] == "claimed"


@pytest.mark.parametrize(("board", "file"), [("program", "wrong/no_weight.py"), ("builtin", "wrong/on_the_host.py")])
def test_wrong_submissions_are_refused(live: LiveRunner, board: str, file: str) -> None:
    """Wrong numbers, and right ones on the wrong side."""
    (job,) = evaluate(live, board, file)
    assert job.verdict is Verdict.WRONG_ANSWER, job.error


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("wrong/two_devices.py", "on the same device"),
        ("refused/graph.py", "torch.cuda.CUDAGraph needs a CUDA device"),
        ("refused/inline_cuda.py", "building the CUDA extension 'rows' needs a CUDA device"),
    ],
)
def test_what_needs_a_device_ends_with_a_sentence_that_says_so(live: LiveRunner, file: str, sentence: str) -> None:
    """The submission's error, in its own words."""
    (job,) = evaluate(live, "builtin", file)
    assert job.verdict is Verdict.RUNTIME_ERROR
    assert sentence in (job.error or "")


@pytest.mark.parametrize("board", BOARDS)
def test_nothing_is_ranked(live: LiveRunner, board: str) -> None:
    """A ranked submission ends as invalid, public and secret job, before anything runs; the ranking stays empty."""
    jobs = evaluate(live, board, "correct/one_pass.py", "leaderboard")
    assert [(job.verdict, job.runs) for job in jobs] == [(Verdict.INVALID, ())] * 2
    assert "nothing is ranked there" in (jobs[0].error or "")
    assert live.store.ranking(board, None) == []
