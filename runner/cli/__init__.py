"""The command line `kernel-runner`.

`main` is the console script. Each command lives in a module that `_MODULES` names, and registers itself on the
application when that is imported. Only the module of the command that was asked for is: all of them take half a second.
"""

from __future__ import annotations

import copy
import errno
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TextIO

import typer

from runner.base.environment import restart_in_utf8
from runner.base.errors import ConfigError, KernelRunnerError
from runner.cli.app import ExitCode, app, exit_code_for, fail
from sandbox.errors import SandboxError

__all__ = ["main", "program"]

#: The module of each command and of each group of commands, in the order of the help.
#: With the class of their keys (`load_config`), this is all that the core knows of guests.
_MODULES: Final[Mapping[str, str]] = {
    "artifact": "runner.cli.artifact",
    "check": "runner.cli.check",
    "discord": "runner.extras.discord.commands",
    "eval": "runner.cli.evaluate",
    "gateway": "runner.extras.gateway.commands",
    "install": "runner.cli.install",
    "upgrade": "runner.cli.install",
    "uninstall": "runner.cli.install",
    "migrate": "runner.cli.migrate",
    "rerun": "runner.extras.boards.commands.again",
    "invalidate": "runner.extras.boards.commands.again",
    "failed": "runner.extras.boards.commands.again",
    "serve": "runner.cli.serve",
    "status": "runner.cli.status",
    "submit": "runner.cli.submit",
    "cancel": "runner.cli.submit",
    "batch": "runner.extras.trainers.client.commands",
    "data": "runner.extras.data.commands",
    "gpu": "runner.cli.gpu",
    "host": "runner.cli.host",
    "kernelbook": "runner.extras.trainers.kernelbook.commands",
    "leaderboard": "runner.extras.boards.commands.finals",
    "mcp": "runner.extras.mcp.commands",
    "receipt": "runner.extras.receipt_commands",
    "task": "runner.extras.boards.commands.task",
    "user": "runner.extras.gateway.commands",
    "webhook": "runner.extras.webhooks.commands",
}

#: A disk, a quota or a limit takes no more, or nothing.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and say how it went; `arguments` default to the process's own.

    An error of the project becomes one or two sentences on stderr and an exit code. Anything else is a defect and
    keeps its traceback.
    """
    if arguments is None:
        restart_in_utf8()
    # A shell can close them (`>&-`).
    sys.stdin = sys.stdin or _nowhere()
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A legacy locale cannot print µ or ✓; a question mark is better than a crash after the work is done.
            stream.reconfigure(errors="replace")
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except (BrokenPipeError, SystemExit) as error:
        # The reader of our stdout or stderr has gone (`| head`). Typer and rich end the process then.
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        code = ExitCode.READER_GONE
    except OSError as error:
        # As of a full disk or quota, a limit of a file's size, or a terminal that has gone.
        if error.filename is not None or not _is_full(sys.stdout):
            if error.errno not in _NO_ROOM and _has_temporary_folder():
                raise
            fail(f"cannot write: {error.strerror}; make room, or set TMPDIR to another folder for temporary files")
            return ExitCode.INFRASTRUCTURE
        # Both may go to the same file.
        with suppress(OSError):
            fail(f"cannot write to stdout: {error.strerror}")
        code = ExitCode.INFRASTRUCTURE
    # What was not written is lost. The interpreter would complain at its end.
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _run(words: Sequence[str]) -> int:
    for word in words:
        if not word.isascii() and any("\ud800" <= character <= "\udfff" for character in word):
            fail(f"the argument {word!a} is not UTF-8; type or rename it in UTF-8")
            return ExitCode.USAGE
    try:
        code = program(words)(args=words, prog_name="kernel-runner", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        _explain_usage(error.format_message())
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        fail("interrupted")
        return ExitCode.INTERRUPTED
    except (KernelRunnerError, SandboxError) as error:
        fail(str(error))
        return exit_code_for(error)
    return code if isinstance(code, int) else ExitCode.OK


def _nowhere() -> TextIO:
    return Path(os.devnull).open("r+", encoding="utf-8")


def _has_temporary_folder() -> bool:
    try:
        tempfile.gettempdir()
    except OSError:
        return False
    return True


def _is_full(stream: TextIO) -> bool:
    """Whether not even a line end can be written."""
    try:
        stream.write("\n")
        stream.flush()
    except OSError:
        return True
    return False


def program(words: Sequence[str]) -> typer.Typer:
    """The application with the command that these arguments name; with all commands where they name none.

    Raises:
        ConfigError: the command is that of a guest which is not installed.
    """
    named = _command_of(words)
    names = list(_MODULES) if named is None or named not in _MODULES else [named]
    for name in names:
        try:
            import_module(_MODULES[name])
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("runner.extras"):
                raise
            if name == named:
                message = f"found no {error.name}, expected it for `{name}`; install the whole package of this release"
                raise ConfigError(message) from error
    commands = {info.name or getattr(info.callback, "__name__", ""): info for info in app.registered_commands}
    groups = {info.name: info for info in app.registered_groups}
    chosen = copy.copy(app)
    chosen.registered_commands = [commands[name] for name in names if name in commands]
    chosen.registered_groups = [groups[name] for name in names if name in groups]
    return chosen


def _command_of(words: Sequence[str]) -> str | None:
    """The first argument that is no option of the root command; None before an option that ends the program."""
    left = iter(words)
    for word in left:
        if word == "--config":
            next(left, None)
        elif not word.startswith("-"):
            return word
        elif not word.startswith("--config="):
            return None
    return None


def _explain_usage(message: str) -> None:
    if message.startswith("Usage:"):
        # A group called without a command answers with its help.
        typer.echo(message, err=True)
    else:
        fail(f"{message} (see `kernel-runner --help`)")
