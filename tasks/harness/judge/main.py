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
import os
import select
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

# The reference's threads must not go on spinning while the submission is timed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from tasks.harness.emulate import asked, install_if_asked

from .accelerator import require_device
from .author_code import open_page_if_given
from .control import Control
from .evaluation import START_TIMEOUT_NS, Judge
from .frames import Frames
from .problem import guard_heap, scramble
from .request import JudgeRequest
from .single_rank import SingleRank
from .worker_client import WorkerClient
from .worker_output import Collector, Watcher, read_request
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


def _device(asked: str) -> str:
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


def _judge_group(payload: Mapping[str, Any], *, single_rank: SingleRank, collector: Collector, frames: Frames) -> None:
    """Judge a group of modules. Its workers come one after the other, since each candidate has its own."""
    from .modules.evaluation import GroupJudge
    from .modules.group import Group
    from .modules.request import GroupRequest

    request = GroupRequest.from_payload(payload)
    device = _device(request.device)
    single_rank.limit(request.memory_bytes, device)
    deadline_ns = time.monotonic_ns() + START_TIMEOUT_NS
    with socket.socket(fileno=int(os.environ.pop("KR_RANKS_FD"))) as line:
        line.settimeout(START_TIMEOUT_NS / 1e9)

        def new_worker(role: str) -> socket.socket:
            frames.send({"type": "spawn", "role": role})
            data, descriptors, _, _ = socket.recv_fds(line, 1, 1)
            if not data:
                raise RuntimeError(f"no {role} worker was started")
            return socket.socket(fileno=descriptors[0])

        def unpack(candidate: int) -> bool:
            frames.send({"type": "unpack", "name": str(candidate)})
            answer = line.recv(1)
            if not answer:
                raise RuntimeError("init does not say whether it has unpacked a build")
            return answer == b"u"

        reference, calibration, gate = None, None, ""
        if device == "cpu":
            single_rank.warm_up(deadline_ns=deadline_ns)
        elif asked():
            require_device(device)
            gate = "the device is emulated"
        else:
            # The first worker, the reference's and this process make their contexts side by side.
            single_rank.begin_device(flush_bytes=None, deadline_ns=deadline_ns, tried=request.streams_wait)
            reference = WorkerClient(new_worker("reference"), Watcher(), core=single_rank.core)
            # What the first worker tries holds for all.
            reference.begin_device(flush_bytes=None, deadline_ns=deadline_ns, tried=True)
            require_device(device)
            await_others = partial(reference.await_device, deadline_ns=deadline_ns)
            calibration, gate = single_rank.prepare_device(device, deadline_ns=deadline_ns, await_others=await_others)
        first, control = single_rank.give_away()
        collector.start()
        GroupJudge(
            Group.from_message(request.group),
            request=request.as_judge_request(device),
            device=device,
            frames=frames,
            collector=collector,
            first=first,
            reference=reference,
            control=control if device == "cpu" else None,
            new_worker=new_worker,
            calibration=calibration,
            gate=gate,
            builds={int(number): message for number, message in request.builds.items()},
            unpack=unpack,
        ).run(Path.cwd())


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
        if "kind" in payload:
            _judge_group(payload, single_rank=single_rank, collector=collector, frames=frames)
            sys.stderr.flush()
            os._exit(0)
        request = JudgeRequest.from_payload(payload)
        device = _device(request.device)
        with contextlib.closing(_workers(request, device, collector, line, single_rank)) as workers:
            collector.start()
            Judge(request, device=device, frames=frames, workers=workers, collector=collector).run(Path.cwd())
    except Exception:  # noqa: BLE001 the harness boundary: init passes this on as `internal_error`
        traceback.print_exc()
        return 1
    sys.stderr.flush()
    # Every frame has been written. Ending torch and the task's threads would only cost time.
    os._exit(0)
