"""Boot kind `steps`: runs the request's programs one after the other in /work, under the worker's uid.

Owns the life of one program: write its files, run it and drain its pipes, kill every process of the worker's uid, read
its artifacts. Does not interpret results. Standard library only: this runs inside the container.

Programs are hostile. They can leave traces for each other only in /work, /tmp and /dev/shm.
"""

from __future__ import annotations

import mimetypes
import os
import selectors
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandbox import protocol
from sandbox.inside.boot import WORK, BootConfig
from sandbox.inside.build_archive import check_name, send_archive
from sandbox.inside.connection import DaemonConnection
from sandbox.inside.output import Excerpt, ResultLines
from sandbox.inside.process import (
    CANNOT_EXECUTE,
    Descriptors,
    HelperError,
    InitError,
    Reaper,
    decode_status,
    kill_all_of,
    output_pipe,
    run_as,
    spawn,
)

#: An artifact travels in one frame as base64.
ARTIFACT_BYTES = 16 << 20
READ_BYTES = 1 << 18


def run_steps(request: Mapping[str, Any], *, boot: BootConfig, daemon: DaemonConnection, reaper: Reaper) -> None:
    """Run the steps of a request and report each.

    Raises:
        InitError: the request is invalid, or the container does not work.
    """
    parsed = parse_request(request)
    keep = parsed.keep
    started_ns = time.monotonic_ns()
    runner = _Runner(boot=boot, daemon=daemon, reaper=reaper, started_ns=started_ns)
    try:
        runner.write_files(parsed.files)
    except HelperError as error:
        raise InitError(f"cannot write the request's files to {WORK}: {error}") from error
    for step in parsed.steps:
        # Only the program knows its number of cases and its progress.
        daemon.send({"type": "progress", "phase": step.name, "done": 0, "total": 0})
        result, artifacts = runner.run(step)
        daemon.send(shorten(result, daemon.remaining_bytes))
        for artifact in artifacts:
            daemon.send(artifact)
        if result.exit_code is None or result.timed_out or result.output_limit:
            # A program that was killed may leave half a file, or a lock that is never released.
            keep = ()
        if not runs_next(step, result):
            # What it left serves no later run.
            keep = ()
            break
    if keep:
        send_archive(keep, boot=boot, daemon=daemon, reaper=reaper)


def runs_next(step: protocol.Step, result: protocol.StepResult) -> bool:
    """Whether the next step runs."""
    if step.continue_if == "passed":
        return result.result.get("check") == "pass" and not (result.timed_out or result.output_limit)
    if step.continue_if == "exit_0":
        return result.exit_code == 0
    return True


def parse_request(request: Mapping[str, Any]) -> protocol.StepsRequest:
    """Parse a `steps` request. Its build archive has arrived already and is not part of it.

    Raises:
        InitError: not a valid request.
    """
    if request.get("kind") != "steps":
        raise InitError(f"request of kind {request.get('kind')!r} in a container booted for 'steps'")
    try:
        parsed = protocol.read(protocol.StepsRequest, request, "steps request")
        for name in (*parsed.files, *parsed.keep):
            check_name(name)
        for step in parsed.steps:
            for name in (*step.files, *step.remove_after, *step.artifacts):
                check_name(name)
    except ValueError as error:
        raise InitError(f"steps request does not parse: {error}") from error
    if not all(step.argv for step in parsed.steps):
        raise InitError("steps request does not parse: a step has an empty argv")
    return parsed


def shorten(result: protocol.StepResult, max_bytes: int) -> dict[str, Any]:
    """Shorten a step's message until it fits into the report: first the output, then the results.

    A submission's output must not make the whole report invalid.
    """
    limit = min(max_bytes, protocol.MAX_FRAME_BYTES - (1 << 16))
    note = "\nsandbox: the report is full; output was left out\n"
    for keep_chars, keep_result in ((None, True), (1 << 17, True), (1 << 12, True), (1 << 12, False)):
        shorter = result
        if keep_chars is not None:
            shorter = replace(result, stdout=result.stdout[:keep_chars], stderr=result.stderr[:keep_chars] + note)
        if not keep_result:
            judged = shorter.judged and replace(shorter.judged, cases=())
            shorter = replace(shorter, result={}, judged=judged)
        message = shorter.to_message()
        if _message_bytes(message) <= limit:
            break
    return message


def _message_bytes(message: Mapping[str, Any]) -> int:
    try:
        return len(protocol.encode(message))
    except protocol.FrameError:
        return protocol.MAX_FRAME_BYTES + 1


class _Streams:
    """The read ends of a running program's pipes, and what was read so far."""

    def __init__(self, output_bytes: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.result = ResultLines()
        self.stdout, self.stderr = Excerpt(output_bytes), Excerpt(output_bytes)

    def open(self, sink: Callable[[bytes], None]) -> int:
        """Open a pipe whose content goes to `sink`; return its write end."""
        read, write = output_pipe()
        os.set_blocking(read, False)
        self.selector.register(read, selectors.EVENT_READ, sink)
        return write

    def read(self, fd: int, sink: Callable[[bytes], None]) -> bool:
        """Read once. False if nothing is left: end of file, or an empty pipe."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.selector.unregister(fd)
            os.close(fd)
            return False
        sink(data)
        return True

    def drain(self) -> None:
        """After the processes are dead: read what is left in the pipes. Does not wait for the end of file.

        A write end can be in flight in a Unix socket that no process holds. It keeps the pipe open without a writer.
        """
        for key in list(self.selector.get_map().values()):
            if callable(key.data):
                while self.read(key.fd, key.data):
                    pass

    def close(self) -> None:
        for key in list(self.selector.get_map().values()):
            if callable(key.data):
                os.close(key.fd)
        self.selector.close()


@dataclass(kw_only=True)
class _ProgramEnd:
    duration_ns: int
    timed_out: bool = False
    output_limit: bool = False


@dataclass(kw_only=True)
class _Runner:
    boot: BootConfig
    daemon: DaemonConnection
    reaper: Reaper
    started_ns: int

    def run(self, step: protocol.Step) -> tuple[protocol.StepResult, list[dict[str, Any]]]:
        """Run one step, from its files to its artifacts. Afterwards no process of the worker's uid is left."""
        begin_ns = time.monotonic_ns()
        try:
            self.write_files(step.files)
        except HelperError as error:
            return self._not_started(step, begin_ns, f"sandbox: cannot write to {WORK}: {error}\n"), []
        result, complaints = self._execute(step)
        artifacts = []
        for name in step.artifacts:
            artifact, complaint = self._fetch(name)
            artifacts += artifact
            complaints += complaint
        complaints += self._remove(step.remove_after)
        if complaints:
            result = replace(result, stderr=result.stderr + "".join(f"\n{text}\n" for text in complaints))
        return result, artifacts

    def _not_started(self, step: protocol.Step, begin_ns: int, reason: str) -> protocol.StepResult:
        """Report a step that cannot start because an earlier one filled /work or set a trap there."""
        return protocol.StepResult(
            name=step.name,
            command=shlex.join(step.argv),
            start_ns=begin_ns - self.started_ns,
            duration_ns=time.monotonic_ns() - begin_ns,
            exit_code=CANNOT_EXECUTE,
            stderr=reason,
            stderr_bytes=len(reason.encode()),
        )

    def _execute(self, step: protocol.Step) -> tuple[protocol.StepResult, list[str]]:
        streams = _Streams(self.boot.output_bytes)
        try:
            begin_ns = time.monotonic_ns()
            pid = self._start(step, streams)
            end = self._supervise(pid, step, streams, begin_ns)
            kill_all_of(self.boot.worker_uid, self.reaper)
            streams.drain()
        finally:
            streams.close()
        exit_code, signal = decode_status(self.reaper.final_status(pid))
        result = protocol.StepResult(
            name=step.name,
            command=shlex.join(step.argv),
            start_ns=begin_ns - self.started_ns,
            duration_ns=end.duration_ns,
            exit_code=exit_code,
            signal=signal,
            timed_out=end.timed_out,
            output_limit=end.output_limit,
            stdout=streams.stdout.text(),
            stderr=streams.stderr.text(),
            stdout_bytes=streams.stdout.total_bytes,
            stderr_bytes=streams.stderr.total_bytes,
            result=streams.result.values(),
        )
        return result, [] if streams.result.complaint is None else [streams.result.complaint]

    def _start(self, step: protocol.Step, streams: _Streams) -> int:
        null = os.open(os.devnull, os.O_RDONLY)
        stdout = streams.open(streams.stdout.add)
        stderr = streams.open(streams.stderr.add)
        ours = [null, stdout, stderr]
        env = self.boot.worker_environment(step.env)
        if step.result_pipe:
            ours.append(streams.open(streams.result.add))
            env["POPCORN_FD"] = "3"
        try:
            descriptors = Descriptors(stdin=null, stdout=stdout, stderr=stderr, more=tuple(ours[3:]))
            return spawn(
                step.argv, account=self.boot.worker_account, descriptors=descriptors, env=env, reaper=self.reaper
            )
        finally:
            for fd in ours:
                os.close(fd)

    def _supervise(self, pid: int, step: protocol.Step, streams: _Streams, begin_ns: int) -> _ProgramEnd:
        """Read all output until the program ends, its time is up, or it wrote too much."""
        selector = streams.selector
        selector.register(0, selectors.EVENT_READ, "daemon")
        selector.register(self.reaper.wakeup_fd, selectors.EVENT_READ, "children")
        limit_ns = int(step.timeout_s * 1e9)
        while True:
            elapsed_ns = time.monotonic_ns() - begin_ns
            if self.reaper.status(pid) is not None:
                return _ProgramEnd(duration_ns=elapsed_ns)
            if elapsed_ns >= limit_ns:
                return _ProgramEnd(duration_ns=elapsed_ns, timed_out=True)
            if streams.stdout.total_bytes + streams.stderr.total_bytes > self.boot.output_kill_bytes:
                return _ProgramEnd(duration_ns=elapsed_ns, output_limit=True)
            for key, _ in selector.select((limit_ns - elapsed_ns) / 1e9):
                if key.data == "daemon":
                    self._unexpected_input()
                elif key.data == "children":
                    self.reaper.collect()
                else:
                    streams.read(key.fd, key.data)

    def _unexpected_input(self) -> None:
        for message in self.daemon.receive():
            raise InitError(f"a {message['type']!r} frame after the request, expected none")

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Write files below /work as the worker, over whatever has their names.

        Raises:
            HelperError: the files cannot be written.
        """
        if files:
            run_as(self.boot.worker_account, lambda _: write_below(files), reaper=self.reaper)

    def _remove(self, names: tuple[str, ...]) -> list[str]:
        if not names:
            return []
        try:
            run_as(self.boot.worker_account, lambda _: clear_all(names), reaper=self.reaper)
        except HelperError as error:
            return [f"sandbox: cannot remove {', '.join(names)}: {error}"]
        return []

    def _fetch(self, name: str) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the artifact's frame, if the file is there, or the reason why it cannot be read."""
        limit = min(ARTIFACT_BYTES, max(0, self.daemon.remaining_bytes // 4))
        try:
            data = run_as(self.boot.worker_account, lambda fd: copy_out(name, fd), reaper=self.reaper, max_bytes=limit)
        except HelperError as error:
            return [], [f"sandbox: no artifact {name!r}: {error}"]
        if not data:
            return [], []
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return [protocol.Artifact(name=name, media_type=media_type, data=bytes(data)).to_message()], []


def write_below(files: Mapping[str, bytes]) -> None:
    """Write files relative to the working directory (runs as the worker).

    An existing entry is removed first, so that a planted link is replaced and not followed.
    """
    for name, data in files.items():
        for parent in reversed(Path(name).parents[:-1]):
            if not stat.S_ISDIR(_mode(parent)):
                clear(parent)
                parent.mkdir(mode=0o755)
        clear(Path(name))
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(fd, "wb") as file:
            file.write(data)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def clear(path: Path) -> None:
    """Remove the entry of this name, of any kind (runs as the worker)."""
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    elif mode:
        path.unlink()


def clear_all(names: tuple[str, ...]) -> None:
    """Remove entries relative to the working directory (runs as the worker). Missing names do no harm."""
    for name in names:
        clear(Path(name))


def copy_out(name: str, fd: int) -> None:
    """Write a regular file to a descriptor (runs as the worker). The reader bounds the size. No file: nothing.

    O_NONBLOCK: opening a planted named pipe must not block.
    """
    if not os.path.lexists(name):
        return
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(source, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            raise OSError(0, "not a regular file", name)
        while chunk := file.read(1 << 16):
            os.write(fd, chunk)
