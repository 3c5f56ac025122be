"""Entry point of the judge: makes inputs, releases them to the worker, measures each call, checks outputs, decides.

Init starts this process beside the worker, under another uid, before there is anything to judge. Torch is imported at
once. One request arrives on stdin (`request`). The task's files are written to this process's private directory, and
its reference is imported here. The submission only ever reaches the worker. One `step` frame per mode goes to stdout.
File descriptor 1 is kept for frames: whatever a task prints goes to stderr. The process ends with 0 after its last
frame. Any other exit code means that the harness itself broke.

Every verdict comes from bytes that the judge copied and from its own clock. What the worker says is a claim, or text to
show.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import socket
import sys
import time
import traceback
from pathlib import Path

# The reference's threads must not go on spinning while the submission is timed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from tasks.harness.emulate import install_if_asked

from .accelerator import device_of
from .author_code import open_page_if_given
from .control import Control
from .evaluation import START_TIMEOUT_NS, Judge
from .frames import Frames
from .problem import guard_heap, scramble
from .request import JudgeRequest
from .single_rank import SingleRank
from .worker_output import Collector, read_request
from .workers import Workers


def _start_threads() -> None:
    """Start torch's threads now: later the submission may have used up the container's processes.

    One thread fewer than there are cores. The worker waits for its next call on one core, and a thread on that core
    would wait for the scheduler each time.
    """
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
    torch.ones(1 << 20).add_(1)


def _further_sockets(ranks: int | None) -> tuple[list[socket.socket], list[socket.socket]]:
    """The judge's ends of the sockets to further workers and to rank checkers, which are started with the request."""
    with socket.socket(fileno=int(os.environ.pop("KR_RANKS_FD"))) as line:
        line.settimeout(START_TIMEOUT_NS / 1e9)
        workers, checkers = (0, 0) if ranks is None else (ranks - 1, ranks)
        sockets: list[socket.socket] = []
        while len(sockets) < workers + checkers:
            data, descriptors, _, _ = socket.recv_fds(line, 1, 1)
            if not data:
                raise RuntimeError(f"{len(sockets)} processes were started, expected {workers + checkers}")
            sockets += [socket.socket(fileno=descriptor) for descriptor in descriptors]
    return sockets[:workers], sockets[workers:]


def _workers(
    request: JudgeRequest, device: str, collector: Collector, line: socket.socket, single_rank: SingleRank
) -> Workers:
    further, checkers = _further_sockets(request.ranks)
    if request.ranks is None:
        single_rank.limit(request.memory_bytes, device)
        return single_rank
    single_rank.close()
    # Here and below: what few requests need, most judges do without.
    from .multi_rank import MultiRank

    return MultiRank([line, *further], checkers, collector, device=device, memory_bytes=request.memory_bytes)


def _sees_devices() -> bool:
    """Whether the container has an accelerator, judged by device files: asking the driver would start it."""
    return any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def main() -> int:
    """Wait for a request on stdin, judge it, exit. The exit code is 0 unless the harness itself broke."""
    # Before anything else: the control process must have no threads, descriptors or secrets of this process.
    control = Control.start()
    open_page_if_given()
    guard_heap()
    _start_threads()
    install_if_asked()
    frames = Frames()
    try:
        scramble()
        collector = Collector(
            stdout_fd=int(os.environ.pop("KR_WORKER_STDOUT_FD")),
            stderr_fd=int(os.environ.pop("KR_WORKER_STDERR_FD")),
            # What a task or a reference closes is not this one.
            init_fd=os.dup(0),
        )
        line = socket.socket(fileno=int(os.environ.pop("KR_WORKER_FD")))
        single_rank = SingleRank(line, collector, control=control)
        if not _sees_devices() and not select.select([0], [], [], 0)[0]:
            # As a rule there is no request yet, so this costs no time. On a device these measurements are not used.
            single_rank.warm_up(deadline_ns=time.monotonic_ns() + START_TIMEOUT_NS)
        # From here until the request comes, nothing in this container computes.
        frames.send({"type": "prepared"})
        payload = read_request(0)["payload"]
        if "judge" in payload:
            # The module that a guest has for its kind of job.
            judge = importlib.import_module(payload["judge"]).judge
            judge(payload, single_rank=single_rank, collector=collector, frames=frames)
            sys.stderr.flush()
            os._exit(0)
        request = JudgeRequest.from_payload(payload)
        device = device_of(request.device)
        with contextlib.closing(_workers(request, device, collector, line, single_rank)) as workers:
            collector.start()
            Judge(request, device=device, frames=frames, workers=workers, collector=collector).run(Path.cwd())
    except Exception:  # noqa: BLE001 the harness boundary: init passes this on as `internal_error`
        traceback.print_exc()
        return 1
    sys.stderr.flush()
    # Every frame has been written. Ending torch and the task's threads would only cost time.
    os._exit(0)
