"""Profiles one call: by torch's profiler and, where one is installed, by the vendor's."""

from __future__ import annotations

import gzip
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from tasks.harness.emulate import asked
from tasks.harness.shared.profilers import Report, choose, missing, run
from tasks.harness.shared.wire import MAX_REPORT_BYTES, MAX_TABLE_BYTES, MAX_TRACE_BYTES

from .failures import HARNESS
from .inputs import Inputs
from .profile_target import write as write_call
from .submission import Submission

_NOTHING = "torch's profiler saw nothing: the submission calls no operation of torch's, or uses that profiler itself\n"
#: Starts `profile_target` where the harness is.
_TARGET = "import sys; sys.path.insert(0, {!r}); from tasks.harness.worker.profile_target import main; sys.exit(main())"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The text to show, the compressed trace, and the vendor's report with the suffix of its file."""

    table: bytes
    trace: bytes
    report: bytes
    suffix: str


def profile_call(submission: Submission, inputs: Inputs, *, limit_s: float | None) -> Profile:
    """Call a kernel under torch's profiler, and a second time under the vendor's.

    Args:
        submission: the kernel, and the file that the second process loads it from.
        inputs: of both calls.
        limit_s: seconds for the vendor's profiler; None: it is not used.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        submission.kernel(inputs.value)
        if inputs.cuda:
            torch.cuda.synchronize()
    order = "cuda_time_total" if inputs.cuda else "cpu_time_total"
    averages = profiler.key_averages()
    text = averages.table(sort_by=order, row_limit=40) if averages else _NOTHING
    vendors = Report(text="")
    if inputs.cuda and limit_s is not None and not asked():
        vendors = _profile_by_vendor(submission, inputs, limit_s)
    return Profile(
        table=f"{text}\n{vendors.text}".rstrip().encode()[:MAX_TABLE_BYTES],
        # Without an event there is no trace: torch's export would end the process.
        trace=_trace(profiler) if averages else b"",
        report=vendors.data,
        suffix=vendors.suffix,
    )


def _trace(profiler: torch.profiler.profile) -> bytes:
    """The compressed trace; nothing where it is too long: a part of one is of no use."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = gzip.compress(path.read_bytes(), compresslevel=6)
    return trace if len(trace) <= MAX_TRACE_BYTES else b""


def _profile_by_vendor(submission: Submission, inputs: Inputs, limit_s: float) -> Report:
    """One more call, in a process below the vendor's profiler, if that is installed."""
    hip = torch.version.hip is not None
    tool = choose(hip=hip)
    if tool is None:
        return Report(text=missing(hip=hip))
    with tempfile.TemporaryDirectory() as directory:
        call, made = (Path(directory) / name for name in ("call", "made"))
        call.mkdir()
        made.mkdir()
        write_call(call, submission=submission.file, program=submission.program, data=inputs.raw)
        target = (sys.executable, "-P", "-c", _TARGET.format(str(Path(HARNESS).parents[1])), str(call))
        return run(tool, target, made, limit_s=limit_s, most_bytes=MAX_REPORT_BYTES)
