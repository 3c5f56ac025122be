"""Judges a group in place of submissions: the judge's process imports this when a request names it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tasks.harness.emulate import asked
from tasks.harness.judge.accelerator import device_of, require_device
from tasks.harness.judge.evaluation import START_TIMEOUT_NS
from tasks.harness.judge.frames import Frames
from tasks.harness.judge.single_rank import SingleRank
from tasks.harness.judge.worker_client import WorkerClient
from tasks.harness.judge.worker_output import Collector, Watcher

from .evaluation import GroupJudge
from .group import Group
from .request import GroupRequest


def judge(payload: Mapping[str, Any], *, single_rank: SingleRank, collector: Collector, frames: Frames) -> None:
    """Judge a group of modules. Its workers come one after the other, since each candidate has its own."""
    request = GroupRequest.from_payload(payload)
    device = device_of(request.device)
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
