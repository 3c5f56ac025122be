"""Runs a program again and again, each time killed at a later change of the file system, or connection.

    python -m tests.support.killed IMPORTS PROGRAM ARGUMENT...

Reads numbers, a line each. For each a fork of this process, which has executed IMPORTS, executes PROGRAM with the
arguments in `sys.argv`, and kills itself before that change; of a negative number, right after it. Prints how each
ended: exit code, or negative signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

_CHANGES = frozenset(
    {
        *("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "shutil.rmtree", "shutil.copymode"),
        *("fcntl.flock", "ctypes.dlopen", "sqlite3.connect", "socket.connect"),
    }
)
#: No program has as many changes.
_MOST = 500


def runs(
    imports: str,
    program: str,
    *arguments: object,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    every: int = 1,
    after: bool = False,
) -> Iterator[int]:
    """The change before which each run was killed, with `after` also right after it; the last one gets through."""
    command = [sys.executable, "-m", "tests.support.killed", imports, program, *map(str, arguments)]
    given = {**(os.environ if environment is None else environment), "PYTHONDONTWRITEBYTECODE": "1"}
    given["PYTHONPATH"] = str(Path(__file__).parents[2])
    with subprocess.Popen(
        command, cwd=folder, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        changes = range(1, _MOST, every)
        for number in (place for change in changes for place in ((change, -change) if after else (change,))):
            print(number, file=process.stdin, flush=True)
            ended = int(process.stdout.readline())
            assert ended in (0, -signal.SIGKILL)
            yield number
            if ended == 0:
                process.stdin.close()
                return
    raise AssertionError(f"no run got through with {_MOST} changes")


def _ended(program: str, number: int) -> int:
    """How a fork ends that is killed at a change."""
    child = os.fork()
    if child != 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _kill_at(number)
        exec(program, {})  # noqa: S102 that is what this process is for
        status = 0
    except SystemExit as error:
        status = int(error.code or 0)
    finally:
        os._exit(status)


def _kill_at(number: int) -> None:
    left = abs(number)

    def kill(frame: FrameType | None = None, *_: object) -> None:
        # The hook itself ends before the change is made.
        if frame is None or frame.f_code is not watch.__code__:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
        if writes or event in _CHANGES:
            left -= 1
            if left == 0 and number > 0:
                kill()
            elif left == 0:
                sys.setprofile(kill)

    sys.addaudithook(watch)


if __name__ == "__main__":
    _, given_imports, given_program, *sys.argv[1:] = sys.argv
    exec(given_imports)  # noqa: S102 as above
    for line in sys.stdin:
        print(_ended(given_program, int(line)), flush=True)  # noqa: T201 - the test reads it
