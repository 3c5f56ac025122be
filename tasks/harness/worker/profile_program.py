"""Runs a task's own eval program below the vendor's profiler, and leaves the capture beside it.

Started in the program's place, as the worker's user, in its directory. Nothing that it does is judged. Without a
profiler the program runs as it is, and makes a profile of its own.
Arguments: the step's name, a capture as JSON, and the program's command line.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tasks.harness.shared.profilers import CAPTURED, NOTHING_CAPTURED, Capture, Tool, missing, run
from tasks.harness.shared.wire import MAX_TABLE_BYTES


def main() -> int:
    """Run the program; its exit code, or 1 where nothing was captured."""
    name, options, *program = sys.argv[1:]
    results = int(os.environ["POPCORN_FD"])
    # KernelBot's programs mark their call for Nsight Compute alone.
    tool = Tool.NCU
    why = missing(tool)
    if why is not None:
        sys.stderr.write(f"{why}\n")
        os.environ.pop(CAPTURED, None)
        return subprocess.run(program, pass_fds=(results,), check=False).returncode
    with tempfile.TemporaryDirectory() as directory:
        report = run(
            tool, program, Path(directory), capture=Capture(**json.loads(options)), limit_s=None, pass_fds=(results,)
        )
    for suffix, data in report.files.items():
        Path(f"{name}.{suffix}").write_bytes(data)
    sys.stdout.write(report.output)
    lines = {
        "benchmark.0.report": base64.b64encode(report.text.encode()[:MAX_TABLE_BYTES]).decode("ascii"),
        "benchmark.0.runner.profiler": tool.program,
        **({} if report.failure is None else {NOTHING_CAPTURED: report.failure.replace("\n", " ")}),
    }
    # After the program's own: the last line of a key counts.
    with os.fdopen(results, "w", encoding="utf-8") as stream:
        stream.writelines(f"{key}: {value}\n" for key, value in lines.items())
    return 0 if report.failure is None else 1
