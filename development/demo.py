"""`demo`: the whole thing for real, by the commands that anybody types; leaves nothing running.

Owns a fresh stack (`development.stack`): an embedded PostgreSQL, an engine if none answers, one daemon and one gateway
as processes. Submits the right and the wrong solutions of the starter problems, and a batch as trainers send it.
"""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from development.stack import REPOSITORY, Stack, orderly, say, state_directory
from runner.base.errors import InfrastructureError
from runner.base.model import Mode, Verdict

_PROBLEMS = REPOSITORY / "tasks" / "problems"
#: So that the endless submission does not hold the demo up for the task's own three minutes.
_TIME_LIMIT_S = 5
#: The whole demo takes a minute or two; beyond this something is wrong and the daemon's log says what.
_PATIENCE_S = 900.0
_LOOK_S = 1.0
_PAGE_S = 60.0
_REWARD = "kernelbook@1"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One submission of the demo: who sends which file where, and the verdicts it may get."""

    user: str
    leaderboard: str
    file: str
    mode: Mode
    story: str
    expected: tuple[Verdict, ...]


_RIGHT = (Verdict.ACCEPTED,)
_WRONG = (Verdict.WRONG_ANSWER,)
_FORGED = (Verdict.REJECTED, Verdict.RUNTIME_ERROR, Verdict.WRONG_ANSWER)
_ENDLESS = f"never ends (limit {_TIME_LIMIT_S} s here)"
_FORGES = "writes forged results into every descriptor"
#: User, leaderboard, file below its solutions, mode, what it does, verdicts it may get.
_ROWS = (
    ("ada", "vectoradd", "correct/torch_add.py", Mode.LEADERBOARD, "right", _RIGHT),
    ("grace", "vectoradd", "correct/float32.py", Mode.LEADERBOARD, "right, another way", _RIGHT),
    ("mallory", "vectoradd", "wrong/last_element.py", Mode.LEADERBOARD, "wrong in one element", _WRONG),
    ("mallory", "vectoradd", "faults/crash.py", Mode.TEST, "crashes", (Verdict.RUNTIME_ERROR,)),
    ("mallory", "vectoradd", "faults/slow.py", Mode.TEST, _ENDLESS, (Verdict.TIME_LIMIT,)),
    ("mallory", "vectoradd", "faults/cheat.py", Mode.LEADERBOARD, _FORGES, _FORGED),
    ("ada", "identity", "correct/copy.py", Mode.LEADERBOARD, "right", _RIGHT),
    ("mallory", "identity", "wrong/zeros.py", Mode.LEADERBOARD, "returns zeros", _WRONG),
    ("ada", "nvfp4_gemv", "correct/dequantize.py", Mode.LEADERBOARD, "right", _RIGHT),
    ("grace", "nvfp4_gemv", "correct/blocks.py", Mode.LEADERBOARD, "right, another way", _RIGHT),
    ("mallory", "nvfp4_gemv", "wrong/shifted_scales.py", Mode.LEADERBOARD, "off by one scale block", _WRONG),
)
ENTRIES = tuple(
    Entry(user=user, leaderboard=leaderboard, file=file, mode=mode, story=story, expected=expected)
    for user, leaderboard, file, mode, story, expected in _ROWS
)
_REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.softmax(torch.relu(self.linear(x)), dim=-1)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128]
"""
_CANDIDATE = _REFERENCE.replace("class Model(", "class ModelNew(")
#: What a candidate for that module does, its code, and the verdicts it may get.
CANDIDATES = (
    ("does what the reference does", _CANDIDATE, _RIGHT),
    ("leaves the softmax out", _CANDIDATE.replace("torch.softmax(torch.relu(", "((").replace(", dim=-1", ""), _WRONG),
    ("is off by a thousandth", _CANDIDATE.replace("self.linear(x)", "self.linear(x).detach() * 1.001"), _WRONG),
    ("is no Python", "class ModelNew(nn.Module:", (Verdict.COMPILE_ERROR,)),
)


def demo() -> None:
    """Evaluate real submissions on this machine, from queue to rankings, in a minute or two.

    Starts an embedded PostgreSQL, a daemon, a gateway on a free port of this machine and, if none answers, an engine,
    and stops them at the end. Touches no configured database.

    Raises:
        InfrastructureError: a part does not start, or a verdict is another than expected.
    """
    began = datetime.now(UTC)
    with orderly(), _fresh_stack(state_directory("demo")) as stack:
        boards = _publish(stack)
        say("starting the daemon (it proves its containers with a probe first)")
        stack.start_daemon()
        if not stack.daemon_serves(since=began):
            raise InfrastructureError(f"the daemon is not ready; its log says why: {stack.daemon_log}")
        submissions = {_submit(stack, entry): entry for entry in ENTRIES}
        say(f"{len(submissions)} submissions queued; a ranked one that is right is evaluated again, with a secret seed")
        page = _open_pages(stack, boards[0])
        surprises = _watch(stack, submissions)
        for board in boards:
            stack.kernel_runner("leaderboard", "show", board)
        best = json.loads(stack.kernel_runner("leaderboard", "show", boards[0], "--json", shown=False))[0]
        say("one result in full:")
        stack.kernel_runner("status", str(best["submission_id"]))
        say("a batch of candidates for a PyTorch module, as trainers send them (docs/trainers.md):")
        surprises += _batch(stack)
        if page is not None:
            _show_page(page)
        say("stopping what was started")
    if surprises:
        raise InfrastructureError("the demo did not go as it should: " + "; ".join(surprises))


@contextmanager
def _fresh_stack(directory: Path) -> Iterator[Stack]:
    """PostgreSQL and engine for one demo, on a database that holds nothing yet."""
    stack = Stack(directory)
    with stack.lock():
        stack.stop_all()
        shutil.rmtree(directory / "postgres", ignore_errors=True)
        try:
            say("starting PostgreSQL (embedded, in a directory of its own)")
            url = stack.start_postgres()
            engine = stack.start_engine()
            say(f"container engine: {engine.url}")
            stack.write_config(database_url=url, engine=engine)
            stack.kernel_runner("migrate", shown=False)
            yield stack
        finally:
            stack.stop_all()


def _publish(stack: Stack) -> tuple[str, ...]:
    """The starter problems as leaderboards, one of them with a short time limit."""
    stack.kernel_runner("leaderboard", "import", str(_PROBLEMS / "starter.yaml"))
    copy = stack.directory / "problems"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_PROBLEMS / "vectoradd", copy / "vectoradd")
    for name in ("eval.py", "utils.py"):
        shutil.copy(_PROBLEMS / name, copy)
    with (copy / "vectoradd" / "task.yml").open("a", encoding="utf-8") as file:
        file.write(f"test_timeout: {_TIME_LIMIT_S}\n")
    stack.kernel_runner("leaderboard", "update", str(copy / "vectoradd"), "--gpu", "CPU")
    return tuple(dict.fromkeys(entry.leaderboard for entry in ENTRIES))


def _submit(stack: Stack, entry: Entry) -> int:
    file = str(_PROBLEMS / entry.leaderboard / "solutions" / entry.file)
    options = ("--leaderboard", entry.leaderboard, "--mode", entry.mode, "--gpu", "CPU")
    who = ("--user", f"demo-{entry.user}", "--user-name", entry.user)
    return int(stack.kernel_runner("submit", file, *options, *who, shown=False))


def _open_pages(stack: Stack, board: str) -> str | None:
    """Start the gateway and say where to look; the address of the board's page, or None without a gateway."""
    base = stack.serve_gateway()
    if base is None:
        return None
    token = stack.kernel_runner("user", "token", "demo-ada", shown=False).split()[-1]
    page = f"{base}/board/{board}"
    say(f"look at {page} while it runs; {base}/login takes you in as ada with the token {token}")
    return page


def _show_page(page: str) -> None:
    """Get the page as a browser does, and say where it is.

    Raises:
        InfrastructureError: the gateway does not serve it.
    """
    try:
        with urllib.request.urlopen(page, timeout=_PAGE_S) as answer:  # noqa: S310 - this machine's own address
            size = len(answer.read())
    except OSError as error:
        raise InfrastructureError(f"the gateway does not show {page}: {error}") from error
    say(f"the ranking as a page ({size} bytes): {page}; `make up` keeps one up")


def _watch(stack: Stack, submissions: Mapping[int, Entry]) -> list[str]:
    """Wait until all are over, a line for each as it ends; which verdicts were not expected."""
    deadline = time.monotonic() + _PATIENCE_S
    verdicts: dict[int, str] = {}
    while len(verdicts) < len(submissions):
        if time.monotonic() > deadline or not stack.daemon_runs():
            raise InfrastructureError(f"the daemon does not get on; its log: {stack.daemon_log}")
        time.sleep(_LOOK_S)
        lines: list[dict[str, Any]] = json.loads(stack.kernel_runner("status", "--json", shown=False))
        for line in lines:
            number = line["submission_id"]
            if line["state"] == "done" and number not in verdicts:
                verdicts[number] = line["verdict"]
                entry = submissions[number]
                say(f"  {number:>3}  {entry.leaderboard:<11} {entry.user:<8} {entry.story}: {line['verdict']}")
    return [
        f"submission {number} ({entry.file}): {verdicts[number]}, expected {' or '.join(entry.expected)}"
        for number, entry in submissions.items()
        if verdicts[number] not in entry.expected
    ]


def _batch(stack: Stack) -> list[str]:
    """Evaluate the candidates through `batch run`; which verdicts were not expected."""
    candidates, results = stack.directory / "candidates.jsonl", stack.directory / "results.jsonl"
    results.unlink(missing_ok=True)
    items = [{"key": story, "reference": _REFERENCE, "candidate": code} for story, code, _ in CANDIDATES]
    candidates.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    options = ("--gpu", "CPU", "--out", str(results), "--user", "demo-trainer", "--setting", "timed_calls=10")
    stack.kernel_runner("batch", "run", str(candidates), *options, "--reward", _REWARD, shown=False)
    rows = {row["key"]: row for row in map(json.loads, results.read_text(encoding="utf-8").splitlines())}
    surprises = []
    for story, _, expected in CANDIDATES:
        verdict, speedup, reward = (rows[story][name] for name in ("verdict", "speedup", "reward"))
        faster = f", speed-up {speedup:.2f}" if speedup else ""
        say(f"  {story}: {verdict}{faster}{'' if reward is None else f', reward {_REWARD} {reward:.2f}'}")
        if verdict not in expected:
            surprises.append(f"the candidate that {story}: {verdict}: {rows[story]['facts']}")
    return surprises
