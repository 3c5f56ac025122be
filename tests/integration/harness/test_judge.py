"""Judge and worker as real processes: every ending a submission can have, and what it is told."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace

import pytest

from sandbox.protocol import StepResult
from tasks.harness.judge.request import Floor
from tasks.harness.local import JudgeFailed, Pair, evaluate, lines_of
from tests.support.waiting import PATIENCE_S

from .conftest import Run, make_request, message_of, verdict_of

#: submission, task, request fields, verdict, part of the sentence
ENDINGS: tuple[tuple[str, str, dict[str, object], str, str], ...] = (
    ("add_wrong", "add", {}, "wrong_answer", "test 1 of 2: mismatch at"),
    ("exit_at_import", "add", {}, "runtime_error", "exit(0)"),
    ("os_exit_at_import", "add", {}, "runtime_error", "exit code 0 while the submission was being imported"),
    ("segfault", "add", {}, "runtime_error", "signal 11 (SIGSEGV)"),
    ("no_kernel", "add", {}, "runtime_error", "no function custom_kernel"),
    ("syntax_error", "add", {}, "compile_error", "SyntaxError"),
    ("infinite_loop", "add", {"timeout_s": 1.0}, "time_limit", "did not finish within 1 s"),
    ("loop_at_import", "add", {"build_timeout_s": 1.0}, "time_limit", "longer than 1 s"),
    ("flood", "add", {}, "output_limit", "64 MiB"),
    ("wrong_shape", "add", {}, "wrong_answer", "could not be compared: RuntimeError: The size of tensor"),
    ("returns_none", "add", {}, "wrong_answer", "could not be compared"),
    ("returns_object", "add", {}, "wrong_answer", "returned a Result"),
    ("background_thread", "add", {}, "wrong_answer", "mismatch"),
    ("writes_everywhere", "add", {}, "rejected", "harness's own channel"),
    ("forges_done", "add", {}, "rejected", "harness's own channel"),
    ("inplace_untouched", "inplace", {"tests": ("size: 16; seed: 1",)}, "wrong_answer", "wrong values"),
    ("double_right", "broken_check", {"tests": ("size: 16; seed: 1",)}, "invalid", "check_implementation raised"),
    ("add_right", "add", {"tests": ("size: -1; seed: 1",)}, "invalid", "generate_input raised"),
    ("add_right", "add", {"tests": ("world_size: 8; seed: 1",)}, "invalid", "expected none"),
    ("add_right", "add", {"tests": ("size: 100000; seed: 1",), "memory_bytes": 1 << 20}, "invalid", "smaller cases"),
)


@pytest.mark.parametrize("ending", ENDINGS, ids=[f"{e[0]}-{e[1]}-{e[3]}" for e in ENDINGS])
def test_ending(judge: Run, ending: tuple[str, str, dict[str, object], str, str]) -> None:
    """Each bad ending gets its verdict and a sentence, and no later mode is run."""
    submission, task, fields, verdict, sentence = ending

    report = judge(submission, task, modes=("test", "benchmark"), **fields)

    assert [step.name for step in report.steps] == ["test"]
    step = report.steps[0]
    assert (verdict_of(step), lines_of(step).get("check")) == (verdict, "fail"), message_of(step)
    assert sentence in message_of(step)
    assert step.exit_code == (114 if verdict == "time_limit" else 112)
    assert step.timed_out == (verdict == "time_limit")
    assert step.output_limit == (verdict == "output_limit")


@pytest.mark.parametrize("second", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("first", "verdict", "sentence"),
    [(1, "wrong_answer", "test 1 of 2: mismatch"), (2, "runtime_error", "test 1 of 2: ValueError: broken")],
)
def test_the_first_of_two_failures_is_the_verdict(
    judge: Run, first: int, verdict: str, sentence: str, second: int
) -> None:
    """So are the sentence and what the step says; the report has both."""
    tests = (f"size: {first}; seed: 1", f"size: {second}; seed: 2")

    (step,) = judge("fails_by_size", tests=tests, timeout_s=2.0 if second == 3 else PATIENCE_S).steps

    assert verdict_of(step) == verdict
    assert message_of(step).startswith(sentence)
    assert (step.exit_code, step.timed_out, step.output_limit) == (112, False, False)
    assert [lines_of(step)[f"test.{index}.status"] for index in range(2)] == ["fail", "fail"]


def test_right_submission_passes_every_mode(judge: Run) -> None:
    """A right submission is accepted in test, benchmark and leaderboard mode, with every key of the contract."""
    report = judge(
        "add_right",
        modes=("test", "benchmark", "leaderboard"),
        benchmarks=("size: 1024; seed: 21", "size: 2048; seed: 22"),
    )

    assert [(step.name, verdict_of(step), step.exit_code) for step in report.steps] == [
        ("test", "accepted", 0),
        ("benchmark", "accepted", 0),
        ("leaderboard", "accepted", 0),
    ]
    assert lines_of(report.steps[0]) == {
        "test-count": "2",
        "test.0.spec": "size: 64; seed: 11",
        "test.0.status": "pass",
        "test.1.spec": "size: 257; seed: 12",
        "test.1.status": "pass",
        "check": "pass",
    }
    for step in report.steps[1:]:
        _check_benchmark(step)
    facts = report.steps[0].judged
    assert facts is not None
    assert set(facts.details["system"]) == {*("gpu", "device_count", "cpu", "runtime", "platform", "torch", "hostname")}
    assert report.progress[0] == ("build", 0, 1)
    assert ("leaderboard", 2, 2) in report.progress


def _check_benchmark(step: StepResult) -> None:
    assert step.judged is not None
    # Additions of microseconds are less than what the hand-over differs by: their times are the judge's.
    assert step.judged.assurance == {"correctness": "judge", "timing": "measured"}
    assert lines_of(step)["benchmark-count"] == "2"
    assert lines_of(step)["check"] == "pass"
    for index in range(2):
        values = {
            key: lines_of(step)[f"benchmark.{index}.{key}"]
            for key in ("runs", "mean", "std", "err", "best", "worst", "median", "p10", "p25", "p90", "ci95")
        }
        # The calls of all timings count together where that is closer.
        assert 3 <= int(values["runs"]) <= 100 * (1 + step.judged.details["cases"][index]["timed_again"])
        assert 0 < float(values["best"]) <= float(values["p10"]) <= float(values["p25"]) <= float(values["median"])
        assert float(values["median"]) <= float(values["p90"]) <= float(values["worst"])
        low, high = json.loads(values["ci95"])
        assert low <= float(values["median"]) <= high
        assert f"benchmark.{index}.status" not in lines_of(step)
        assert lines_of(step)[f"benchmark.{index}.runner.timing"] == "measured"
        low, high = json.loads(lines_of(step)[f"benchmark.{index}.runner.interval"])
        assert 0 <= low <= float(values["mean"]) <= high
    assert [case["checked"] >= 4 for case in step.judged.details["cases"]] == [True, True]


def test_nothing_secret_in_the_worker() -> None:
    """Neither seeds nor reference nor expected outputs are in the worker's memory, modules or environment.

    Judge and worker are interpreters of their own, as for task authors.
    """
    report = evaluate(make_request("searches_secrets", tests=("size: 999; seed: 987654321",), seed=1357913579))

    step = report.steps[0]
    assert verdict_of(step) == "accepted", message_of(step)
    assert step.stdout.splitlines() == [
        "environment []",
        "expected outputs 0",
        "modules []",
        "seed 0",
        "case seed 0",
        "reference 0",
        "control True",
    ]


def test_a_time_below_its_floor_is_rejected(judge: Run) -> None:
    """The case is named with time, floor and limit; it has no time that could count, and the ranked run is not made."""
    report = judge(
        "add_right",
        modes=("benchmark", "leaderboard"),
        benchmarks=("size: 1024; seed: 21", "size: 2048; seed: 22", "size: 4096; seed: 23"),
        floors=(None, Floor(ns=60e9, limit="memory", why="a minute"), Floor(ns=1, limit="math", why="nothing")),
    )
    (step,) = report.steps
    assert (step.name, verdict_of(step)) == ("benchmark", "rejected")
    assert message_of(step).startswith("benchmark 2 of 3: its mean time of ")
    assert message_of(step).endswith(" µs is impossible: the case needs at least 60 s for memory (a minute)")
    assert lines_of(step)["benchmark.1.status"] == "fail"
    assert [f"benchmark.{index}.mean" in lines_of(step) for index in range(3)] == [True, False, True]


def test_what_was_printed_before_a_failed_import_is_kept(judge: Run) -> None:
    """Standard output is buffered in the worker; a failure must not lose it."""
    step = judge("prints_and_breaks").steps[0]

    assert (verdict_of(step), step.stdout) == ("runtime_error", "reached the table of shapes\n")


def test_output_is_captured_and_cleaned(judge: Run) -> None:
    """NUL and bytes that are no UTF-8 are replaced; each mode gets its own output."""
    report = judge("prints", modes=("test", "benchmark"), tests=("size: 8; seed: 1",))

    test, benchmark = report.steps
    assert test.stdout == "imported\nnul \ufffd and bad \ufffd bytes\n"
    assert test.stderr == "to stderr\n"
    assert test.stdout_bytes == len(b"imported\nnul \0 and bad \xff bytes\n")
    assert "imported" not in benchmark.stdout
    assert "nul \ufffd" in benchmark.stdout


def test_traceback_shows_the_submission_only(judge: Run) -> None:
    """A traceback names the submission's frames and none of the harness's."""
    step = judge("raises").steps[0]

    assert (verdict_of(step), message_of(step)) == ("runtime_error", "test 1 of 2: ValueError: no such kernel")
    assert "in helper" in step.stderr
    assert "submission.py" in step.stderr
    assert "harness" not in step.stderr
    assert lines_of(step)["test.0.status"] == lines_of(step)["test.1.status"] == "fail"


def test_output_buffer_among_the_inputs(judge: Run) -> None:
    """A kernel that writes to the buffer it is given and returns it is right, timed and audited."""
    report = judge(
        "inplace_right",
        "inplace",
        modes=("test", "leaderboard"),
        tests=("size: 33; seed: 1",),
        benchmarks=("size: 64; seed: 2",),
    )

    assert [verdict_of(step) for step in report.steps] == ["accepted", "accepted"], message_of(report.steps[-1])


def test_views_strides_and_scalars_survive(judge: Run) -> None:
    """Aliasing, strides, dict inputs, list outputs and scalars arrive as the task made them."""
    report = judge("generator_right", "generator", tests=("shape: (4, 5); flag: True; seed: 1",))

    assert verdict_of(report.steps[0]) == "accepted", message_of(report.steps[0])


def test_profile(judge: Run) -> None:
    """Each profile mode reports a table and leaves a trace that opens."""
    report = judge("add_right", modes=("profile.0", "profile.1"))

    assert [(step.name, verdict_of(step)) for step in report.steps] == [
        ("profile.0", "accepted"),
        ("profile.1", "accepted"),
    ]
    result = lines_of(report.steps[0])
    assert result["benchmark-count"] == "1"
    assert "aten::add" in base64.b64decode(result["benchmark.0.report"]).decode()
    names = [(name, kind) for name, kind, _ in report.artifacts]
    assert names == [(f"profile.{i}.trace.json.gz", "application/gzip") for i in range(2)]
    assert json.loads(gzip.decompress(report.artifacts[0][2]))["traceEvents"]


def test_facts_without_a_mode(judge: Run) -> None:
    """A request without modes is answered by one step with the machine's facts, after a call of the worker."""
    report = judge("add_right", modes=())

    assert [step.name for step in report.steps] == ["facts"]
    judged = report.steps[0].judged
    assert judged is not None
    assert judged.verdict == "accepted"
    assert judged.details["round_trip_ns"] > 0
    assert judged.details["system"]["runtime"] == "CPU"


def test_a_judge_without_a_device_does_not_judge_on_the_cpu() -> None:
    """The task would make its inputs there. The error is the host's: the verdict is an internal error."""
    request = replace(make_request("add_right"), device="cuda")
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    with Pair(environment=hidden) as pair, pytest.raises(JudgeFailed, match="this process cannot use device 'cuda'"):
        pair.run(request)
