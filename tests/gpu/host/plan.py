"""The plan: jobs through queue, daemon and containers of a host, the most telling first; what each has shown.

A step returns figures, or raises `Unlike`. Where there is no device, steps that need one are left out, and ranked jobs
run on the CPU type.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final

from runner.base.model import JobState, Verdict
from runner.extras.trainers.client import Client, Item
from runner.store.records import SubmissionView
from runner.task_format.model import SUBMISSION
from tests.acceptance.modules.problems import sent
from tests.gpu.host import submissions
from tests.gpu.host.host import PROBLEMS, Host, Unlike, bring_up, job_of
from tests.gpu.host.machine import HOME, KERNELBOT
from tests.gpu.layers import hardware_run
from tests.gpu.recording import append, read
from tests.gpu.test_attacks import ATTACKS

PASSED, FAILED, LEFT_OUT = "shown", "failed", "left out"
#: A plan ends in order within so many seconds.
_END_S: Final = 15.0
Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A part of the plan."""

    name: str
    #: What it shows, a sentence.
    shows: str
    run: Callable[[Host], Figures]
    _: KW_ONLY
    #: Seconds that it may take; it does not begin with fewer left.
    limit_s: float = 60.0
    #: Whether it needs a real device.
    device: bool = False


def solution(problem: str, name: str) -> str:
    """The text of a sample: `correct/torch_add.py`, or a template."""
    folder = PROBLEMS / problem
    path = folder / "solutions" / name
    return (path if path.exists() else folder / "templates" / name).read_text(encoding="utf-8")


def accepted(view: SubmissionView) -> SubmissionView:
    """The same, if all its jobs were accepted."""
    for job in view.jobs:
        if job.verdict is not Verdict.ACCEPTED:
            output = [(run.result or {}).get("check") or run.result for run in job.runs]
            raise Unlike(
                f"{'secret' if job.secret else 'public'} job: {job.verdict}: {job.error} {str(output)[-1500:]}"
            )
    return view


def timing_of(view: SubmissionView) -> Figures:
    """How a ranked submission was timed, and how long its jobs took."""
    job = job_of(view)
    run = job.runs[-1]
    took = [
        (each.finished_at - each.started_at).total_seconds()
        for each in view.jobs
        if each.finished_at and each.started_at
    ]
    whole_s = max(each.finished_at for each in view.jobs if each.finished_at) - min(
        each.created_at for each in view.jobs if each.created_at
    )
    return {
        "score_us": None if run.score_s is None else round(run.score_s * 1e6, 2),
        "assurance": run.system_info["runner"].get("assurance"),
        "gpu": run.system_info.get("gpu"),
        "whole_s": round(whole_s.total_seconds(), 2),
        "jobs_s": [round(each, 2) for each in took],
        "phases_ms": {name: round(ns / 1e6) for name, ns in ((job.report or {}).get("phases_ns") or {}).items()},
    }


def ranked(host: Host, problem: str, name: str, *, patience_s: float = 60.0) -> Figures:
    """A right solution is accepted, timed and ranked."""
    board = board_of(host, problem)
    view = accepted(host.evaluate(board, solution(problem, name), patience_s=patience_s))
    if not any(line.submission_id == view.status.submission_id for line in host.store.ranking(board)):
        raise Unlike(f"submission {view.status.submission_id} is not ranked: {timing_of(view)}")
    return timing_of(view)


def board_of(host: Host, problem: str) -> str:
    """The board of a problem, made where it is not there."""
    if problem not in {board.name for board in host.store.boards()}:
        host.board(PROBLEMS / problem, problem)
    return problem


def short_board(host: Host) -> str:
    """The vector addition with time limits of some seconds."""
    if "short" not in {board.name for board in host.store.boards()}:
        host.board(PROBLEMS / "vectoradd", "short", timeout_s=15)
    return "short"


def refused(host: Host, code: str, *verdicts: Verdict, mode: str = "test") -> Figures:
    """A submission that must have one of these verdicts; the host takes the next job at once."""
    view = host.evaluate(short_board(host), code, mode)
    job = job_of(view)
    if job.verdict not in verdicts:
        raise Unlike(f"{job.verdict}: {job.error}; expected {' or '.join(verdicts)}")
    began_s = time.monotonic()
    after = job_of(accepted(host.evaluate("short", solution("vectoradd", "correct/torch_add.py"), "test")))
    return {
        "verdict": job.verdict,
        "error": (job.error or "")[:300],
        "failures": job.failures,
        "next_job_s": round(time.monotonic() - began_s, 2),
        "next_job": after.verdict,
    }


def isolation(host: Host) -> Figures:
    """What a submission sees of its container, and what the daemon has attested."""
    view = accepted(host.evaluate(board_of(host, "vectoradd"), submissions.LOOKS_AROUND, "test"))
    run = job_of(view).runs[-1]
    text = json.dumps(run.result)
    line = next((str(value) for value in (run.meta or {}).values() if "LOOK" in str(value)), text)
    start = line.find("LOOK ")
    if start < 0:
        raise Unlike(f"the submission's output is not in its result: {text[:500]} {str(run.meta)[:1000]}")
    seen, _ = json.JSONDecoder().raw_decode(line[start + 5 :].replace('\\"', '"'))
    unlike = {
        key: seen[key]
        for key, expected in {"capabilities": "0" * 16, "no new rights": "1", "seccomp": "2", "root": "OSError"}.items()
        if seen[key] != expected
    }
    if unlike or seen["uid"] == 0 or seen["sockets"] == "allowed":
        raise Unlike(f"in the container: {seen}")
    return {"seen": seen, "sandbox": run.system_info["runner"].get("sandbox")}


def attack(host: Host, code: str, *, at_least_us: float | None = None) -> Figures:
    """An attack gains nothing: it is refused, or its time has its work, or its time is contradicted."""
    view = host.evaluate(board_of(host, "vectoradd"), code, "leaderboard")
    job = job_of(view)
    facts: dict[str, Any] = {"verdict": job.verdict, "error": (job.error or "")[:300]}
    if job.verdict is not Verdict.ACCEPTED:
        if job.verdict not in {Verdict.WRONG_ANSWER, Verdict.REJECTED, Verdict.RUNTIME_ERROR}:
            raise Unlike(f"{job.verdict}: {job.error}")
        return facts
    facts |= timing_of(view)
    if at_least_us is None:
        raise Unlike(f"accepted: {facts}")
    if facts["score_us"] is not None and facts["score_us"] < at_least_us:
        raise Unlike(f"{facts['score_us']} µs reported, {at_least_us:g} at least are needed: {facts}")
    return facts


def stuck_kernel(host: Host) -> Figures:
    """A kernel that outlives its time limit costs its submission, and the slot serves again without a hand."""
    figures = refused(host, submissions.STUCK_KERNEL, Verdict.TIME_LIMIT)
    return {**figures, "slots": host.rows("SELECT slots FROM runner.host")[0][0]}


def killed_daemon(host: Host) -> Figures:
    """A daemon that is killed in mid-run: the next one cleans up, the job runs again, and every row is there once."""
    board = board_of(host, "vectoradd")
    number = host.submit(board, solution("vectoradd", "correct/torch_add.py"))
    while job_of(host.store.submission(number)).state is JobState.QUEUED:
        time.sleep(0.02)
    time.sleep(1.0)
    host.kill_daemon()
    starting_s = host.start_daemon()
    view = accepted(host.wait(number))
    runs = [(run.mode, job.secret) for job in view.jobs for run in job.runs]
    if len(runs) != len(set(runs)):
        raise Unlike(f"rows more than once: {runs}")
    return {
        "starting_s": round(starting_s, 2),
        "attempts": [job.attempt for job in view.jobs],
        "rows": len(runs),
        "whole_s": timing_of(view)["whole_s"],
    }


def modules(host: Host) -> Figures:
    """Groups of eight candidates for a module, as a trainer sends them: candidates a second."""
    items = []
    for number in range(6):
        reference, codes = sent(number, size=8)
        items += [Item(reference=reference, candidate=code) for code in codes]
    with Client(host.url, gpu_type=host.gpu_type, settings={"inputs": 3, "timed_calls": 20}) as client:
        client.evaluate(items[:8])
        began_s = time.monotonic()
        results = client.evaluate(items[8:])
    took_s = time.monotonic() - began_s
    verdicts = Counter(str(result.verdict) for result in results)
    # A group has copies, faster ones, wrong ones and one that is no Python.
    if set(verdicts) - {"accepted", "wrong_answer", "compile_error", "runtime_error"} or verdicts["accepted"] < 20:
        raise Unlike(f"{dict(verdicts)}: {[result.message for result in results if result.verdict != 'accepted'][:3]}")
    phases: dict[str, float] = {}
    for (report,) in host.rows("SELECT report FROM runner.job WHERE batch_id IS NOT NULL ORDER BY id OFFSET 1"):
        for name, ns in report["phases_ns"].items():
            phases[name] = phases.get(name, 0.0) + ns / 1e6
    return {
        "candidates_per_s": round(len(results) / took_s, 2),
        "ms_per_candidate": {name: round(ms / len(results), 1) for name, ms in sorted(phases.items())},
        "timing": dict(Counter(str(result.facts["timing"]) for result in results if result.correct)),
        "verdicts": dict(verdicts),
    }


def profile(host: Host) -> Figures:
    """A profile has the report of the vendor's profiler where there is one, else torch's."""
    options = {"benchmark": 0, **({"launches": 3} if host.device else {})}
    board = board_of(host, "vectoradd")
    number = host.submit(board, solution("vectoradd", "torch_add.py"), "profile", options=options)
    job = job_of(accepted(host.wait(number)))
    names = [line.name for line in job.artifacts]
    wanted = "profile.0.ncu-rep" if host.device and shutil.which("ncu") else "profile.0.trace.json.gz"
    if wanted not in names:
        raise Unlike(f"no {wanted} among {names}: {job.runs[0].result}")
    return {"files": {line.name: line.size_bytes for line in job.artifacts}, "result": str(job.runs[0].result)[:1500]}


def five_in_a_row(host: Host) -> Figures:
    """Five ranked submissions in the queue at once: seconds each."""
    board = board_of(host, "vectoradd")
    code = solution("vectoradd", "correct/torch_add.py")
    began_s = time.monotonic()
    numbers = [host.submit(board, f"{code}\n# {number}\n") for number in range(5)]
    views = [accepted(host.wait(number)) for number in numbers]
    scores = [timing_of(view)["score_us"] for view in views]
    return {"seconds_each": round((time.monotonic() - began_s) / 5, 2), "scores_us": scores}


def kernelbot(host: Host) -> Figures:
    """KernelBot's evaluation of the same submission here, public and secret, each started as its runner does."""
    task = json.loads((HOME / "problem.json").read_text(encoding="utf-8"))
    code = solution("vectoradd", "correct/torch_add.py")
    config = {
        "lang": "py",
        "main": task["config"]["main"],
        "sources": {name: code if text == SUBMISSION else text for name, text in task["files"].items()},
        "mode": "leaderboard",
        "arch": None,
        **{key: task[key] for key in ("tests", "benchmarks", "test_timeout", "benchmark_timeout", "ranked_timeout")},
        # All benchmarks, as ours.
        "ranking_by": "geom",
        "seed": task.get("seed"),
        "multi_gpu": False,
    }
    program = (
        "import json, sys\nfrom dataclasses import asdict\nfrom libkernelbot.run_eval import run_config\n"
        "result = asdict(run_config(json.loads(sys.stdin.read())))\nprint(json.dumps(result, default=str))\n"
    )
    times = []
    with tempfile.TemporaryDirectory(prefix="kernel-runner-plan-") as folder:
        began_s = time.monotonic()
        # Public and secret run, one after the other, each in a job of its own.
        for seed in (None, 1234):
            done = subprocess.run(
                [sys.executable, "-c", program],
                input=json.dumps({**config, "seed": seed}),
                cwd=folder,
                env={**_plain_environment(), "PYTHONPATH": str(KERNELBOT)},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise Unlike(f"KernelBot's evaluation ended with {done.returncode}: {done.stderr[-1500:]}")
            runs = json.loads(done.stdout.splitlines()[-1])["runs"]
            if "leaderboard" not in runs or not runs["leaderboard"]["run"]["passed"]:
                raise Unlike(f"KernelBot's evaluation did not pass: {json.dumps(runs)[:1500]}")
            result = runs["leaderboard"]["run"]["result"]
            means = [float(result[f"benchmark.{index}.mean"]) for index in range(len(task["benchmarks"]))]
            times.append(round(statistics.geometric_mean(means) / 1e3, 2))
        kernelbot_s = time.monotonic() - began_s
    ours = [timing_of(accepted(host.evaluate(board_of(host, "vectoradd"), f"{code}\n# again {i}\n"))) for i in range(2)]
    return {
        "kernelbot_s": round(kernelbot_s, 2),
        "kernelbot_us": times,
        "ours_s": [each["whole_s"] for each in ours],
        "ours_us": [each["score_us"] for each in ours],
        "ratio": round(min(each["whole_s"] for each in ours) / kernelbot_s, 3),
    }


def _plain_environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("KERNEL_RUNNER_")},
        "PATH": path,
    }


def least_us(cycles: int = submissions.SLEEP_CYCLES) -> float:
    """What a kernel of so many cycles needs at least."""
    return cycles / submissions.MAX_GHZ / 1e3


STEPS: Final[Sequence[Step]] = (
    Step(
        "ranked",
        "a ranked submission goes from the queue to the ranking",
        lambda host: ranked(host, "vectoradd", "correct/torch_add.py"),
    ),
    Step("isolation", "containers are closed, and have this slot's device", isolation),
    Step(
        "late",
        "a call that says in advance that it has ended gains nothing",
        lambda host: attack(host, submissions.ANSWERS_LATE, at_least_us=least_us()),
        device=True,
    ),
    Step(
        "claims",
        "a device's clock that a submission forges is contradicted",
        lambda host: attack(host, submissions.CLAIMS_NOTHING, at_least_us=least_us()),
        device=True,
    ),
    Step("gemv", "NVFP4 products rank", lambda host: ranked(host, "nvfp4_gemv", "torch_dequantize.py"), limit_s=120),
    Step(
        "triton",
        "a Triton kernel ranks",
        lambda host: ranked(host, "vectoradd", "triton_add.py"),
        device=True,
        limit_s=90,
    ),
    Step("modules", "groups of modules are evaluated", modules, limit_s=120),
    Step(
        "kernelbot",
        "seconds per ranked submission beside KernelBot's evaluation",
        kernelbot,
        device=True,
        limit_s=150,
    ),
    Step("profile", "a profile has a report and files", profile, limit_s=120),
    Step("stuck", "a kernel that does not end is ended with its process", stuck_kernel, device=True, limit_s=90),
    Step(
        "cuda",
        "inline CUDA is built without a device, and ranks",
        lambda host: ranked(host, "vectoradd", "cuda_inline.py", patience_s=150),
        device=True,
        limit_s=150,
    ),
    Step(
        "stray",
        "a stray write on the device is a runtime error, and harms no neighbour",
        lambda host: refused(host, submissions.STRAYS, Verdict.RUNTIME_ERROR),
        device=True,
        limit_s=90,
    ),
    Step(
        "device_memory",
        "hoarded device memory harms no neighbour",
        lambda host: refused(
            host, submissions.HOARDS_DEVICE, Verdict.ACCEPTED, Verdict.MEMORY_LIMIT, Verdict.RUNTIME_ERROR
        ),
        device=True,
    ),
    Step(
        name="fp8",
        shows="FP8 products rank",
        run=lambda host: ranked(host, "amd_fp8_mm", "torch_dequantize.py"),
        limit_s=120,
    ),
    Step(name="killed", shows="a killed daemon loses and doubles nothing", run=killed_daemon, limit_s=90),
    Step(name="five", shows="five in a row", run=five_in_a_row, limit_s=120),
    Step(
        name="wrong",
        shows="a wrong answer is a wrong answer",
        run=lambda host: refused(
            host, "def custom_kernel(data):\n    return data[0] - data[1]\n", Verdict.WRONG_ANSWER
        ),
    ),
    Step(
        name="memory",
        shows="hoarded host memory is a memory limit",
        run=lambda host: refused(host, submissions.HOARDS_HOST, Verdict.MEMORY_LIMIT),
    ),
    Step(
        name="aborts",
        shows="a crash is a runtime error",
        run=lambda host: refused(host, submissions.ABORTS, Verdict.RUNTIME_ERROR),
    ),
    *(
        Step(
            f"attack {name}",
            f"{name} gains nothing",
            lambda host, each=each: attack(host, each.code, at_least_us=each.cycles and least_us(each.cycles)),  # type: ignore[misc]
            device=True,
        )
        for name, each in ATTACKS.items()
    ),
)


def run(folder: Path, *, facts: Figures, python: str, until_s: float, began_s: float, only: Sequence[str] = ()) -> int:
    """Run what of the plan has not passed yet; the exit code."""
    record = folder / "record.jsonl"
    passed = {line["step"] for line in read(record) if line.get("outcome") == PASSED}
    chosen = [step for step in STEPS if (step.name in only if only else step.name not in passed)]
    try:
        with bring_up(python=python, until_s=until_s - _END_S) as host:
            append(
                record,
                {"machine": dict(facts), "gpu_type": host.gpu_type, "up_s": round(time.monotonic() - began_s, 1)},
            )
            _say(f"the host serves {host.gpu_type} after {time.monotonic() - began_s:.1f} s")
            try:
                for step in chosen:
                    append(record, _play(step, host))
            finally:
                _keep_logs(host, folder)
    except Exception as error:  # noqa: BLE001 whatever it is, it must reach the record
        _say(traceback.format_exc())
        append(record, {"step": "bring up", "outcome": FAILED, "why": f"{type(error).__name__}: {error}"})
    return _report(read(record))


def _play(step: Step, host: Host) -> dict[str, Any]:
    began_s = time.monotonic()
    line: dict[str, Any] = {"step": step.name, "shows": step.shows}
    if step.device and not host.device:
        line |= {"outcome": LEFT_OUT, "why": "there is no device"}
    elif host.until_s - began_s < min(step.limit_s, 20.0):
        line |= {"outcome": LEFT_OUT, "why": "the time was over"}
    else:
        try:
            line |= {"outcome": PASSED, "figures": dict(step.run(host))}
        except Exception as error:  # noqa: BLE001 the next step may pass
            why = str(error) if isinstance(error, Unlike) else traceback.format_exc()[-2500:]
            line |= {"outcome": FAILED, "why": why}
    line["seconds"] = round(time.monotonic() - began_s, 2)
    _say(json.dumps(line, default=str)[:1800])
    return json.loads(json.dumps(line, default=str))  # type: ignore[no-any-return]


def _keep_logs(host: Host, folder: Path) -> None:
    """The daemon's log, and of the others their ends."""
    (folder / "daemon.log").write_text(host.log, encoding="utf-8")
    if host.stacks:
        (folder / "stacks.log").write_text("\n".join(host.stacks), encoding="utf-8")
    with (folder / "others.log").open("w", encoding="utf-8") as kept:
        for path in (host.stack.directory / "dockerd.log", host.stack.directory / "postgres" / "log"):
            if path.is_file():
                kept.write(f"== {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-20_000:]}\n")


def _report(lines: Sequence[Mapping[str, Any]]) -> int:
    last = {line["step"]: line for line in lines if "step" in line}
    for name, line in last.items():
        why = line.get("why", line.get("shows", ""))
        _say(f"{line['outcome']:9} {name:24} {line.get('seconds', 0):6.1f} s  {why[:160]}")
    facts = next((line["machine"] for line in reversed(lines) if "machine" in line), None)
    shown = [line["shows"] for line in last.values() if line["outcome"] == PASSED]
    if facts is not None and shown:
        _say("\n".join(hardware_run(facts, shown)))
    return 0 if all(line["outcome"] == PASSED for line in last.values()) else 1


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 a command line speaks
