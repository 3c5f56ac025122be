"""Judges a group in place of submissions: the judge's process imports this when a request names it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tasks.harness.emulate import asked
from tasks.harness.judge.accelerator import device_of, expect_others, require_device
from tasks.harness.judge.evaluation import START_TIMEOUT_NS
from tasks.harness.judge.frames import Frames
from tasks.harness.judge.single_rank import SingleRank
from tasks.harness.judge.worker_client import WorkerClient
from tasks.harness.judge.worker_output import Collector, Watcher

from .evaluation import GroupJudge
from .group import Group
from .init_line import InitLine
from .request import GroupRequest


def judge(payload: Mapping[str, Any], *, single_rank: SingleRank, collector: Collector, frames: Frames) -> None:
    """Judge a group of modules. Its workers come one after the other, since each candidate has its own."""
    request = GroupRequest.from_payload(payload)
    device = device_of(request.device)
    single_rank.limit(request.memory_bytes, device)
    deadline_ns = time.monotonic_ns() + START_TIMEOUT_NS
    group = Group.from_message(request.group)
    with socket.socket(fileno=int(os.environ.pop("KR_RANKS_FD"))) as line:
        line.settimeout(START_TIMEOUT_NS / 1e9)
        init = InitLine(line, frames)
        reference, prepare_device = None, None
        gate = ""
        if device == "cpu":
            single_rank.warm_up(deadline_ns=deadline_ns)
        elif asked():
            require_device(device)
            gate = "the device is emulated"
        else:
            # The first worker, the reference's and this process make their contexts side by side.
            single_rank.begin_device(flush_bytes=None, deadline_ns=deadline_ns, tried=request.streams_wait)
            reference = WorkerClient(init.new_worker("reference"), Watcher(), core=single_rank.core)
            # What the first worker tries holds for all.
            reference.begin_device(flush_bytes=None, deadline_ns=deadline_ns, tried=True)
            require_device(device)
            if torch.version.cuda is not None:
                # Theirs while the reference is prepared.
                init.begin_ahead(len(group.candidates) - 1)

            def await_others() -> None:
                init.await_ahead()
                expect_others()

            prepare_device = partial(single_rank.prepare_device, device, await_others=await_others)
        first, control = single_rank.give_away()
        collector.start()
        GroupJudge(
            group,
            request=request,
            device=device,
            frames=frames,
            collector=collector,
            first=first,
            reference=reference,
            control=control if device == "cpu" else None,
            init=init,
            prepare_device=prepare_device,
            gate=gate,
        ).run(Path.cwd())
