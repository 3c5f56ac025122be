"""The vendors' profilers: which one fits a device, its command line, and what is kept of its report. All unranked.

A profiler only sees processes that it has started. So the worker lets it start a process that makes one call of the
submission again (`worker.profile_target`); a task's own eval program is started below it as a whole
(`worker.profile_program`). Command lines are made without looking at the machine; `run` looks. Options: Nsight Compute
CLI manual; "Using rocprofv3" in the ROCm documentation.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from .wire import MAX_PAGE_BYTES, MAX_REPORT_BYTES, MAX_TRACE_BYTES

#: The NVTX range around the call that is captured, as KernelBot's eval programs call it.
RANGE: Final = "custom_kernel"
#: Set for programs that are started below Nsight Compute.
CAPTURED: Final = "POPCORN_NCU"
#: An eval program's result has this key where nothing was captured, with the reason.
NOTHING_CAPTURED: Final = "runner.nothing_captured"
#: Ends of the names of what Nsight Compute leaves: its own file, and that as text and as CSV.
NCU_FILES: Final = ("ncu-rep", "ncu-details.txt", "ncu-details.csv")
#: End of a file's name -> media type and the most bytes that are kept.
FILES: Final[Mapping[str, tuple[str, int]]] = {
    "ncu-rep": ("application/octet-stream", MAX_REPORT_BYTES),
    "ncu-details.txt": ("text/plain", MAX_PAGE_BYTES),
    "ncu-details.csv": ("text/csv", MAX_PAGE_BYTES),
    "kernel_trace.csv": ("text/csv", MAX_REPORT_BYTES),
    "trace.json.gz": ("application/gzip", MAX_TRACE_BYTES),
}
#: Characters of what a profiler says when it fails, and of each of its errors in a sentence.
_OUTPUT = 4_000
_ERROR = 300
_BASE = "profile"
#: The readable report of rocprofv3.
_STATS = f"{_BASE}_kernel_stats.csv"


#: Runs a command: exit code and output.
_Execute = Callable[[Sequence[str]], tuple[int, str, str]]


class Tool(Enum):
    """A vendor's profiler: title, program, the file it leaves, and the end of that file's name here."""

    NCU = "Nsight Compute", "ncu", f"{_BASE}.ncu-rep", "ncu-rep"
    ROCPROFV3 = "rocprofv3", "rocprofv3", f"{_BASE}_kernel_trace.csv", "kernel_trace.csv"

    def __init__(self, title: str, program: str, leaves: str, suffix: str) -> None:
        self.title = title
        self.program = program
        self.leaves = leaves
        self.suffix = suffix


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What Nsight Compute captures of a call."""

    #: A kernel's name, or `regex:` and an expression; None: every kernel.
    kernel: str | None = None
    #: Which name that is: function, demangled or mangled.
    kernel_base: str = "function"
    launches: int = 10


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A worker's profile. It is text of the submission's process, not evidence."""

    table: bytes
    #: By the ends of their names.
    files: Mapping[str, bytes]
    #: A vendor's profiler, or torch.
    profiler: str
    #: Why the vendor's profiler captured nothing, as a sentence; None: it did, or there is none.
    failure: str | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """A profiler's report: text for a terminal, and files by the end of their names."""

    text: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Why nothing was captured, as a sentence; None: something was, or torch's profile is answer enough.
    failure: str | None = None
    #: What profiler and program printed.
    output: str = ""


def profiler_of(*, hip: bool) -> Tool:
    """The vendor's profiler for a kind of device."""
    return Tool.ROCPROFV3 if hip else Tool.NCU


def missing(tool: Tool) -> str | None:
    """A sentence that says that a profiler is not installed; None: it is."""
    if shutil.which(tool.program) is not None:
        return None
    return (
        f"This is torch's profile. The device's counters were not read: there is no {tool.program} on PATH in this "
        "container (install it in the GPU type's image, or on the host)."
    )


def record_command(tool: Tool, target: Sequence[str], directory: Path, capture: Capture) -> tuple[str, ...]:
    """The command that runs a program under a profiler, which writes to a directory."""
    match tool:
        case Tool.NCU:
            named = () if capture.kernel is None else ("--kernel-name", capture.kernel)
            options: tuple[str, ...] = (
                # A submission could leave a file with other options.
                *("--config-file", "off"),
                *("--target-processes", "all"),
                # The slash says that it is a range of a thread's stack.
                *("--nvtx", "--nvtx-include", f"{RANGE}/"),
                *("--set", "full", "--replay-mode", "kernel", "--clock-control", "none"),
                *("--kernel-name-base", capture.kernel_base, *named),
                *("--launch-count", str(capture.launches)),
                *("--force-overwrite", "--export", str(directory / _BASE)),
            )
        case Tool.ROCPROFV3:
            options = (
                *("--kernel-trace", "--stats", "--output-format", "csv"),
                *("--output-directory", str(directory), "--output-file", _BASE, "--"),
            )
    return (tool.program, *options, *target)


def page_command(directory: Path, *, as_csv: bool) -> tuple[str, ...]:
    """The command that prints what Nsight Compute recorded."""
    command = (Tool.NCU.program, "--config-file", "off", "--import", str(directory / Tool.NCU.leaves))
    return (*command, "--page", "details", *(("--csv",) if as_csv else ()))


def run(
    tool: Tool,
    target: Sequence[str],
    directory: Path,
    *,
    capture: Capture,
    limit_s: float | None,
    pass_fds: Sequence[int] = (),
) -> Report:
    """Run a program under a profiler. Failures become text in the report.

    `directory`: an empty one for the profiler's files; `limit_s`: of all commands together, None: the caller has one;
    `pass_fds`: descriptors that the program inherits.
    """
    # All commands share the limit.
    until = None if limit_s is None else time.monotonic() + limit_s
    execute = partial(_execute, until=until, pass_fds=pass_fds)
    try:
        code, out, errors = execute(record_command(tool, target, directory, capture))
        output = out + errors
        recorded = directory / tool.leaves
        if code != 0:
            return _nothing(tool, f"ended with exit code {code}", output)
        if tool is Tool.NCU:
            return replace(_pages(execute, directory, capture, output), output=output)
        if not recorded.exists():
            return _nothing(tool, "left no report", output)
        text = (directory / _STATS).read_text(encoding="utf-8", errors="replace")
    except subprocess.TimeoutExpired:
        return _nothing(tool, f"did not finish within {limit_s or 0:.0f} s, half of what was left of the time limit")
    except OSError as error:
        return _nothing(tool, f"could not be used: {error}")
    return _kept(text, {tool.suffix: recorded.read_bytes()})


def _pages(execute: _Execute, directory: Path, capture: Capture, output: str) -> Report:
    """What Nsight Compute recorded, as text and as CSV."""
    texts = dict.fromkeys(NCU_FILES[1:], "")
    recorded = directory / Tool.NCU.leaves
    for suffix, as_csv in zip(texts, (False, True), strict=True) if recorded.exists() else ():
        code, page, errors = execute(page_command(directory, as_csv=as_csv))
        if code != 0:
            return _nothing(Tool.NCU, f"could not read its own report (exit code {code})", page + errors)
        # Its own remarks would be no rows.
        texts[suffix] = "".join(line for line in page.splitlines(keepends=True) if not line.startswith("=="))
    # The first row has the columns' names.
    if texts["ncu-details.csv"].count('\n"') < 1:
        named = "" if capture.kernel is None else f" whose {capture.kernel_base} name matches {capture.kernel!r}"
        return _nothing(Tool.NCU, f"captured no kernel{named} in the range {RANGE}", output)
    pages = {suffix: text.encode() for suffix, text in texts.items()}
    return _kept(texts["ncu-details.txt"], {Tool.NCU.suffix: recorded.read_bytes(), **pages})


def _kept(text: str, files: Mapping[str, bytes]) -> Report:
    """A report with those files that are not too large, and a sentence on each other one."""
    kept = {suffix: data for suffix, data in files.items() if len(data) <= FILES[suffix][1]}
    lost = [
        f"{suffix} is left out: {len(data)} bytes, at most {FILES[suffix][1]} are kept (capture fewer launches)"
        for suffix, data in files.items()
        if suffix not in kept
    ]
    failure = "; ".join(lost) if Tool.NCU.suffix in files.keys() - kept.keys() else None
    return Report(text="\n".join([text, *lost]), files=kept, failure=failure)


def _nothing(tool: Tool, what: str, output: str = "") -> Report:
    """A report of nothing. Only of Nsight Compute is that a failure: the other has never run on a device."""
    errors = [line.strip()[:_ERROR] for line in output.splitlines() if line.startswith(("==ERROR==", "==WARNING=="))]
    sentence = f"{tool.title} {what}{''.join(f'; {error}' for error in errors[:3])}"
    failure = sentence if tool is Tool.NCU else None
    return Report(text=f"{sentence}\n{output[-_OUTPUT:]}".rstrip(), failure=failure, output=output)


def _execute(argv: Sequence[str], *, until: float | None, pass_fds: Sequence[int]) -> tuple[int, str, str]:
    """Exit code and output of a command. On timeout, its whole session is killed."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **({CAPTURED: "1"} if argv[0] == Tool.NCU.program else {})},
        pass_fds=tuple(pass_fds),
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output, errors
