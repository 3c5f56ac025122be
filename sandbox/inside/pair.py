"""Boot kind `pair`: a judge and a worker under two uids, joined by a socketpair, started before any request arrives.

Owns their descriptors. Forwards the request to the judge and the judge's frames to the daemon; kills both at the end.
The judge's frames are checked and rebuilt. The worker has no descriptor over which it could send one. A request for
several ranks gets further workers, which share all but the socket to the judge, and a rank checker for each rank, with
the judge's account. When one worker ends, all are killed.
A `successive` request gets its workers one after the other: the judge's `spawn` frames ask for them. Before each, all
processes of the last one are killed and waited for, and its files are removed, so no submission meets another's. An
`ahead` frame asks for forks that run the boot document's code and then wait, as unreachable as the template, until one
becomes the next worker. The build archive of such a request has parts. An `unpack` frame of the judge names the part of
the worker that is there, before it runs any of its submission. Each worker gets one part at most, and each part is
unpacked once.
After a `stay_open` request a further one gets a new judge and new workers of the same template, when all processes of
the last one are dead and its files are removed.
A request may ask for files that the worker leaves behind. They are packed when judge and worker are dead, if the judge
accepted every mode.

Judge: stdin = one `request` frame, then `reading` frames and one `worker_exit` frame; stdout = frames; stderr = kept
for the end message. KR_WORKER_FD, KR_WORKER_STDOUT_FD and KR_WORKER_STDERR_FD name the descriptors of the first worker.
KR_AUTHOR_PAGE_FD names a page on which the judge writes which code of the task's or the reference's author runs in it.
Over KR_RANKS_FD come the sockets of further workers, then those of rank checkers, before the request, one descriptor
with one byte each, or after each `spawn` frame the socket of that worker. One that is asked for the `reference` has the
judge's account. After an `unpack` frame one byte comes: `u` if the files are there, `n` if none of them is. After an
`ahead` frame `a` comes, in between, when all of those are ready.
Worker: KR_JUDGE_FD names its socket; stdin = /dev/null.
Rank checker: KR_RANK_CHECKER_FD names its socket; stdin = /dev/null; stdout and stderr are the judge's stderr.

Standard library only: this runs inside the container.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import selectors
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sandbox import protocol
from sandbox.inside.boot import BootConfig
from sandbox.inside.build_archive import send_archive, unpack_archive
from sandbox.inside.clean import clean_up
from sandbox.inside.connection import DaemonConnection, IncomingRequest
from sandbox.inside.output import Excerpt
from sandbox.inside.process import (
    Account,
    DaemonGone,
    Descriptors,
    InitError,
    Reaper,
    decode_status,
    kill_all_of,
    output_pipe,
    spawn,
)
from sandbox.inside.steps import shorten
from sandbox.inside.template import READY, Held, Template

JUDGE_STDERR_BYTES = 16 << 10
MAX_RANKS = 64
#: Workers that a judge may have started ahead.
MAX_AHEAD = 16
#: Limit of the readings that the judge has not read yet.
MAX_UNREAD_BYTES = 64 << 10
READ_BYTES = 1 << 18
#: How soon a container notices that it has its own cores.
CORES_POLL_S = 0.02


class JudgeEnded(InitError):
    """The judge's process ended before its work was done. `author_exit`: in whose code; None: in its own."""

    def __init__(self, message: str, author_exit: protocol.AuthorExit | None) -> None:
        super().__init__(message)
        self.author_exit = author_exit


class Pair:
    """The processes, and init's ends of their pipes."""

    def __init__(
        self, *, boot: BootConfig, daemon: DaemonConnection, reaper: Reaper, template: Template | None = None
    ) -> None:
        """`template`: of an earlier pair, or one that has imported elsewhere; None: one is started."""
        self._boot = boot
        self._daemon = daemon
        self._reaper = reaper
        #: None where the boot document names no preload.
        self._template = template or start_template(boot, reaper)
        self._stderr = Excerpt(JUDGE_STDERR_BYTES)
        # No total limit here: `_forward` bounds what reaches the daemon.
        self._frames = protocol.Decoder()
        self._to_judge = bytearray()
        self._requested = False
        self._incoming = IncomingRequest()
        self._worker_reported = False
        self._successive = self._stay_open = False
        #: Parts of the archive that no worker has had, and whether the worker that is there has had one.
        self._archives: dict[str, bytes] = {}
        self._unpacked = False
        self._keep: tuple[str, ...] = ()
        self._all_accepted = True
        #: What the next step says of artifacts for which the report has no room.
        self._left_out = ""
        #: Workers of the request that came before the one that is there.
        self._replaced = 0
        #: Workers that were started ahead, each with the judge's end of its socket; and those that are not ready yet.
        self._ahead: list[tuple[Held, socket.socket]] = []
        self._unready = 0
        self._selector = selectors.DefaultSelector()
        self._start()

    def _start(self) -> None:
        judge_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._judge_in, judge_stdin = _pipe(to_child=True)
        self._judge_out, judge_stdout = _pipe()
        self._judge_err, judge_stderr = _pipe()
        self._ranks_line, judge_ranks = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        out_read, out_write = output_pipe()
        err_read, err_write = output_pipe()
        #: stdin, stdout and stderr of every worker; kept open until the number of workers is known.
        self._worker_fds = [os.open(os.devnull, os.O_RDONLY), out_write, err_write]
        #: Says after the judge's end whose code ran in it.
        self._author_page = os.memfd_create("author page")
        os.ftruncate(self._author_page, protocol.AUTHOR_PAGE_BYTES)
        #: Kept open until the rank checkers run.
        self._judge_stderr = judge_stderr
        boot = self._boot
        self._judge_pid = self._spawn(
            boot.judge,
            account=boot.judge_account,
            descriptors=Descriptors(
                stdin=judge_stdin,
                stdout=judge_stdout,
                stderr=judge_stderr,
                more=(judge_end.fileno(), out_read, err_read, judge_ranks.fileno(), self._author_page),
            ),
            env=boot.judge_environment(
                {
                    "KR_WORKER_FD": "3",
                    "KR_WORKER_STDOUT_FD": "4",
                    "KR_WORKER_STDERR_FD": "5",
                    "KR_RANKS_FD": "6",
                    protocol.AUTHOR_PAGE_FD: "7",
                }
            ),
        )
        #: By rank.
        self._worker_pids = [self._spawn_worker(worker_end)]
        for end in (judge_end, worker_end, judge_ranks):
            end.close()
        for fd in (judge_stdin, judge_stdout, out_read, err_read):
            os.close(fd)

    def _spawn(self, argv: Sequence[str], *, account: Account, descriptors: Descriptors, env: Mapping[str, str]) -> int:
        if self._template is not None:
            return self._template.spawn(argv, account=account, descriptors=descriptors, env=env)
        return spawn(argv, account=account, descriptors=descriptors, env=env, reaper=self._reaper)

    def _spawn_worker(self, line: socket.socket, *, trusted: bool = False) -> int:
        """Start a worker; a trusted one runs what the judge may run, with its account."""
        stdin, stdout, stderr = self._worker_fds
        boot, extra = self._boot, {"KR_JUDGE_FD": "3"}
        return self._spawn(
            boot.worker,
            account=boot.judge_account if trusted else boot.worker_account,
            descriptors=Descriptors(stdin=stdin, stdout=stdout, stderr=stderr, more=(line.fileno(),)),
            env=boot.judge_environment(extra) if trusted else boot.worker_environment(extra),
        )

    def _on_spawn(self, role: object) -> None:
        """Give the judge a worker of its request."""
        if not self._successive or role not in ("candidate", "reference"):
            raise protocol.FrameError(f"a spawn frame for {role!r}, which the request does not allow")
        if role == "candidate":
            kill_all_of(self._boot.worker_uid, self._reaper)
            self._reaper.final_status(self._worker_pids[0])
            clean_up(self._boot, self._reaper)
            self._reset_streams()
        # If the judge has died, its exit status says how.
        with contextlib.suppress(BrokenPipeError):
            pid = self._release() if role == "candidate" else None
            if pid is None:
                with self._line_to_judge() as end:
                    pid = self._spawn_worker(end, trusted=role == "reference")
            if role == "candidate":
                self._worker_pids = [pid]
                self._replaced += 1
                self._worker_reported = self._unpacked = False

    def _on_ahead(self, count: object) -> None:
        """Start workers whose turns come later. They wait for their account, beside submissions of others.

        The judge gets a byte when all are ready, or gone.
        """
        if not self._successive or self._ahead or not isinstance(count, int) or not 0 <= count <= MAX_AHEAD:
            raise protocol.FrameError(f"an ahead frame for {count!r}, which the request does not allow")
        if self._template is not None and self._boot.ahead:
            for _ in range(count):
                self._hold(self._template)
        self._unready = len(self._ahead)
        self._tell_ready()

    def _hold(self, template: Template) -> None:
        stdin, stdout, stderr = self._worker_fds
        judge_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with worker_end:
            held = template.hold(
                self._boot.worker,
                account=self._boot.worker_account,
                descriptors=Descriptors(stdin=stdin, stdout=stdout, stderr=stderr, more=(worker_end.fileno(),)),
                env=self._boot.worker_environment({"KR_JUDGE_FD": "3"}),
                first=self._boot.ahead,
            )
        if held is None:
            judge_end.close()
            return
        self._ahead.append((held, judge_end))
        self._selector.register(held.line, selectors.EVENT_READ, partial(self._on_held, held, judge_end))

    def _on_held(self, held: Held, judge_end: socket.socket) -> None:
        """One that was started ahead is ready, or has ended."""
        if held.line.recv(1) != READY:
            self._ahead.remove((held, judge_end))
            self._end_held(held, judge_end)
        else:
            self._selector.unregister(held.line)
        self._unready -= 1
        self._tell_ready()

    def _tell_ready(self) -> None:
        if not self._unready:
            with contextlib.suppress(BrokenPipeError):
                self._ranks_line.sendall(b"a")

    def _release(self) -> int | None:
        """Let one that was started ahead become the next worker; None: there is none.

        Raises:
            BrokenPipeError: the judge has died.
        """
        while self._ahead and not self._unready:
            held, judge_end = self._ahead.pop()
            with judge_end:
                if self._reaper.status(held.pid) is None and held.release():
                    socket.send_fds(self._ranks_line, [b"r"], [judge_end.fileno()])
                    return held.pid
        return None

    def _end_ahead(self) -> None:
        """Kill all that were started ahead and are no workers yet. Raises: as `_end_held`."""
        while self._ahead:
            self._end_held(*self._ahead.pop())

    def _end_held(self, held: Held, judge_end: socket.socket) -> None:
        """Kill one that was started ahead: no uid of it is a worker's.

        Raises:
            InitError: it does not end.
        """
        judge_end.close()
        with contextlib.suppress(KeyError):
            self._selector.unregister(held.line)
        held.line.close()
        if self._reaper.status(held.pid) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(held.pid, signal.SIGKILL)
            self._reaper.final_status(held.pid)

    def _reset_streams(self) -> None:
        """Take back what a worker may have set of the streams that the next one gets, too; sizes the judge resets."""
        for fd in self._worker_fds:
            fcntl.fcntl(fd, fcntl.F_SETFL, 0)

    def _on_unpack(self, name: object) -> None:
        """Put what was built for the worker that is there into its directory. It has run nothing of a submission."""
        if not isinstance(name, str) or name not in self._archives or self._unpacked:
            raise protocol.FrameError(f"an unpack frame for {name!r}, which the request does not allow")
        self._unpacked = True
        answer = b"u"
        try:
            unpack_archive(self._archives.pop(name), boot=self._boot, reaper=self._reaper)
        except InitError:
            # Half a cache is worse than none.
            clean_up(self._boot, self._reaper)
            answer = b"n"
        with contextlib.suppress(BrokenPipeError):
            self._ranks_line.sendall(answer)

    def _add_ranks(self, ranks: int | None) -> None:
        """Start the further workers and the rank checkers that the request needs. None is added later."""
        # If the judge has died, its exit status says how.
        with contextlib.suppress(BrokenPipeError):
            for _ in range(1, ranks or 1):
                with self._line_to_judge() as end:
                    self._worker_pids.append(self._spawn_worker(end))
            for _ in range(ranks or 0):
                with self._line_to_judge() as end:
                    self._spawn_rank_checker(end)
        os.close(self._judge_stderr)
        if not self._successive:
            self._no_more_workers()

    @contextlib.contextmanager
    def _line_to_judge(self) -> Iterator[socket.socket]:
        """A new process's end of a socket to the judge, which gets the other one afterwards.

        Raises:
            BrokenPipeError: the judge has died.
        """
        judge_end, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with judge_end, its_end:
            yield its_end
            socket.send_fds(self._ranks_line, [b"r"], [judge_end.fileno()])

    def _spawn_rank_checker(self, line: socket.socket) -> None:
        boot, (stdin, _, _) = self._boot, self._worker_fds
        self._spawn(
            boot.rank_checker,
            account=boot.judge_account,
            descriptors=Descriptors(
                stdin=stdin, stdout=self._judge_stderr, stderr=self._judge_stderr, more=(line.fileno(),)
            ),
            env=boot.judge_environment({"KR_RANK_CHECKER_FD": "3"}),
        )

    def _no_more_workers(self) -> None:
        """Close what only the start of workers needs."""
        self._close_lines()
        if self._template is not None and not self._stay_open:
            # A submission reaches its worker only after this. Where workers or requests follow each other the template
            # stays, as unreachable for them as init.
            self._template.close()

    def _close_lines(self) -> None:
        """Close the socket to the judge, and the streams of every worker, which their processes have."""
        self._ranks_line.close()
        while self._worker_fds:
            os.close(self._worker_fds.pop())

    def serve(self) -> Pair | None:
        """Forward frames until the judge has exited with 0; return what serves a further request, if there may be one.

        Raises:
            InitError: the judge failed, or broke the protocol.
            FrameError: the daemon broke the protocol.
        """
        selector = self._selector
        selector.register(0, selectors.EVENT_READ, self._on_daemon)
        selector.register(self._reaper.wakeup_fd, selectors.EVENT_READ, self._reaper.collect)
        selector.register(self._judge_out, selectors.EVENT_READ, self._on_frames)
        selector.register(self._judge_err, selectors.EVENT_READ, self._on_stderr)
        while self._reaper.status(self._judge_pid) is None:
            for key, _ in selector.select():
                key.data()
            self._report_worker()
        self._finish()
        return self if self._stay_open else None

    def serve_next(self, incoming: IncomingRequest) -> Pair | None:
        """Serve a further request with new processes, which meet nothing of this one's.

        Raises: as `serve`.
        """
        boot, reaper = self._boot, self._reaper
        for uid in (boot.worker_uid, boot.judge_uid):
            kill_all_of(uid, reaper)
        clean_up(boot, reaper, judge_too=True)
        self._close()
        following = Pair(boot=boot, daemon=self._daemon, reaper=reaper, template=self._template)
        following._take(incoming)
        return following.serve()

    def _close(self) -> None:
        """Close all descriptors of a request but those of the template."""
        self._selector.close()
        self._close_lines()
        for fd in (self._judge_in, self._judge_out, self._judge_err, self._author_page):
            os.close(fd)

    def _finish(self) -> None:
        """After the judge's end: kill the rest, forward what is left in the pipes, and check how the judge ended."""
        self._end_ahead()
        for uid in (self._boot.worker_uid, self._boot.judge_uid):
            kill_all_of(uid, self._reaper)
        while self._on_stderr():
            pass
        status = self._reaper.status(self._judge_pid)
        exit_code, number = decode_status(status or 0)
        how = f"exit code {exit_code}" if number is None else f"signal {number}"
        author_exit = protocol.AuthorExit.read(self._author_page, how)
        if author_exit is not None:
            # What it reported before that counts.
            while self._on_frames():
                pass
            raise JudgeEnded(str(author_exit), author_exit)
        if exit_code == 0:
            while self._on_frames():
                pass
            if self._frames.pending_bytes:
                raise InitError(f"the judge ended within a frame, {self._frames.pending_bytes} bytes into it")
            if self._requested:
                if self._keep and self._all_accepted:
                    send_archive(self._keep, boot=self._boot, daemon=self._daemon, reaper=self._reaper)
                return
            raise InitError(f"the judge ended before it had a request{self._stderr_note()}")
        raise InitError(f"the judge ended with {how}{self._stderr_note()}")

    def _stderr_note(self) -> str:
        text = self._stderr.text().strip()
        return f"; its stderr: {text}" if text else "; its stderr is empty"

    def _on_daemon(self) -> None:
        for message in self._daemon.receive():
            if self._requested:
                self._on_reading(message)
                continue
            if self._incoming.take(message):
                self._take(self._incoming)

    def _take(self, incoming: IncomingRequest) -> None:
        request = incoming.request
        if request.get("kind") != "pair":
            raise InitError(f"request of kind {request.get('kind')!r} in a container booted for 'pair'")
        self._begin(protocol.read(protocol.PairRequest, request, "request"), incoming.archive)

    def _on_reading(self, message: dict[str, Any]) -> None:
        """Forward the state of the devices. If the judge reads too slowly, it misses some readings."""
        if message["type"] != "reading":
            raise protocol.FrameError(f"a {message['type']!r} frame after the request, expected readings alone")
        reading = protocol.Reading.from_message(message)
        if len(self._to_judge) < MAX_UNREAD_BYTES:
            self._send_to_judge(reading.to_message())

    def _begin(self, request: protocol.PairRequest, archive: bytes) -> None:
        """Send the judge its request, after the submission's files are in the workers' directory."""
        if request.ranks is not None and not 1 <= request.ranks <= MAX_RANKS:
            raise InitError(f"request for {request.ranks} ranks, expected none, or 1 to {MAX_RANKS}")
        self._requested = True
        self._successive, self._stay_open, self._keep = request.successive, request.stay_open, request.keep
        if self._successive:
            self._archives = split_archive(archive, request.archives)
        else:
            unpack_archive(archive, boot=self._boot, reaper=self._reaper)
        self._add_ranks(request.ranks)
        self._send_to_judge({"type": "request", "payload": request.payload})

    def _send_to_judge(self, message: Mapping[str, Any]) -> None:
        self._to_judge += protocol.encode(message)
        if self._judge_in not in self._selector.get_map():
            self._selector.register(self._judge_in, selectors.EVENT_WRITE, self._on_judge_writable)

    def _on_judge_writable(self) -> None:
        try:
            written = os.write(self._judge_in, self._to_judge)
            del self._to_judge[:written]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The judge closed its stdin or died. Its exit status says how.
            self._to_judge.clear()
        if not self._to_judge:
            self._selector.unregister(self._judge_in)

    def _report_worker(self) -> None:
        """When a worker has ended: kill its children and the other ranks, and tell the judge how it ended."""
        statuses = enumerate(self._reaper.status(pid) for pid in self._worker_pids)
        rank, status = next(((rank, status) for rank, status in statuses if status is not None), (0, None))
        if status is None or self._worker_reported:
            return
        self._worker_reported = True
        kill_all_of(self._boot.worker_uid, self._reaper)
        exit_code, number = decode_status(status)
        rank += self._replaced
        self._send_to_judge({"type": "worker_exit", "rank": rank, "exit_code": exit_code, "signal": number})

    def _on_stderr(self) -> bool:
        data = self._read(self._judge_err)
        self._stderr.add(data)
        return bool(data)

    def _on_frames(self) -> bool:
        data = self._read(self._judge_out)
        try:
            for message in self._frames.feed(data):
                if message["type"] not in ("spawn", "ahead", "unpack"):
                    self._forward(rebuild_frame(message))
                elif self._reaper.status(self._judge_pid) is not None:
                    # The judge has ended. A worker that init started for it now would live on beside the next request.
                    continue
                elif message["type"] == "spawn":
                    self._on_spawn(message.get("role"))
                elif message["type"] == "ahead":
                    self._on_ahead(message.get("count"))
                else:
                    self._on_unpack(message.get("name"))
        except protocol.FrameError as error:
            raise InitError(f"the judge broke the protocol: {error}{self._stderr_note()}") from error
        return bool(data)

    def _forward(self, message: dict[str, Any]) -> None:
        """Forward a judge's frame, shortened if it exceeds a quarter of the space that is left in the report.

        What a submission prints or profiles must not make the whole report invalid.
        """
        max_bytes = self._daemon.remaining_bytes // 4
        if message["type"] == "step":
            result = protocol.StepResult.from_message(message)
            self._all_accepted &= result.judged is not None and result.judged.verdict == "accepted"
            message = shorten(replace(result, stderr=result.stderr + self._left_out), max_bytes)
            self._left_out = ""
        elif message["type"] == "artifact" and len(message["data_b64"]) > max_bytes:
            self._left_out += f"\nsandbox: no artifact {message['name']!r}: the report has no room for it\n"
            return
        self._daemon.send(message)

    def _read(self, fd: int) -> bytes:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            with contextlib.suppress(KeyError):
                self._selector.unregister(fd)
        return data


def start_template(boot: BootConfig, reaper: Reaper) -> Template | None:
    """Start the template, if the boot document names a preload."""
    if not boot.preload:
        return None
    return Template(boot.judge[0], boot.preload, env=boot.worker_environment({}), reaper=reaper)


def import_elsewhere(boot: BootConfig, daemon: DaemonConnection, reaper: Reaper) -> Template | None:
    """Run the preload on the cores that the container has now; return the template when it has its own cores.

    Raises:
        DaemonGone: the daemon closed standard input meanwhile.
    """
    template = start_template(boot, reaper)
    if template is not None:
        template.wait()
    daemon.send({"type": "imported"})
    while os.sched_getaffinity(0) != set(boot.awaited_cpus):
        if select.select([0], [], [], CORES_POLL_S)[0]:
            # Nothing is sent before `ready`.
            raise DaemonGone
    return template


def split_archive(archive: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The parts of a successive request's archive, by name.

    Raises:
        InitError: the sizes are not those of this archive.
    """
    if not all(size > 0 for size in sizes.values()) or sum(sizes.values()) != len(archive):
        raise InitError(f"request names archives {dict(sizes)!r}, found {len(archive)} bytes")
    content = io.BytesIO(archive)
    return {name: content.read(size) for name, size in sizes.items()}


def rebuild_frame(message: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild a judge's frame from the fields that the protocol defines.

    Raises:
        FrameError: a judge may not send this frame.
    """
    kind = message["type"]
    if kind == "prepared":
        return {"type": "prepared"}
    for frame in (protocol.StepResult, protocol.Progress, protocol.Artifact):
        if kind == frame.TYPE:
            return frame.from_message(message).to_message()
    raise protocol.FrameError(f"a judge may send prepared, progress, step and artifact frames, found {kind!r}")


def _pipe(*, to_child: bool = False) -> tuple[int, int]:
    """Init's end of a pipe, which does not block, and the child's."""
    ours, its = reversed(os.pipe()) if to_child else output_pipe()
    os.set_blocking(ours, False)
    return ours, its
