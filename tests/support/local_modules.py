"""Judges a group of modules with processes of this machine, without a container: for trying out and for tests.

As in `local`, all processes have the caller's user, so a candidate could interfere with the judge. Each candidate has
a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.extras.trainers.inside.judge.group import Group, GroupError, Result, failed_results
from runner.extras.trainers.inside.judge.request import GroupRequest
from sandbox.protocol import StepResult
from tasks.harness.judge.request import JudgeRequest
from tasks.harness.local import JudgeFailed, LocalReport, Pair, Start, Started

#: Names the descriptor that a worker which was started ahead closes when it has its context.
AHEAD_FD = "AHEAD_FD"


class SuccessivePair(Pair):
    """A judge that may ask for further workers, one after the other, as init gives them."""

    def __init__(self, *, start: Start | None = None, ahead: Start | None = None) -> None:
        """`ahead`: starts a worker that makes its context first (`make_context`); None: none is started ahead."""
        #: The reference's workers, one for each baseline; candidates' workers so far.
        self._references: list[Started] = []
        self._number = 0
        self._start_ahead = ahead
        #: Workers whose turns come later, each with the judge's end of its socket.
        self._ahead: list[tuple[Started, socket.socket]] = []
        super().__init__(start=start)

    def _all_started(self) -> None:
        """Leave open what the start of further workers needs."""

    def run(
        self, request: JudgeRequest | Mapping[str, Any], *, on_frame: Callable[[dict[str, Any]], None] | None = None
    ) -> LocalReport:
        """See Pair."""

        def heard(message: dict[str, Any]) -> None:
            if on_frame is not None:
                on_frame(message)
            if message["type"] == "spawn":
                self._spawn(message["role"])
            if message["type"] == "ahead":
                self._hold(message["count"])

        return super().run(request, on_frame=heard)

    def close(self) -> None:
        """See Pair."""
        for reference in self._references:
            _kill(reference)
        for held, judge_end in self._ahead:
            _kill(held)
            judge_end.close()
        super().close()
        super()._all_started()

    def _hold(self, count: int) -> None:
        """Start workers ahead, and tell the judge when they have their contexts."""
        ready: list[int] = []
        for _ in range(count if self._start_ahead is not None else 0):
            place = Path(self._directory.name) / f"ahead-{len(self._ahead)}"
            place.mkdir(mode=0o700)
            judge_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            read, write = os.pipe()
            with worker_end:
                held = self._start_worker(worker_end, place, start=self._start_ahead, descriptors={AHEAD_FD: write})
            os.close(write)
            ready.append(read)
            self._ahead.append((held, judge_end))

        def wait() -> None:
            for descriptor in ready:
                os.read(descriptor, 1)
                os.close(descriptor)
            with contextlib.suppress(BrokenPipeError):
                self._ranks_line.send(b"a")

        thread = threading.Thread(target=wait, name="workers ahead")
        self._threads.append(thread)
        thread.start()

    def _spawn(self, role: str) -> None:
        """Give the judge a new worker. A candidate's takes the place of the last one, which is killed first."""
        directory = Path(self._directory.name)
        place = directory / f"{role}-{len(self._references)}"
        if role == "candidate":
            # First, so that its end is not taken for one to tell the judge of.
            (replaced,), self.workers = self.workers, []
            _kill(replaced)
            for earlier in ("worker", f"candidate-{self._number}"):
                shutil.rmtree(directory / earlier, ignore_errors=True)
            self._number += 1
            place = directory / f"candidate-{self._number}"
        if role == "candidate" and self._ahead:
            started, judge_end = self._ahead.pop()
        else:
            place.mkdir(mode=0o700)
            judge_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with worker_end:
                started = self._start_worker(worker_end, place)
        with judge_end:
            if role == "candidate":
                self.workers = [started]
                number = self._number
                thread = threading.Thread(target=self._await, args=(number, started), name=f"worker {number} exit")
                self._threads.append(thread)
                thread.start()
            else:
                self._references.append(started)
            socket.send_fds(self._ranks_line, [b"w"], [judge_end.fileno()])

    def _await(self, number: int, worker: Started) -> None:
        """Tell the judge how a worker ended that took another's place."""
        code = worker.wait()
        if worker in self.workers:
            _kill(worker)
            self._tell_end(number, code)


def make_context(_: Sequence[str] = ()) -> None:
    """In a worker that is started ahead: make the context, and say so."""
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call]  # torch lacks it
    torch.cuda.synchronize()
    os.close(int(os.environ.pop(AHEAD_FD)))


def _kill(process: Started) -> None:
    """Kill a process and what it has started in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def group_of(reference: str, *codes: str, **settings: Any) -> dict[str, Any]:  # noqa: ANN401 any setting
    """A group in its JSON form; its candidates are numbered."""
    candidates = [{"id": number, "code": code} for number, code in enumerate(codes)]
    return {"kind": "module", "reference": reference, "settings": settings, "candidates": candidates}


def evaluate(
    group: Mapping[str, Any],
    *,
    start: Start | None = None,
    ahead: Start | None = None,
    device: str = "cpu",
    memory_bytes: int = 1 << 30,
) -> list[dict[str, Any]]:
    """Judge a group in its JSON form (docs/trainers.md): one result for each candidate, in the group's order.

    `start`: None gives each process a new interpreter. `ahead`: as in SuccessivePair. `device`, `memory_bytes`: as in
    JudgeRequest.
    """
    try:
        parsed = Group.from_message(group)
    except GroupError as error:
        return failed_results(group, "invalid", str(error))
    payload = GroupRequest(group=group, device=device, memory_bytes=memory_bytes).to_payload()
    frames: list[dict[str, Any]] = []
    verdict, lost = "internal_error", "the judge ended without a result for this candidate"
    try:
        with SuccessivePair(start=start, ahead=ahead) as pair:
            report = pair.run(payload, on_frame=frames.append)
        if report.author_exit is not None:
            verdict, lost = "invalid", str(report.author_exit)
    except JudgeFailed as error:
        lost = str(error)[-2000:]
    found = results_of(StepResult.from_message(frame) for frame in frames if frame["type"] == "step")
    return [
        found.get(candidate.id) or Result(id=candidate.id, verdict=verdict, message=lost).to_message()
        for candidate in parsed.candidates
    ]


def results_of(steps: Iterable[StepResult]) -> dict[int, dict[str, Any]]:
    """The results that a judge has reported, by candidate."""
    rows = [step.judged.details.get("module") for step in steps if step.judged is not None]
    return {row["id"]: row for row in rows if isinstance(row, dict)}
