"""Submissions of the plan, for the vector addition, beside the task's samples and those of `tests.gpu.test_attacks`."""

from __future__ import annotations

from typing import Final

#: Writes beyond what a process may: its context on the device is lost.
STRAYS: Final = """
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
__global__ void stray(float* where) { where[threadIdx.x + (1L << 40)] = 1.0f; }
void run(torch::Tensor x) { stray<<<1, 32>>>((float*)x.data_ptr()); }
'''
module = load_inline("stray", cpp_sources="void run(torch::Tensor x);", cuda_sources=SOURCE, functions=["run"])


def custom_kernel(data):
    module.run(data[0])
    torch.cuda.synchronize()
    return data[0] + data[1]
"""
ABORTS: Final = """
import os


def custom_kernel(data):
    os.abort()
"""
#: Keeps the device busy for minutes; the process cannot wait for it.
STUCK_KERNEL: Final = """
import torch


def custom_kernel(data):
    for _ in range(200):
        torch.cuda._sleep(4_000_000_000)
    return data[0] + data[1]
"""
HOARDS_HOST: Final = """
kept = []


def custom_kernel(data):
    while True:
        kept.append(bytearray(64 << 20))
"""
HOARDS_DEVICE: Final = """
import torch

kept = []


def custom_kernel(data):
    size = 1 << 36
    while size > 1 << 20:
        try:
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return data[0] + data[1]
"""
#: Says in advance that every call has ended, and answers when its work is done: after the release, and after the end.
ANSWERS_LATE: Final = """
import torch
from tasks.harness.shared.call_flags import FINISHED_AT, RELEASED_AT
from tasks.harness.worker.stream_block import StreamBlock

enqueues = StreamBlock.enqueue
torch.cuda.Event.elapsed_time = lambda *_: 0.002


def enqueue(self, order, kernel, *, adapt):
    words = self._page.words()
    words[FINISHED_AT // 8] = 0x7FFFFFFF
    while words[RELEASED_AT // 8] & 0xFFFFFFFF != order.call:
        pass
    queued = enqueues(self, order, kernel, adapt=adapt)
    torch.cuda.synchronize()
    return queued


StreamBlock.enqueue = enqueue


def custom_kernel(data):
    torch.cuda._sleep(10_000_000)
    return data[0] + data[1]
"""
#: Of ten million cycles says two microseconds.
CLAIMS_NOTHING: Final = """
import torch

torch.cuda.Event.elapsed_time = lambda *_: 0.002


def custom_kernel(data):
    torch.cuda._sleep(10_000_000)
    return data[0] + data[1]
"""
SLEEP_CYCLES: Final = 10_000_000
#: The clock of a device is not faster.
MAX_GHZ: Final = 3.0
#: What a container must not have: prints a line for each.
LOOKS_AROUND: Final = """
import os
import socket
from pathlib import Path

import torch

told = []


def look():
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
    found = {
        "uid": os.getuid(),
        "capabilities": status["CapEff"].strip(),
        "no new rights": status["NoNewPrivs"].strip(),
        "seccomp": status["Seccomp"].strip(),
        "interfaces": [name for _, name in socket.if_nameindex()] if hasattr(socket, "if_nameindex") else [],
        "devices": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none",
    }
    try:
        Path("/usr/written").touch()
        found["root"] = "writable"
    except OSError as error:
        found["root"] = type(error).__name__
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
        found["sockets"] = "allowed"
    except OSError as error:
        found["sockets"] = type(error).__name__
    return found


def custom_kernel(data):
    if not told:
        told.append(look())
        print("LOOK", __import__("json").dumps(told[0]), flush=True)
    return data[0] + data[1]
"""
