"""What submissions do with their streams, in a fork of the template as in a new interpreter.

Where solutions are tried: tests/acceptance/test_habits.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_HABITS = (
    "sys.stdout.reconfigure(encoding='utf-8')",
    "sys.stdout.reconfigure(errors='surrogatepass'); print('\\ud800')",
    "sys.stdout.reconfigure(line_buffering=True); print('line'); os._exit(0)",
    "sys.stderr.reconfigure(encoding='utf-8', errors='replace')",
    "sys.stdin.reconfigure(encoding='latin-1'); print(repr(sys.stdin.read()))",
    "print(sys.stdout.seekable(), sys.stdin.readable(), sys.stdout.isatty(), sys.stdout.fileno())",
    "print(sys.stdout.name, sys.stdout.mode, sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering)",
    "print(sys.stderr.name, sys.stderr.mode, sys.stderr.encoding, sys.stderr.errors, sys.stderr.line_buffering)",
    "print(sys.stdin.name, sys.stdin.mode, sys.stdin.encoding, sys.stdin.errors)",
    "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8'); print('σ²')",
    "sys.stdout = open(1, 'w', encoding='utf-16', closefd=False); print('wide')",
    "sys.stdout.buffer.write(b'\\xff\\x00'); sys.stdout.buffer.flush()",
    "sys.stdout.detach().write(b'raw')",
    "print('text'); sys.stdout.buffer.write(b'bytes'); print(sys.stdout.write_through, sys.stderr.write_through)",
    "sys.__stdout__.write('own')",
    "print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.stdin is sys.__stdin__)",
    "sys.stdout.tell()",
    "input()",
)
_BEFORE = "import io, os, sys\n"
#: As the template does it: streams of files, over which pipes are put.
_FORK = (
    _BEFORE
    + "from sandbox.inside import template\n"
    + "os.dup2(int(sys.argv[1]), 1)\nos.dup2(os.open(os.devnull, os.O_RDONLY), 0)\ntemplate.open_streams()\n"
)


def _said(
    code: str, *arguments: str, stdout: int, keep: tuple[int, ...] = (), unbuffered: bool = False
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        pass_fds=keep,
        env={**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("habit", _HABITS)
def test_streams_are_those_of_a_new_interpreter(tmp_path: Path, habit: str, unbuffered: bool) -> None:
    """The same output, the same exit code, the same last line of a traceback."""
    new = _said(_BEFORE + habit, stdout=subprocess.PIPE, unbuffered=unbuffered)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, (tmp_path / "file").open("wb") as file:
        fork = _said(_FORK + habit, str(write), stdout=file.fileno(), keep=(write,), unbuffered=unbuffered)
        os.close(write)
        printed = reader.read()
    assert (printed, fork.returncode) == (new.stdout, new.returncode), fork.stderr
    assert fork.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:]
