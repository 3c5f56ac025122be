"""From reports and endings to verdicts, scores and rows; what a container says is checked, not believed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runner.base.errors import EvaluationError
from runner.base.gpu_types import Dtype, Figures, GpuType
from runner.base.model import Demand, JobResult, Mode, TimingAssurance, Verdict
from runner.evaluation.result_rows import Evidence, limit_lines, within
from runner.task_format.model import Extra, Harness, Ranking, Task
from sandbox.protocol import AuthorExit, StepResult
from sandbox.spec import Ending, Outcome
from tasks.harness.judge.report import CaseReport
from tests.unit import samples

TEST_PASS = {"test-count": "2", "test.0.spec": "a", "test.0.status": "pass", "test.1.status": "pass", "check": "pass"}
BENCH_PASS = {"benchmark-count": "2", "benchmark.0.mean": "1000", "benchmark.1.mean": "4000", "check": "pass"}


TESTED = tuple(CaseReport(spec=spec, status="pass") for spec in "ab")


def timed(
    *means_ns: float, assurances: tuple[str, ...] = (), intervals: tuple[tuple[float, float], ...] = ()
) -> tuple[CaseReport, ...]:
    """What the judge reports of benchmarks with these means, audited and without intervals unless given."""
    filled = itertools.zip_longest(means_ns, assurances, intervals)
    return tuple(
        CaseReport(spec="n: 1", timing=samples.timing(mean, assurance=assurance or "audited", interval=interval))
        for mean, assurance, interval in filled
    )


TIMED = timed(1000.0, 4000.0)


def decided(
    steps: tuple[StepResult, ...],
    *,
    task: Task | None = None,
    mode: Mode = Mode.LEADERBOARD,
    outcome: Outcome | None = None,
    ok: bool | None = True,
    message: str | None = None,
    gpu: GpuType = samples.CPU,
    demand: Demand | None = None,
    secret: bool = False,
    author_exit: AuthorExit | None = None,
) -> JobResult:
    """The result of a job that reported these steps; the task's harness is its own program unless given."""
    task = task or samples.task(harness=Harness.PROGRAM)
    job = replace(samples.job(mode=mode, secret=secret), demand=demand or Demand())
    evidence = Evidence(
        steps=steps,
        artifacts=(),
        ok=ok,
        message=message,
        author_exit=author_exit,
        outcome=outcome or samples.outcome(),
        request_offset_ns=100,
        system={"gpu": "CPU", "hostname": "h"},
        runner={"host": "h"},
    )
    return samples.submission(samples.context(task, job=job, gpu=gpu)).judge(evidence)


def chain(leaderboard: Mapping[str, str] = BENCH_PASS) -> tuple[StepResult, ...]:
    """A passed leaderboard chain of a third-party program."""
    return (
        samples.step("compile", {}),
        samples.step("test", TEST_PASS),
        samples.step("benchmark", BENCH_PASS),
        samples.step("leaderboard", leaderboard),
    )


@pytest.mark.parametrize(
    ("ranking", "mode", "means", "score_s"),
    [
        (Ranking.MEAN, Mode.LEADERBOARD, (1000, 4000), 2500e-9),
        (Ranking.GEOM, Mode.LEADERBOARD, (1000, 4000), 2000e-9),
        # Only one line was sent, so one comes back.
        (Ranking.LAST, Mode.LEADERBOARD, (3000,), 3000e-9),
        (Ranking.GEOM, Mode.PRIVATE, (1000, 4000), None),
    ],
)
def test_scores_follow_the_ranking_rule(
    ranking: Ranking, mode: Mode, means: tuple[int, ...], score_s: float | None
) -> None:
    """Arithmetic or geometric mean over all benchmarks, or the last one; the secret chain of mode private has none.

    In seconds, on the leaderboard row alone.
    """
    lines = {f"benchmark.{index}.mean": str(mean) for index, mean in enumerate(means)}
    lines |= {"benchmark-count": str(len(means)), "check": "pass"}
    steps = (samples.step("test", TEST_PASS), samples.step("benchmark", lines), samples.step("leaderboard", lines))
    result = decided(steps, task=samples.task(harness=Harness.PROGRAM, ranking_by=ranking), mode=mode)
    assert result.verdict is Verdict.ACCEPTED
    assert [run.mode for run in result.runs] == ["test", "benchmark", "leaderboard"]
    assert [run.score_s for run in result.runs] == [None, None, None if score_s is None else pytest.approx(score_s)]


@pytest.mark.parametrize(
    ("leaderboard", "words"),
    [
        ({"benchmark-count": "0", "check": "pass"}, "0 benchmarks"),
        ({"check": "pass"}, "None benchmarks"),
        ({**BENCH_PASS, "benchmark-count": "3"}, "3 benchmarks"),
        ({**BENCH_PASS, "benchmark-count": "9" * 40}, "None benchmarks"),
        ({**BENCH_PASS, "benchmark.0.mean": "0"}, "mean '0'"),
        ({**BENCH_PASS, "benchmark.0.mean": "-5"}, "mean '-5'"),
        ({**BENCH_PASS, "benchmark.0.mean": "1e-320"}, "mean '1e-320'"),
        ({**BENCH_PASS, "benchmark.1.mean": "nan"}, "mean 'nan'"),
        ({**BENCH_PASS, "benchmark.1.mean": "inf"}, "mean 'inf'"),
        ({**BENCH_PASS, "benchmark.1.mean": "fast"}, "mean 'fast'"),
        ({**BENCH_PASS, "benchmark.1.mean": "9e12"}, "longer than"),
    ],
)
def test_a_pass_with_impossible_numbers_is_rejected(leaderboard: dict[str, str], words: str) -> None:
    """In-process results can be forged; what cannot be true is not believed and gets no score."""
    result = decided(chain(leaderboard))
    assert result.verdict is Verdict.REJECTED
    assert words in (result.error or "")
    assert result.runs[2].score_s is None
    assert not result.runs[2].passed


_OFF = {"test-count": "2", "test.1.spec": "n: 5", "test.1.status": "fail", "test.1.error": "off by one"}


@pytest.mark.parametrize(
    ("lines", "end", "verdict", "words"),
    [
        (_OFF, {"exit_code": 112}, Verdict.WRONG_ANSWER, "case 1 (n: 5): off by one"),
        # What a forger writes.
        ({"check": "pass"}, {}, Verdict.REJECTED, "None tests"),
        ({"check": "fail"}, {"exit_code": 0}, Verdict.WRONG_ANSWER, "check: fail"),
        ({}, {"exit_code": 0}, Verdict.RUNTIME_ERROR, "exit code 0 without a result"),
        ({}, {"exit_code": None, "signal": 11}, Verdict.RUNTIME_ERROR, "signal 11"),
        ({}, {"exit_code": 113}, Verdict.INVALID, "could not read its cases"),
        ({"test-count": "2"}, {"exit_code": 113}, Verdict.RUNTIME_ERROR, "exit code 113"),
        (TEST_PASS, {"exit_code": None, "timed_out": True}, Verdict.TIME_LIMIT, "time limit"),
        (TEST_PASS, {"exit_code": None, "output_limit": True}, Verdict.OUTPUT_LIMIT, "bytes of output"),
    ],
)
def test_what_an_eval_program_did_decides_the_verdict(
    lines: dict[str, str], end: dict[str, Any], verdict: Verdict, words: str
) -> None:
    """The result lines, limits and signals are the evidence; an exit code alone is none."""
    result = decided((samples.step("compile", {}), samples.step("test", lines, **end)), mode=Mode.TEST)
    assert result.verdict is verdict
    assert words in (result.error or "")
    assert not result.runs[0].passed


def test_a_timeout_leaves_an_empty_result_and_exit_code_114() -> None:
    """KernelBot's readers know a timed-out run by these. What a program writes as an error is cut in the sentence."""
    result = decided((samples.step("test", TEST_PASS, exit_code=None, timed_out=True),), mode=Mode.TEST)
    (run,) = result.runs
    assert (run.result, run.meta["exit_code"], run.meta["success"]) == ({}, 114, False)
    line = "e" * 1_000_000
    step = samples.step("test", {"test-count": "1", "test.0.status": "fail", "test.0.error": line})
    result = decided((step,), mode=Mode.TEST)
    assert len(result.error or "") <= 4000
    assert result.runs[0].result["test.0.error"] == line


def test_a_kernel_kill_for_memory_is_the_submissions_fault() -> None:
    """The cgroup's counter turns an unexplained end into memory_limit, whether or not the harness survived."""
    killed, builtin = samples.outcome(oom_kills=1), samples.task()
    words = ("runtime_error", "compile_error", "time_limit")
    own: list[tuple[Task | None, dict[str, Any]]] = [
        (None, {"exit_code": None, "signal": 9}),
        (None, {"exit_code": None, "timed_out": True}),
        *((builtin, {"judged": samples.judged(verdict=verdict)}) for verdict in words),
    ]
    for task, end in own:
        result = decided((samples.step("test", {}, **end),), task=task, mode=Mode.TEST, outcome=killed)
        assert result.verdict is Verdict.MEMORY_LIMIT
    gone = decided((), mode=Mode.TEST, outcome=samples.outcome(ending=Ending.DIED, oom_kills=2), ok=None)
    assert gone.verdict is Verdict.MEMORY_LIMIT


@pytest.mark.parametrize(("oom_kills", "how"), [(0, "exit code 0"), (1, "signal 9")])
def test_a_task_that_ended_the_judge_is_invalid_and_no_verdict_on_the_submission(oom_kills: int, how: str) -> None:
    """Also where the kernel killed the judge for memory: it kills the submission's processes first."""
    ended = AuthorExit(call="the task's generate_input", place="benchmark 2 of 4", how=how)
    task = samples.task()
    step = samples.step("test", {}, judged=samples.judged(*TESTED))
    for steps in ((), (step,)):
        result = decided(
            steps, task=task, ok=False, message="m", outcome=samples.outcome(oom_kills=oom_kills), author_exit=ended
        )
        assert result.verdict is Verdict.INVALID
        assert str(ended) in str(result.error)
        assert len(result.runs) == len(steps)


@pytest.mark.parametrize(
    ("outcome", "ok", "verdict"),
    [
        # The cgroup says that the limit on processes was met: a judge that failed then is not retried.
        (samples.outcome(pids_denied=3), False, Verdict.RUNTIME_ERROR),
        # Killed from outside with nothing reported: the whole evaluation took too long, by the wall or by its cores.
        (samples.outcome(ending=Ending.DEADLINE), None, Verdict.TIME_LIMIT),
        (samples.outcome(ending=Ending.CPU_TIME), None, Verdict.TIME_LIMIT),
    ],
)
def test_the_limits_of_a_container_are_the_submissions_fault(
    outcome: Outcome, ok: bool | None, verdict: Verdict
) -> None:
    """Whatever the harness says of its own end."""
    result = decided((), mode=Mode.TEST, outcome=outcome, ok=ok, message="no thread")
    assert result.verdict is verdict
    assert ("processes and threads" in (result.error or "")) is (verdict is Verdict.RUNTIME_ERROR)


@pytest.mark.parametrize(
    ("outcome", "ok"),
    [
        (samples.outcome(ending=Ending.DIED), None),
        (samples.outcome(ending=Ending.DIED, pids_denied=3), None),
        (samples.outcome(ending=Ending.DIED, oom_kills=None), None),
        (samples.outcome(ending=Ending.DIED, oom_kills=1, host_short=True), None),
        (samples.outcome(oom_kills=1, host_short=True), False),
        (samples.outcome(oom_kills=1, host_short=True), True),
        (samples.outcome(pids_denied=3, host_short=True), False),
        (samples.outcome(pids_denied=3, host_short=True), True),
        (samples.outcome(ending=Ending.BAD_REPORT), None),
        (samples.outcome(), False),
        (samples.outcome(), True),
    ],
)
def test_a_container_that_breaks_without_a_cause_of_the_submissions_is_our_fault(
    outcome: Outcome, ok: bool | None
) -> None:
    """No report, a broken protocol or a failed harness is retried, never held against the user."""
    with pytest.raises(EvaluationError):
        decided((), mode=Mode.TEST, outcome=outcome, ok=ok)


@pytest.mark.parametrize(
    ("broken", "verdict"),
    [
        ({"timed_out": True}, Verdict.TIME_LIMIT),
        ({"output_limit": True}, Verdict.OUTPUT_LIMIT),
        ({"result": {"check": "pass"}}, Verdict.REJECTED),
        ({"result": {"check": "fail"}}, Verdict.WRONG_ANSWER),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_what_runs_after_a_pass_that_is_none_has_no_row(number: int, broken: dict[str, Any], verdict: Verdict) -> None:
    """The container goes by the program's words; a later step has no score, which other programs might rank."""
    steps = [*chain()]
    steps[number] = replace(steps[number], **broken)
    result = decided(tuple(steps))
    assert result.verdict is verdict
    assert [run.passed for run in result.runs] == [True] * (number - 1) + [False]


def test_the_judges_word_decides_under_the_built_in_harness() -> None:
    """Verdict, sentence, assurance and system facts come from the judge."""
    details = {"system": {"gpu": "CPU", "torch": "2", "hostname": "sandbox"}, "bound_ns": 5}
    failed = CaseReport(spec="b", status="fail", error="off\nby one")
    judged = samples.judged(
        TESTED[0], failed, verdict="wrong_answer", message="case 1 is wrong", announced=3, details=details
    )
    step = samples.step("test", {}, judged=judged)
    result = decided((step,), task=samples.task(), mode=Mode.TEST)
    assert (result.verdict, result.error) == (Verdict.WRONG_ANSWER, "case 1 is wrong")
    assert result.report["assurance"] == {"correctness": "judge", "timing": "audited"}
    assert (result.runs[0].system_info["torch"], result.runs[0].system_info["hostname"]) == ("2", "h")
    assert result.report["steps"][0]["judged"]["details"] == {"bound_ns": 5}
    assert result.runs[0].result == {
        "test-count": "3",
        "test.0.spec": "a",
        "test.0.status": "pass",
        "test.1.spec": "b",
        "test.1.status": "fail",
        "test.1.error": "off\\nby one",
        "check": "fail",
    }


FAILED = CaseReport(spec="b", status="fail", error="off by one")


@pytest.mark.parametrize(
    ("cases", "more", "words"),
    [
        (TESTED, {"verdict": "splendid"}, "unknown verdict 'splendid'"),
        (TESTED, {"verdict": "internal_error", "message": "broke"}, "broke"),
        (TESTED[:1], {}, "1 cases, 0 of them failed, where 2"),
        (TESTED[:1], {"announced": 2}, "1 cases, 0 of them failed, where 2"),
        ((TESTED[0], FAILED), {}, "2 cases, 1 of them failed, where 2"),
        *((TESTED, {"announced": number}, f"2 of {number} cases") for number in (1, -1)),
        (TESTED, {"announced": 3}, "3 tests where 2 were asked for"),
    ],
)
def test_a_judge_that_contradicts_itself_is_our_fault(
    cases: tuple[CaseReport, ...], more: dict[str, Any], words: str
) -> None:
    """No verdict, an unknown one, other cases than were asked for or announced, or failed ones: the harness broke."""
    for step, match in (
        (samples.step("test", {}, judged=samples.judged(*cases, **more)), words),
        (samples.step("test", TEST_PASS), "without the judge's verdict"),
    ):
        with pytest.raises(EvaluationError, match=match):
            decided((step,), task=samples.task(), mode=Mode.TEST)


def judged_chain(timing: str, leaderboard: tuple[CaseReport, ...] = TIMED) -> tuple[StepResult, ...]:
    """A passed leaderboard chain of the built-in harness, whose ranked times are worth so much."""
    return (
        samples.step("test", {}, judged=samples.judged(*TESTED)),
        samples.step("leaderboard", {}, judged=samples.judged(*leaderboard, timing=timing)),
    )


def test_the_judges_ranked_calls_are_its_benchmark_too() -> None:
    """Two rows with the same times; only the ranked one has the score, and the calls' time counts once.

    Where they fail there is one row for them, as with KernelBot, whose ranked run does not begin after that.
    """
    result = decided(judged_chain("audited"), task=samples.task())
    assert [run.mode for run in result.runs] == ["test", "benchmark", "leaderboard"]
    _, benchmark, leaderboard = result.runs
    assert benchmark.result == leaderboard.result
    assert (benchmark.passed, benchmark.score_s) == (True, None)
    assert leaderboard.score_s == pytest.approx(2000e-9)
    assert result.eval_ns == sum(step.duration_ns for step in judged_chain("audited"))
    wrong = samples.judged(TIMED[0], verdict="wrong_answer", message="benchmark 2 of 2: wrong", announced=2)
    result = decided((judged_chain("audited")[0], samples.step("leaderboard", {}, judged=wrong)), task=samples.task())
    assert (result.verdict, result.error) == (Verdict.WRONG_ANSWER, "benchmark 2 of 2: wrong")
    assert [(run.mode, run.passed) for run in result.runs] == [("test", True), ("benchmark", False)]


CLAIMED = timed(1000.0, 4000.0, assurances=("claimed",))
UNBOUNDED = timed(1000.0, 4000.0, intervals=((0.0, 2.0),))
MEASURED = timed(1000.0, 4000.0, assurances=("audited", "measured"), intervals=((990.0, 1010.0), (3600.0, 4500.4)))


@pytest.mark.parametrize(
    ("timing", "leaderboard", "demanded", "detail"),
    [
        ("audited", TIMED, "audited", None),
        ("measured", TIMED, "measured", None),
        ("audited", TIMED, "measured", None),
        ("claimed", TIMED, "claimed", None),
        ("claimed", TIMED, "measured", "the judge's clock cannot vouch for it"),
        ("splendid", TIMED, "measured", "the judge's clock cannot vouch for it"),
        ("audited_host", TIMED, "measured", "the host's work is part of what the judge's clock has seen"),
        ("audited_host", TIMED, "audited", "the host's work is part of what the judge's clock has seen"),
        ("measured", TIMED, "audited", "the judge's clock cannot bound it more closely, and the board asks for 5 %"),
        (
            "measured",
            MEASURED,
            "audited",
            "the judge's clock puts benchmark 1 between 3.6 µs and 4.5 µs, and the board asks for 5 %",
        ),
        # The word on the whole is held against the word on each case.
        ("audited", MEASURED, "measured", None),
        ("audited", CLAIMED, "measured", "the judge's clock cannot vouch for it"),
        ("measured", UNBOUNDED, "audited", "the judge's clock cannot bound it more"),
    ],
)
def test_a_time_below_the_demand_passes_without_a_score(
    timing: str, leaderboard: tuple[CaseReport, ...], demanded: str, detail: str | None
) -> None:
    """It is accepted and stored; what the score would be, and why it is none, goes with the row."""
    demand = Demand(timing=TimingAssurance(demanded), tolerance=0.05)
    result = decided(judged_chain(timing, leaderboard), task=samples.task(), demand=demand)
    assert result.verdict is Verdict.ACCEPTED
    run = result.runs[2]
    assert run.passed
    assert run.result["benchmark.0.mean"] == "1000.0"
    withheld = run.system_info["runner"].get("unranked")
    if detail is None:
        assert run.score_s == pytest.approx(2000e-9)
        assert withheld is None
    else:
        assert run.score_s is None
        assert withheld["score_s"] == pytest.approx(2000e-9)
        assert withheld["detail"].startswith(detail)


def test_a_row_is_worth_as_little_as_its_least_case() -> None:
    """In the row and in the report; an unknown word counts as claimed.

    Public times rank, so nothing is held back of the secret job, whose row shows no system info of its own.
    """
    result = decided(judged_chain("audited", MEASURED), task=samples.task())
    assert result.runs[2].system_info["runner"]["assurance"] == {"correctness": "judge", "timing": "measured"}
    assert result.report["assurance"]["timing"] == "measured"
    odd = decided(judged_chain("audited", timed(1.0, 4.0, assurances=("notarised",))), task=samples.task())
    assert odd.runs[2].system_info["runner"]["assurance"]["timing"] == "claimed"
    demand = Demand(timing=TimingAssurance.AUDITED)
    run = decided(judged_chain("claimed"), task=samples.task(), demand=demand, secret=True).runs[2]
    assert run.score_s == pytest.approx(2000e-9)
    assert "unranked" not in run.system_info["runner"]


def test_a_third_party_program_does_not_rank_where_times_must_be_measured() -> None:
    """Whatever it writes of its own times; on a board that demands nothing it ranks, as claimed."""
    forged = {**BENCH_PASS, **{f"benchmark.{index}.runner.timing": "audited" for index in range(2)}}
    # Nor is anything said of the speed of light, without work or rates.
    forged["benchmark.0.sol"] = "0.99"
    for demanded in (TimingAssurance.MEASURED, TimingAssurance.AUDITED):
        run = decided(chain(forged), demand=Demand(timing=demanded)).runs[2]
        assert (run.passed, run.score_s) == (True, None)
        said = run.system_info["runner"]["unranked"]["detail"]
        assert said == "the task's own eval program took it, in one process with the submission"
    run = decided(chain(forged)).runs[2]
    assert run.score_s == pytest.approx(2000e-9)
    assert run.system_info["runner"]["assurance"] == {"correctness": "in_process", "timing": "claimed"}
    assert dict(run.result) == BENCH_PASS


def test_a_row_is_what_kernelbots_own_tools_read() -> None:
    """Meta key by key; times are offsets. A Python task has a compilation exactly when an extension was built."""
    run = decided(chain()).runs[0]
    assert set(run.meta) == {"stdout", "stderr", "success", "exit_code", "command", "duration"}
    assert (run.meta["duration"], run.start_offset_ns, run.end_offset_ns) == (1.0, 110, 1_000_000_110)
    assert run.compilation is None
    built = samples.step("compile", {}, stdout="c++ -DTORCH_EXTENSION_NAME=x ...\n")
    compilation = decided((built, *chain()[1:])).runs[0].compilation
    assert compilation is not None
    assert (compilation["nvcc_found"], compilation["success"]) == (False, True)


def test_a_cuda_source_that_does_not_compile_is_a_compile_error() -> None:
    """No program ran; the first error line is the sentence. An image that lacks the toolkit is not the submission's."""
    steps = (
        samples.step("nvcc-version", {}, stdout="release 13.0"),
        samples.step("compile", {}, exit_code=2, stderr="note\neval.cu(3): error: no such thing\n"),
    )
    result = decided(steps, task=samples.cu_task(), mode=Mode.TEST)
    assert (result.verdict, result.runs) == (Verdict.COMPILE_ERROR, ())
    assert "no such thing" in (result.error or "")
    killed = decided(steps, task=samples.cu_task(), mode=Mode.TEST, outcome=samples.outcome(oom_kills=1))
    assert killed.verdict is Verdict.MEMORY_LIMIT, "its compiler was killed"
    with pytest.raises(EvaluationError, match="nvcc"):
        decided((samples.step("nvcc-version", {}, exit_code=127),), task=samples.cu_task(), mode=Mode.TEST)
    # Init sends each step once.
    with pytest.raises(EvaluationError, match="twice"):
        decided((samples.step("test", TEST_PASS), samples.step("test", TEST_PASS)), mode=Mode.TEST)


def test_output_is_cut_at_whole_lines_as_kernelbot_cuts_it() -> None:
    """Up to 16284 characters in whole lines, then how many lines are missing; one longer line keeps nothing."""
    assert limit_lines("a\nb\n") == "a\nb\n"
    cut = limit_lines("x" * 99 + "\n" + "y" * 20_000 + "\nz\n")
    assert cut == "x" * 99 + "\n" + "[...] 2 lines omitted"
    assert limit_lines("x" * 20_000) == "[...] 1 lines omitted"


@pytest.mark.parametrize(("count", "size"), [(1, 40 << 20), (4, 20 << 20), (60_000, 400)])
def test_results_fit_into_the_database_whatever_a_program_writes(count: int, size: int) -> None:
    """The longest texts are left out, and named: a job whose rows are refused would be evaluated again for ever."""
    lines = {"benchmark-count": "1", "benchmark.0.mean": "5"} | {
        f"text.{number}": "x" * size for number in range(count)
    }
    kept = within(lines, 1 << 20)
    assert sum(len(key) + len(text) for key, text in kept.items()) <= (1 << 20) + 2100
    assert kept["benchmark.0.mean"] == "5"
    assert kept["runner.left_out"].startswith("too long: text.")
    assert within({"a": "b"}, 1 << 20) == {"a": "b"}


#: 1e9 operations, and 1e6 bytes of which no cache can hold any.
WORK = Extra(harness=Harness.PROGRAM, flops="1e9", math=Dtype.FP32, bytes="1e6")


def lit(*, tflops: float, harness: Harness = Harness.PROGRAM) -> dict[str, Any]:
    """A task with work on a type with this rate; a thousandth of a cache."""
    figures = Figures(l2_mib=1e-6, bandwidth_gb_s=1000, peak_tflops={Dtype.FP32: tflops})
    task = samples.task(harness=harness)
    return {"task": replace(task, extra=replace(WORK, harness=harness)), "gpu": replace(samples.CPU, device=figures)}


def test_results_carry_the_speed_of_light_and_its_limit() -> None:
    """Beside every mean, in KernelBot's flat keys; what a program says of it itself is dropped."""
    forged = {**BENCH_PASS, "benchmark.0.sol": "0.99", "benchmark.1.sol_limit": "faith", "benchmark.7.sol": "3"}
    runs = decided(chain(forged), **lit(tflops=2000)).runs
    for run in runs[1:]:
        lights = {key: value for key, value in run.result.items() if ".sol" in key}
        assert lights == {
            "benchmark.0.sol": "1",
            "benchmark.0.sol_limit": "memory",
            "benchmark.1.sol": "0.25",
            "benchmark.1.sol_limit": "memory",
        }
    assert decided(chain(), **lit(tflops=1000 / 3)).runs[-1].result["benchmark.1.sol_limit"] == "math"


def test_an_impossible_time_of_a_program_is_rejected() -> None:
    """One shape below its floor is enough, whatever the geometric mean is."""
    forged = {**BENCH_PASS, "benchmark.0.mean": "5"}
    result = decided(chain(forged), **lit(tflops=1))
    assert result.verdict is Verdict.REJECTED
    assert result.error == (
        "benchmark: in benchmark 0 its mean time of 1 µs is impossible: the case needs at least 666.7 µs for math "
        "(1e+09 operations, and CPU does at most 1.5e+12 of any kind per second)"
    )
    honest = {**BENCH_PASS, "benchmark.0.mean": "700000", "benchmark.1.mean": "700000"}
    steps = [samples.step("test", TEST_PASS), samples.step("benchmark", honest)]
    result = decided((*steps, samples.step("leaderboard", {**honest, "benchmark.0.mean": "5"})), **lit(tflops=1))
    assert result.verdict is Verdict.REJECTED
    assert "in benchmark 0 its mean time of 5 ns" in (result.error or "")
    assert result.runs[2].score_s is None
    assert result.runs[2].result["benchmark.0.sol"] == "2e+05"
    assert decided((*steps, samples.step("leaderboard", honest)), **lit(tflops=1)).verdict is Verdict.ACCEPTED


def test_a_program_that_reports_fewer_cases_is_held_against_the_lowest_floor() -> None:
    """Which case its one line belongs to is not known, so nothing is said of the speed of light either."""
    one = {"benchmark-count": "1", "benchmark.0.mean": "700000", "check": "pass"}
    context = lit(tflops=1)
    context["task"] = replace(context["task"], extra=replace(WORK, flops="1e9 + (size - 100) * 1e12"))
    steps = (
        samples.step("test", TEST_PASS),
        samples.step("benchmark", {**BENCH_PASS, "benchmark.0.mean": "7e5", "benchmark.1.mean": "7e8"}),
    )
    accepted = decided((*steps, samples.step("leaderboard", one)), **context)
    assert accepted.verdict is Verdict.ACCEPTED
    assert not any(".sol" in key for key in accepted.runs[2].result)
    forged = decided((*steps, samples.step("leaderboard", {**one, "benchmark.0.mean": "6e5"})), **context)
    assert forged.verdict is Verdict.REJECTED


def test_a_judge_that_lets_an_impossible_time_pass_is_not_believed() -> None:
    """It had the same floors; something in the container is not what it should be."""
    steps = (
        samples.step("test", {}, judged=samples.judged(*TESTED)),
        samples.step("leaderboard", {}, judged=samples.judged(*TIMED)),
    )
    with pytest.raises(EvaluationError, match="the judge accepted 'benchmark', but in benchmark 0 its mean time"):
        decided(steps, **lit(tflops=1, harness=Harness.BUILTIN))
