"""Tasks of several ranks in real containers: gloo without a network, two uids, no rank left behind."""

from __future__ import annotations

from dataclasses import replace

from runner.base.model import JobResult, Verdict
from runner.evaluation.evaluate import Evaluator
from runner.task_format import load_folder
from sandbox.host.engine import DockerEngine
from tests.integration.evaluation.conftest import evaluate
from tests.plugins.live import ROOT
from tests.unit import samples

FOLDER = ROOT / "tasks" / "problems" / "amd_gemm_rs"
RIGHT = (FOLDER / "templates" / "torch_collective.py").read_text()
#: Put before a right submission: whether the workers alone listen, besides what the ranks need for their own group.
LISTENERS = """
import os


def listeners():
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return sorted({row[7] == str(os.getuid()) for row in rows if row[3] == "0A"})


def custom_kernel(data):
    print("listening:", listeners(), flush=True)
    return right_kernel(data)
"""
HANGS = """
import torch.distributed as dist


def custom_kernel(data):
    rank = dist.get_rank()
    while rank == 1:
        pass
    dist.barrier()
"""


def judged(evaluator: Evaluator, code: str, *, timeout_s: int = 200) -> JobResult:
    """A test job on the slot of two cores."""
    return evaluate(evaluator, samples.job_on(replace(load_folder(FOLDER).task, test_timeout_s=timeout_s), code))


def test_a_right_submission_is_accepted_and_cannot_join_the_rank_checkers(evaluator: Evaluator) -> None:
    """Ranks meet over the loopback device; the judge's own group accepts no connection while a submission runs."""
    result = judged(evaluator, RIGHT.replace("custom_kernel", "right_kernel") + LISTENERS)
    assert result.verdict is Verdict.ACCEPTED, result.error
    (run,) = result.runs
    assert run.result["test-count"] == "3"
    lines = run.meta["stdout"].splitlines()
    # Three cases on two ranks; the workers' own groups go on listening.
    assert lines == ["listening: [True]"] * 6


def test_a_rank_that_hangs_is_named_and_takes_all_with_it(evaluator: Evaluator, docker_engine: DockerEngine) -> None:
    """The limit holds, the sentence says who was where, and the slot's next job is judged as if nothing had been."""
    # Both ranks need the first seconds to get there, on a busy machine many; a longer limit ends them in the same way.
    for timeout_s in (3, 15, 50):
        result = judged(evaluator, HANGS, timeout_s=timeout_s)
        assert result.verdict is Verdict.TIME_LIMIT
        if "rank 0 waited" in (result.error or ""):
            break
    assert "rank 1 was at submission.py:" in (result.error or "")
    assert "rank 0 waited for the others at submission.py:9" in (result.error or "")
    assert judged(evaluator, RIGHT).verdict is Verdict.ACCEPTED
    evaluator.close()
    assert docker_engine.reap() == 0
