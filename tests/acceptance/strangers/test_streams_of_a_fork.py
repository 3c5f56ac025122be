"""What submissions do with their streams, in a fork of the template as in a new interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.live import ROOT

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


#: What `task check` does with a solution, its own output in a file.
_TRIES = """
import sys
from pathlib import Path
from runner.base.model import Mode
from runner.task_format import load_folder
from tests.acceptance.judging.asking import asked
from tests.acceptance.judging.forked_judges import ForkedJudges
task = load_folder(Path(sys.argv[1])).task
processes = ForkedJudges()
verdict, message = processes.verdict(asked(task, sys.argv[2].encode(), Mode.TEST))
processes.close()
sys.exit(message if verdict != "accepted" else 0)
"""


@pytest.mark.parametrize("habit", [_HABITS[0], _HABITS[3]])
def test_they_are_where_solutions_are_tried(tmp_path: Path, habit: str) -> None:
    """Wherever the command's own output goes."""
    source = f"{_BEFORE}print('before')\n{habit}\ndef custom_kernel(data):\n    return data[0] + data[1]\n"
    folder = str(ROOT / "tasks" / "problems" / "vectoradd")
    with (tmp_path / "file").open("wb") as file:
        tried = _said(_TRIES, folder, source, stdout=file.fileno())
    assert tried.returncode == 0, tried.stderr
