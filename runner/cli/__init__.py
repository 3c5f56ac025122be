"""The command line `kernel-runner`: the topmost layer; nothing imports it.

`main` is the console script. Each command lives in the module named after it and registers itself on the application;
importing them here is what makes them exist.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import typer

from runner.cli import (
    artifact,
    batch,
    check,
    data,
    demo,
    evaluate,
    gateway,
    gpu,
    host,
    image,
    install,
    kernelbook,
    leaderboard,
    logs,
    migrate,
    rerun,
    serve,
    status,
    submit,
    task,
    traces,
    user,
    watch,
)
from runner.cli.app import ExitCode, app, exit_code_for, fail
from runner.errors import KernelRunnerError
from sandbox.errors import SandboxError

__all__ = [
    "app",
    "artifact",
    "batch",
    "check",
    "data",
    "demo",
    "evaluate",
    "gateway",
    "gpu",
    "host",
    "image",
    "install",
    "kernelbook",
    "leaderboard",
    "logs",
    "main",
    "migrate",
    "rerun",
    "serve",
    "status",
    "submit",
    "task",
    "traces",
    "user",
    "watch",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and say how it went; `arguments` default to the process's own.

    An error of the project becomes one or two sentences on stderr and an exit code. Anything else is a defect and
    keeps its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A legacy locale cannot print µ or ✓; a question mark is better than a crash after the work is done.
            stream.reconfigure(errors="replace")
    try:
        code = app(
            args=None if arguments is None else list(arguments), prog_name="kernel-runner", standalone_mode=False
        )
        sys.stdout.flush()
    except typer.TyperException as error:
        _explain_usage(error.format_message())
        return error.exit_code
    except typer.Abort:
        fail("interrupted")
        return ExitCode.INTERRUPTED
    except (KernelRunnerError, SandboxError) as error:
        fail(str(error))
        return exit_code_for(error)
    except BrokenPipeError:
        # The reader of our stdout has gone (`| head`); the interpreter must not complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    return code if isinstance(code, int) else ExitCode.OK


def _explain_usage(message: str) -> None:
    if message.startswith("Usage:"):
        # A group called without a command answers with its help.
        typer.echo(message, err=True)
    else:
        fail(f"{message} (see `kernel-runner --help`)")
