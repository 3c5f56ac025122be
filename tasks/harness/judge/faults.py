"""What a submission did wrong, as an exception with a verdict; and how the judge reads a worker's answer.

Called by everything of the judge that talks to a worker. Pure but for waiting to hear how a worker ended.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from tasks.harness.shared.wire import MAX_FAILURE_CHARS

from .worker_output import Watcher, WorkerExit


class Fault(Exception):
    """The submission failed in a way that has a verdict.

    `gone` says that the worker cannot be asked anything any more; `timed_out` and `output_limit` mirror the step's
    fields. `trace` holds the frames of the submission's own code, `late` who had not answered in time.
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
        """The same fault, with the rank that is to blame in its sentence."""
        return Fault(self.verdict, f"rank {rank}: {self.message}", gone=self.gone or gone, trace=self.trace)


def too_late(late: str = "") -> Fault:
    """The time limit passed; `late` says who had not answered by then, where there are several."""
    return Fault("time_limit", f"the time limit passed{f': {late}' if late else ''}", gone=True, late=late)


def tampered(what: str) -> Fault:
    """Something arrived that the worker's own code does not send, and no submission sends by accident."""
    return Fault("rejected", f"the submission wrote to the harness's own channel ({what})", gone=True)


def expect(answer: Mapping[str, Any], expected: str) -> None:
    """Check that a worker answered what was due.

    Raises:
        Fault: it did not; a failure that it reports, or something that it cannot have said.
    """
    if answer["op"] == expected:
        return
    if answer["op"] != "failed":
        raise tampered(f"an answer {str(answer['op'])[:40]!r} where {expected!r} was due")
    kind, text, trace = answer.get("kind"), answer.get("text"), answer.get("trace")
    if kind not in ("compile_error", "runtime_error") or not isinstance(text, str) or not isinstance(trace, str):
        raise tampered("a failure that does not parse")
    # The worker's own code cuts them; a report must not grow with what a rewritten one sends.
    raise Fault(kind, text[:MAX_FAILURE_CHARS], trace=trace[:MAX_FAILURE_CHARS])


def flooded() -> Fault:
    """The submission wrote more than anybody reads."""
    return Fault("output_limit", "the submission wrote more than 64 MiB to stdout and stderr", gone=True)


def died(collector: Watcher) -> Fault:
    """What to say of a worker whose channel ended; waits a moment for the steward's word."""
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
