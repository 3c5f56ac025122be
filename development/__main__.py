"""The commands of the Makefile: `python -m development up`."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from development.demo import demo
from development.stack import REPOSITORY, STACKS, Stack, orderly, say, state_directory
from runner.base.environment import process_environment
from runner.base.errors import ConfigError, KernelRunnerError

_LOOK_S = 0.25
#: How long an interrupted command, and what it leaves running, may take to end.
_END_S = 60.0
#: Pause between two looks for orphans that have ended.
_REAP_S = 2.0
_PR_SET_CHILD_SUBREAPER = 36


def up(stack: Stack) -> None:
    """Start PostgreSQL, engine, daemon and gateway; migrate; publish the starter leaderboards."""
    with stack.lock():
        engine = stack.start_engine()
        say(f"container engine: {engine.url}{'' if engine.ours else ' (yours; make down leaves it alone)'}")
        url = stack.start_postgres()
        say(f"PostgreSQL: {url}")
        stack.write_config(database_url=url, engine=engine)
        stack.kernel_runner("migrate")
        stack.kernel_runner("leaderboard", "import", str(REPOSITORY / "tasks" / "problems" / "starter.yaml"), "--force")
        began = datetime.now(UTC)
        pid = stack.start_daemon()
        say(f"daemon: process {pid}, log {stack.daemon_log}; it proves its containers with a probe first")
        if not stack.daemon_serves(since=began):
            say(f"the daemon is not ready; its log says why: {stack.daemon_log}")
        gateway = stack.serve_gateway()
        if gateway is not None:
            say(f"gateway: {gateway}/ (`kernel-runner user token ME` logs you in); log {stack.gateway_log}")
        say("""up. Now: eval "$(make -s env)" and kernel-runner submit \
tasks/problems/vectoradd/solutions/correct/torch_add.py --leaderboard vectoradd --mode test --wait""")


def down(stack: Stack) -> None:
    """Stop what `up` started; the database's data stays."""
    with stack.lock():
        stack.stop_all()
    say("down")


def clean() -> None:
    """Stop this checkout's stacks and remove their data."""
    for name in STACKS:
        directory = state_directory(name)
        if directory.exists():
            stack = Stack(directory)
            with stack.lock():
                stack.remove()
            say(f"removed {directory}")


def run(stack: Stack, command: Sequence[str]) -> int:
    """Run a command with a container engine at hand; one that had to be started for it is stopped afterwards.

    An interrupt reaches the command once, which then has `_END_S` to end in order; a second one kills it. What it
    leaves running is ended.
    """
    with orderly(), stack.use() as engine:
        environment = {**process_environment(), "DOCKER_HOST": engine.url}
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        before = set(_all_children())
        try:
            process = subprocess.Popen(command, env=environment, process_group=0)
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be run: {error.strerror}") from error
        try:
            return _wait(process, before)
        finally:
            _end_orphans(before)


def _wait(process: subprocess.Popen[bytes], before: Collection[int]) -> int:
    """The exit code of a process in a group of its own, so that a terminal's Ctrl-C is passed on from here alone.

    Meanwhile orphans that have ended are reaped: a test run leaves thousands, each of which keeps its process id.
    """
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=_REAP_S)
            for pid in _all_children():
                if pid != process.pid and pid not in before:
                    with suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=_END_S)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        raise


def _end_orphans(before: Collection[int]) -> None:
    """End the processes that were handed to this one because their parents ended."""
    ended: dict[int, str] = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        asked: set[int] = set()
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline and (left := [pid for pid in _children() if pid not in before]):
            for pid in left:
                with suppress(ProcessLookupError, ChildProcessError):
                    if os.waitpid(pid, os.WNOHANG)[0] == 0 and pid not in asked:
                        ended[pid] = _command_of(pid)
                        os.kill(pid, number)
                        asked.add(pid)
            time.sleep(_LOOK_S)
    if ended:
        say(f"ended what the command had left running: {', '.join(sorted(ended.values()))}")


def _children() -> list[int]:
    """This process's children, but for those that keep the engine's containers: they end with the engine."""
    return [pid for pid in _all_children() if not _command_of(pid).startswith("containerd-shim")]


def _all_children() -> list[int]:
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return [int(pid) for pid in pids]


def _command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


def main(arguments: Sequence[str]) -> int:
    """Entry of `python -m development`."""
    usage = "usage: python -m development up | down | env | clean | demo | run -- COMMAND..."
    try:
        match list(arguments):
            case ["up"]:
                up(Stack(state_directory()))
            case ["down"]:
                down(Stack(state_directory()))
            case ["env"]:
                for name, value in Stack(state_directory()).environment().items():
                    print(f"export {name}={quote(value)}")  # noqa: T201 this is the command's output
            case ["clean"]:
                clean()
            case ["demo"]:
                demo()
            case ["run", "--", *command] if command:
                return run(Stack(state_directory("run")), command)
            case _:
                say(usage)
                return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except KernelRunnerError as error:
        say(str(error))
        return 2 if isinstance(error, ConfigError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
