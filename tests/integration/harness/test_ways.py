"""A worker chooses how its calls end, by flags or by message: whichever it chooses, and when, its times have the work.

A call by message costs a hundred times as much beside its kernel. So control calls of the one way must not stand beside
calls of the other, nor may a worker choose which control calls count.
"""

from __future__ import annotations

import pytest

from tasks.harness.judge.stopping import Timing
from tasks.harness.local import lines_of
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.support.judge_requests import request_of

REFERENCE = """
import torch


def generate_input(size, seed):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed))


def check_implementation(data, output):
    good = torch.equal(output, data + 1)
    return good, "" if good else "another output"
"""
CASE = "size: 64; seed: 3"
WORK_NS = 150_000
#: Works for so long, claims little, and ends its calls by message from some call on. Threads that come and go
#: spoil the control calls before that.
SUBMISSION = """
import sys
import threading
import time

FROM, SPOILS, CLAIM_NS = 0, False, 0
WORK_NS = 150_000
calls = 0
real = time.perf_counter_ns


def come_and_go():
    while calls < FROM:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        time.sleep(0.0005)


def custom_kernel(data):
    global calls
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ("_call_by_flags", "_call"):
        frame = frame.f_back
    worker = frame.f_locals["self"]
    until = real() + WORK_NS
    if frame.f_code.co_name == "_call_by_flags":
        calls += 1
        if SPOILS and calls == 2:
            threading.Thread(target=come_and_go, daemon=True).start()
        if calls >= FROM:
            worker._like = worker._layout = None
    output = data + 1
    while real() < until:
        pass
    return output


main = sys.modules["tasks.harness.worker.main"]
main.perf_counter_ns = lambda: real() // 1_000_000 * CLAIM_NS if CLAIM_NS else real()
"""


@pytest.mark.alone
@pytest.mark.parametrize("spoils", [False, True], ids=["", "spoils control calls"])
@pytest.mark.parametrize("first", [1, 2, 50, 98, 1000])
def test_calls_that_change_their_way_have_all_of_their_work(
    processes: ForkedJudges, first: int, *, spoils: bool
) -> None:
    """Whether they claim little or the truth."""
    for claim_ns in (0, 1):
        submission = SUBMISSION.replace(
            "FROM, SPOILS, CLAIM_NS = 0, False, 0", f"FROM, SPOILS, CLAIM_NS = {first}, {spoils}, {claim_ns}"
        )
        timing = Timing(min_runs=100, max_runs=100)
        request = request_of(REFERENCE, submission, CASE, "leaderboard", timing=timing)
        (step,) = processes.evaluate(request).steps
        assert step.judged is not None
        if step.judged.verdict == "rejected":
            assert "on the judge's clock" in str(step.judged.message)
            continue
        assert step.judged.verdict == "accepted", step.judged
        times = [value for key, value in lines_of(step).items() if key.endswith(".0.mean")]
        assert times
        assert min(map(float, times)) >= 0.9 * WORK_NS, step.judged.details["cases"]


#: What the worker does while the judge waits for it to take a call. Each makes some thread of the judge work.
BURDENS = {
    # A read and a wake for each byte.
    "packets": "fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT); [os.write(1, b'x') for _ in range(40_000)]",
    "large answers": "PADDING[0] = [[]] * 300_000",
    "no answer": "time.sleep(0.3)",
}
BURDENED = """
import fcntl, os, sys, time

CALLS, PADDING = [0], [None]
main = sys.modules["tasks.harness.worker.main"]
build, encode = main.Worker._build_inputs, main.encode


def burdened(self, *args):
    if 3 < CALLS[0] <= 10:
        BURDEN
    return build(self, *args)


def padded(message, **more):
    padding, PADDING[0] = PADDING[0], None
    return encode(message if padding is None else message | {"padding": padding}, **more)


main.Worker._build_inputs, main.encode = burdened, padded


def custom_kernel(data):
    CALLS[0] += 1
    return data + 1
"""


@pytest.mark.alone
@pytest.mark.parametrize("burden", BURDENS)
def test_what_a_worker_makes_the_judge_do_ends_no_case(processes: ForkedJudges, burden: str) -> None:
    """The calls of a case are as many as without it."""
    timing = Timing(min_runs=30, max_runs=30, max_wall_s=0.6)
    submission = BURDENED.replace("BURDEN", BURDENS[burden])
    request = request_of(REFERENCE, submission, CASE, "leaderboard", timing=timing)
    (step,) = processes.evaluate(request).steps
    assert step.judged is not None
    assert step.judged.verdict == "accepted", step.judged
    assert step.judged.details["cases"][0]["stopped"] == "runs", step.judged.details["cases"]
