"""Evaluates one attack: by the judge, by one without some defence, or by the naive evaluator. Called by the tests."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tasks.harness.judge.request import Floor, JudgeRequest, ModeRequest
from tasks.harness.local import LocalReport, Started, evaluate, lines_of
from tests.acceptance.attacks.catalogue import TASKS, Attack, stated
from tests.acceptance.attacks.relax import CHANGES, SHORT
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.support.noise import again_if_noise
from tests.support.waiting import PATIENCE_S

#: Task -> cases of tests, the case that is timed, and cases that are hidden from who writes a submission.
CASES: Mapping[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "add": (("size: 64; seed: 1", "size: 100; seed: 2"), "size: 128; seed: 3", ()),
    "buffer": (("size: 64; seed: 1",), "size: 64; seed: 3", ()),
    "rare": (("size: 64; seed: 1", "size: 100; seed: 2"), "size: 128; seed: 3", ()),
    "mean": (
        ("size: 4096; seed: 1; kind: even",),
        "size: 4096; seed: 3; kind: even",
        ("size: 4096; seed: 9; kind: steps",),
    ),
    "product": (("size: 64; seed: 1",), "size: 64; seed: 3", ()),
    "sorted": (
        ("size: 512; seed: 1; kind: even",),
        "size: 512; seed: 3; kind: even",
        ("size: 512; seed: 9; kind: large",),
    ),
}
#: What only a container has: these defences are not there where judge and worker are plain processes.
CONTAINER = {"uid", "readonly", "network"}
#: Where an attack leaves answers for its next evaluation.
_LEFT_BEHIND = Path("/tmp/kernel-runner-test-replay")
#: What a case whose time is held against a floor would need at least.
FLOOR = Floor(ns=400_000.0, limit="memory", why="as the corpus says")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an evaluation came to."""

    verdict: str
    message: str | None
    #: The least of the reported medians of the cases; None where none was reported.
    time_ns: float | None
    #: What the submission printed.
    output: str
    details: Mapping[str, Any]


def request_of(attack: Attack, *, teeth: bool = True, submission: str | None = None) -> JudgeRequest:
    """What the judge is asked. Without `teeth` the task is as lenient, and its cases as few, as others have them."""
    shown, timed, hidden = CASES[attack.task]
    cases = (timed,) if attack.mode != "test" else (*shown, *(hidden if teeth else ()))
    floors = (FLOOR,) * len(cases) if "floor" in attack.proved else ()
    folder = TASKS / attack.task
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    if not teeth and "lenient.py" in files:
        files["reference.py"] = files["lenient.py"]
    return JudgeRequest(
        modes=(ModeRequest(name=attack.mode, cases=cases, timeout_s=60.0, floors=floors),),
        files={"reference.py": files["reference.py"]},
        worker_files=(),
        submission_name="submission.py",
        submission=attack.source if submission is None else submission,
    )


def outcomes(judges: ForkedJudges, attack: Attack, off: Sequence[str]) -> list[Outcome]:
    """What comes of an attack's rounds before the judge, without these defences."""
    request = request_of(attack, teeth="teeth" not in off)
    try:
        return [judged(judges, request, without=off) for _ in range(attack.rounds)]
    finally:
        if attack.rounds > 1:
            _LEFT_BEHIND.unlink(missing_ok=True)


def in_one_process(judges: ForkedJudges, attack: Attack) -> Outcome:
    """What comes of an attack before the naive evaluator, on a task without teeth if it is one on that."""
    request = request_of(attack, teeth="teeth" not in attack.proved)
    return naive(judges, request, attack.naive or {})


def results(judges: ForkedJudges, attack: Attack) -> tuple[str, str]:
    """What comes of an attack in one process, and here: for the table."""
    unplayed = stated(attack)
    naively = _shown(attack, in_one_process(judges, attack)) if attack.in_process else unplayed[0]
    if attack.proved & CONTAINER:
        return naively, f"{unplayed[1]}, in a container"
    return naively, _shown(attack, outcomes(judges, attack, attack.given)[-1])


def _shown(attack: Attack, outcome: Outcome) -> str:
    if outcome.verdict != "accepted" or attack.work_ns is None or outcome.time_ns is None:
        return f"`{outcome.verdict}`"
    return f"`accepted`, {attack.work_ns / max(outcome.time_ns, 1e-9):.3g} ×"


def judged(judges: ForkedJudges, request: JudgeRequest, *, without: Sequence[str] = ()) -> Outcome:
    """The judge's verdict, without these defences."""

    def play() -> LocalReport:
        start = partial(_start, judges, (SHORT, *(name for name in without if name in CHANGES)))
        if "descriptors" in without:
            start = partial(_leak, start, os.pipe())
        return evaluate(request, start=start)

    return _outcome(again_if_noise(play))


def _start(judges: ForkedJudges, off: Sequence[str], role: str, **settings: Any) -> Started:  # noqa: ANN401 see Start
    return judges.start(role, **settings, without=off if role == "judge" else ())


def _leak(start: partial[Started], report: tuple[int, int], role: str, **settings: Any) -> Started:  # noqa: ANN401 see Start
    """The worker inherits the descriptor that the judge reports to."""
    read, write = report
    if role == "worker":
        return start(role, **{**settings, "keep": (*settings["keep"], write)})
    child = start(role, **{**settings, "stdout": write})
    os.close(write)
    child.stdout = os.fdopen(read, "rb")
    return child


def _outcome(report: LocalReport) -> Outcome:
    step = report.steps[0]
    if step.judged is None:
        raise ValueError(f"a step of the judge's without a verdict: {step}")
    times = [float(value) for key, value in lines_of(step).items() if key.endswith(".median")]
    return Outcome(
        verdict=step.judged.verdict,
        message=step.judged.message,
        time_ns=min(times, default=None),
        output=step.stdout + step.stderr,
        details=step.judged.details,
    )


def naive(judges: ForkedJudges, request: JudgeRequest, options: Mapping[str, Any]) -> Outcome:
    """What the naive evaluator's reader believes: the last line of each name counts, if the signature is right."""
    key = secrets.token_bytes(32)
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="kernel-runner-") as directory, tempfile.TemporaryFile() as errors:
        child = judges.start(
            "naive",
            cwd=Path(directory),
            env={**os.environ, "NAIVE_FD": str(write), "NAIVE_OPTIONS": json.dumps(dict(options))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors.fileno(),
            keep=(write,),
        )
        os.close(write)
        if child.stdin is None or child.stdout is None:
            raise ValueError("a pipe was asked for and is not there")
        with child.stdin as stdin:
            stdin.write(json.dumps({**request.to_payload(), "key": key.hex()}).encode())
        with os.fdopen(read, "rb") as results:
            report = results.read()
        with child.stdout as stream:
            printed = stream.read()
        code = child.wait(PATIENCE_S)
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    text = (printed if options.get("stdout") else report).decode(errors="replace")
    lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    passed = lines.get("check") == "pass" and code == 0
    if options.get("sign"):
        body = text.rpartition("signature: ")[0]
        passed = passed and lines.get("signature") == hmac.new(key, body.encode(), hashlib.sha256).hexdigest()
    times = [float(value) for name, value in lines.items() if name.endswith(".median")]
    return Outcome(
        verdict="accepted" if passed else "wrong_answer" if code == 0 else "runtime_error",
        message=said[-2000:] or None,
        time_ns=min(times, default=None),
        output=printed.decode(errors="replace") + said,
        details={},
    )
