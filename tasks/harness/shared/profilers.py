"""The vendors' profilers: which one fits a device, its command line, and what is kept of its report. All unranked.

A profiler only sees processes that it has started. So the worker lets it start a process that makes one call of the
submission again (`worker.profile_target`). Command lines are made without looking at the machine; `run` looks. Options:
Nsight Compute CLI manual (--profile-from-start, --set, --export, --import, --page); "Using rocprofv3" and the rocprof
command reference in the ROCm documentation.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

#: Characters of what a profiler says when it fails.
_SAID = 4_000
_BASE = "profile"


class Tool(Enum):
    """A profiler that may be installed: title, program, the file it leaves, and the suffix of the artifact."""

    NCU = "Nsight Compute", "ncu", f"{_BASE}.ncu-rep", "ncu-rep"
    ROCPROFV3 = "rocprofv3", "rocprofv3", f"{_BASE}_kernel_trace.csv", "kernel_trace.csv"
    ROCPROF = "rocprof", "rocprof", f"{_BASE}.csv", "kernel_trace.csv"

    def __init__(self, title: str, program: str, leaves: str, suffix: str) -> None:
        self.title = title
        self.program = program
        self.leaves = leaves
        self.suffix = suffix


#: Suffixes that an artifact of a profiler may have.
SUFFIXES = frozenset(tool.suffix for tool in Tool)


@dataclass(frozen=True, kw_only=True)
class Report:
    """A profiler's report: text for a terminal, and the file that it wrote, if any."""

    text: str
    data: bytes = b""
    suffix: str = ""


def candidates(*, hip: bool) -> tuple[Tool, ...]:
    """The profilers for a kind of device, the best first."""
    return (Tool.ROCPROFV3, Tool.ROCPROF) if hip else (Tool.NCU,)


def choose(*, hip: bool, which: Callable[[str], str | None] = shutil.which) -> Tool | None:
    """The first profiler that is installed."""
    return next((tool for tool in candidates(hip=hip) if which(tool.program) is not None), None)


def missing(*, hip: bool) -> str:
    """A sentence that says that none is installed."""
    names = " nor ".join(tool.program for tool in candidates(hip=hip))
    return (
        f"The device's counters were not read: there is no {names} on PATH in this container (install it in the GPU "
        "type's image, or on the host)."
    )


def record_command(tool: Tool, target: Sequence[str], directory: Path) -> tuple[str, ...]:
    """The command that runs a program under a profiler, which writes to a directory."""
    match tool:
        case Tool.NCU:
            # The program marks where its one call begins and ends. Everything before is its warm-up.
            options: tuple[str, ...] = (
                *("--target-processes", "all", "--profile-from-start", "off", "--set", "full"),
                *("--force-overwrite", "--export", str(directory / _BASE)),
            )
        case Tool.ROCPROFV3:
            options = (
                *("--kernel-trace", "--stats", "--output-format", "csv"),
                *("--output-directory", str(directory), "--output-file", _BASE, "--"),
            )
        case Tool.ROCPROF:
            options = ("--stats", "--timestamp", "on", "-o", str(directory / f"{_BASE}.csv"))
    return (tool.program, *options, *target)


def page_command(tool: Tool, directory: Path) -> tuple[str, ...] | None:
    """The command that prints the recorded report; None: a file holds it."""
    if tool is not Tool.NCU:
        return None
    return (tool.program, "--import", str(directory / tool.leaves), "--page", "details")


def page_file(tool: Tool, directory: Path) -> Path:
    """The file with the readable report, where no command prints it."""
    return directory / (f"{_BASE}_kernel_stats.csv" if tool is Tool.ROCPROFV3 else f"{_BASE}.stats.csv")


def run(tool: Tool, target: Sequence[str], directory: Path, *, limit_s: float, most_bytes: int) -> Report:
    """Run a program under a profiler. Failures become text in the report.

    Args:
        tool: the profiler.
        target: the program's command line.
        directory: an empty directory for the profiler's files.
        limit_s: limit of each command, in seconds.
        most_bytes: a larger file is left out.
    """
    try:
        code, said = _done(record_command(tool, target, directory), limit_s)
        recorded = directory / tool.leaves
        if code != 0 or not recorded.exists():
            return Report(text=f"{tool.title} ended with exit code {code} and left no report:\n{said[-_SAID:]}")
        page = page_command(tool, directory)
        text = (
            _done(page, limit_s)[1]
            if page is not None
            else page_file(tool, directory).read_text(encoding="utf-8", errors="replace")
        )
    except subprocess.TimeoutExpired:
        return Report(
            text=f"{tool.title} did not finish within {limit_s:.0f} s, half of what was left of the time limit."
        )
    except OSError as error:
        return Report(text=f"{tool.title} could not be used: {error}")
    if recorded.stat().st_size > most_bytes:
        size = recorded.stat().st_size
        return Report(text=f"{text}\n({tool.leaves} is left out: {size} bytes, at most {most_bytes} are kept)")
    return Report(text=text, data=recorded.read_bytes(), suffix=tool.suffix)


def _done(argv: Sequence[str], limit_s: float) -> tuple[int, str]:
    """Exit code and output of a command. On timeout, its whole session is killed."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said
