"""Profiles one call: by torch's profiler and, where one is installed, by the vendor's."""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

import torch

from tasks.harness.shared.profilers import Capture, Profile, Report, Tool, missing, profiler_of, run
from tasks.harness.shared.wire import MAX_TABLE_BYTES, MAX_TRACE_BYTES

from .failures import ROOT
from .inputs import Inputs
from .profile_target import write as write_call
from .submission import Submission

_NOTHING = "torch's profiler saw nothing: the submission calls no operation of torch's, or uses that profiler itself\n"
#: Starts `profile_target` where the harness is.
_TARGET = "import sys; sys.path.insert(0, {!r}); from tasks.harness.worker.profile_target import main; sys.exit(main())"


def profile_call(submission: Submission, inputs: Inputs, *, capture: Capture | None, limit_s: float) -> Profile:
    """Call a kernel under torch's profiler, and under the vendor's for at most `limit_s` where there is a capture."""
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
    # Without an event there is no trace: torch's export would end the process.
    trace = _trace(profiler) if averages else b""
    traces = {"trace.json.gz": trace} if trace else {}
    tool = profiler_of(hip=torch.version.hip is not None)
    why = missing(tool) if inputs.cuda and capture is not None else ""
    if capture is None or why is not None:
        return Profile(table=_table(text, why or ""), files=traces, profiler="torch", failure=None)
    report = _profile_by_vendor(tool, submission, inputs, capture, limit_s)
    return Profile(
        table=_table(text, report.text),
        files={**report.files, **traces},
        profiler=tool.program if report.files else "torch",
        failure=report.failure,
    )


def _table(*texts: str) -> bytes:
    return "\n".join(texts).rstrip().encode()[:MAX_TABLE_BYTES]


def _trace(profiler: torch.profiler.profile) -> bytes:
    """The compressed trace; nothing where it is too long: a part of one is of no use."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = gzip.compress(path.read_bytes(), compresslevel=6)
    return trace if len(trace) <= MAX_TRACE_BYTES else b""


def _profile_by_vendor(tool: Tool, submission: Submission, inputs: Inputs, capture: Capture, limit_s: float) -> Report:
    """One more call, in a process below the vendor's profiler."""
    with tempfile.TemporaryDirectory() as directory:
        call, reports = (Path(directory) / name for name in ("call", "reports"))
        call.mkdir()
        reports.mkdir()
        write_call(call, submission=submission.file, program=submission.program, data=inputs.raw)
        target = (sys.executable, "-P", "-c", _TARGET.format(str(ROOT)), str(call))
        return run(tool, target, reports, capture=capture, limit_s=limit_s)
