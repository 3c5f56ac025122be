"""A submission's fault, as an exception with a verdict; and the checks of a worker's answer."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from tasks.harness.shared.wire import MAX_FAILURE_CHARS

from .worker_output import Watcher, WorkerExit


class Fault(Exception):
    """The submission failed in a way that has a verdict.

    `gone`: the worker cannot be asked anything any more. `timed_out` and `output_limit` are the step's fields. `trace`:
    frames of the submission's own code. `late`: the ranks that had not answered in time.
    """

    def __init__(self, verdict: str, message: str, *, gone: bool = False, trace: str = "", late: str = "") -> None:
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.gone = gone
        self.trace = trace
        self.late = late
        self.timed_out = verdict == "time_limit"
        self.output_limit = verdict == "output_limit"

    def of_rank(self, rank: int, *, gone: bool = False) -> Fault:
        """The same fault, with the rank in its message."""
        return Fault(self.verdict, f"rank {rank}: {self.message}", gone=self.gone or gone, trace=self.trace)


def too_late(late: str = "") -> Fault:
    """The time limit passed. `late`: the ranks that had not answered, if there are several."""
    return Fault("time_limit", f"the time limit passed{f': {late}' if late else ''}", gone=True, late=late)


def tampered(what: str) -> Fault:
    """A message arrived that the worker's own code does not send, and that no submission sends by accident."""
    return Fault("rejected", f"the submission wrote to the harness's own channel ({what})", gone=True)


def expect(answer: Mapping[str, Any], expected: str) -> None:
    """Check that a worker sent the expected answer.

    Raises:
        Fault: it reported a failure, or sent what its own code cannot send.
    """
    if answer["op"] == expected:
        return
    if answer["op"] != "failed":
        raise tampered(f"an answer {str(answer['op'])[:40]!r} where {expected!r} was due")
    kind, text, trace = answer.get("kind"), answer.get("text"), answer.get("trace")
    if kind not in ("compile_error", "runtime_error") or not isinstance(text, str) or not isinstance(trace, str):
        raise tampered("a failure that does not parse")
    # The worker's own code cuts texts. A rewritten worker must not make the report grow.
    raise Fault(kind, text[:MAX_FAILURE_CHARS], trace=trace[:MAX_FAILURE_CHARS])


def flooded() -> Fault:
    """The submission wrote more than the limit."""
    return Fault("output_limit", "the submission wrote more than 64 MiB to stdout and stderr", gone=True)


def died(collector: Watcher) -> Fault:
    """The fault for a worker whose channel ended. Waits a moment for init's word."""
    ended = None if collector.flooded else collector.wait_exit(2.0)
    return flooded() if collector.flooded else ending_of(ended)


def ending_of(ended: WorkerExit | None) -> Fault:
    """How a process ended, as a fault."""
    if ended is None:
        how = "the process closed its channel to the judge"
    elif ended.signal is not None:
        how = f"the process was killed by signal {ended.signal} ({_signal_name(ended.signal)})"
    else:
        how = f"the process ended with exit code {ended.exit_code}"
    return Fault("runtime_error", how, gone=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
