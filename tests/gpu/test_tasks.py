"""Kinds of tasks and submissions on a real accelerator that the tasks of this project have no sample of."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch

from tasks.harness import local
from tasks.harness.emulate import asked
from tasks.harness.judge.request import Compiled
from tasks.harness.local import LocalReport
from tests.gpu.bench import ROOT, verdict_of
from tests.support.judge_requests import request_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator on this machine")
on_hardware = pytest.mark.skipif(asked(), reason="the device is emulated")

#: Scales stay on the host, as with references that pass them to `torch._scaled_mm`.
MIXED = """
import torch


def generate_input(size, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator).cuda(), torch.rand(4, generator=generator)


def ref_kernel(data):
    x, scales = data
    return x * float(scales.sum())


def check_implementation(data, output):
    good = output.shape == data[0].shape and bool(torch.allclose(output, ref_kernel(data)))
    return good, "" if good else "the products are wrong"
"""
MIXED_RIGHT = "def custom_kernel(data):\n    x, scales = data\n    return x * float(scales.sum())\n"
COMPILED_REFERENCE = """
import torch


def generate_input(size, seed):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).cuda()


@torch.compile
def ref_kernel(data):
    return torch.relu(data) * 2 + 1


def check_implementation(data, output):
    good = output.shape == data.shape and bool(torch.allclose(output, ref_kernel(data)))
    return good, "" if good else "wrong"
"""
COMPILED_RIGHT = "import torch\n\n\ndef custom_kernel(data):\n    return torch.relu(data) * 2 + 1\n"
PLAIN = COMPILED_REFERENCE.replace("@torch.compile\n", "")
#: Takes what the device has, and keeps it.
HOARDER = """
import torch

kept = []


def custom_kernel(data):
    size = 1 << 32
    while size > 1 << 16:
        try:
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return torch.clamp_min(data, 0, out=kept[0][: data.nbytes].view(data.dtype))
"""
#: A task of `lang: cu`: the last input is the output.
IN_PLACE = """
import torch


def generate_input(size, seed):
    x = torch.randn(size, generator=torch.Generator().manual_seed(seed)).cuda()
    return x, torch.zeros_like(x)


def check_implementation(data, output):
    good = output.shape == data[0].shape and bool(torch.allclose(output, data[0] + 1.0))
    return good, "" if good else "the sums are wrong"
"""
CU = """
#include <kernel_runner.h>

__global__ void add(const float *x, float *out, long long size) {
    long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (at < size) out[at] = x[at] + STEP;
}

extern "C" const char *custom_kernel(const kr_value *values, int32_t count) {
    if (count != 2) return "expected two tensors";
    long long size = values[0].tensor.shape[0];
    add<<<(size + 255) / 256, 256>>>((const float *)values[0].tensor.data, (float *)values[1].tensor.data, size);
    return nullptr;
}
"""


def evaluated(reference: str, submission: str, *modes: str, size: int = 1000, **fields: Any) -> LocalReport:  # noqa: ANN401 any field
    """What the judge says to a submission."""
    case = f"size: {size}; seed: 4"
    return local.evaluate(request_of(reference, submission, case, *modes, timeout_s=120.0, device="cuda", **fields))


def test_inputs_of_host_and_device_go_together() -> None:
    """Each tensor is in the worker where the task made it."""
    found = verdict_of(evaluated(MIXED, MIXED_RIGHT, "test", "benchmark").steps)
    assert found.verdict == "accepted", found.message


@on_hardware
def test_a_reference_may_be_compiled() -> None:
    """The judge has a cache of its own, and a compiler."""
    found = verdict_of(evaluated(COMPILED_REFERENCE, COMPILED_RIGHT, "test", "benchmark").steps)
    assert found.verdict == "accepted", found.message


@on_hardware
def test_a_submission_that_keeps_the_devices_memory_has_reached_its_limit() -> None:
    """It is not the task's fault that nothing is left to judge it with."""
    found = verdict_of(evaluated(PLAIN, HOARDER, "test", "benchmark", size=1 << 28, memory_bytes=8 << 30).steps)
    assert found.verdict == "memory_limit", found


def test_a_profile_has_the_devices_work() -> None:
    """In the trace of torch's profiler."""
    report = evaluated(PLAIN, COMPILED_RIGHT, "profile.0")
    assert verdict_of(report.steps).verdict == "accepted", verdict_of(report.steps).message
    assert "profile.0.trace.json.gz" in [name for name, _, _ in report.artifacts]


@pytest.mark.skipif(shutil.which("nvcc") is None or torch.version.cuda is None, reason="needs nvcc on PATH")
@on_hardware
@pytest.mark.parametrize(("step", "expected"), [("1.0f", "accepted"), ("2.0f", "wrong_answer")])
def test_a_submission_in_cuda_is_compiled_and_judged(step: str, expected: str) -> None:
    """As a library that the worker calls."""
    argv = ("nvcc", "-arch=native", "-O3", "--std=c++20", "-shared", "-Xcompiler=-fPIC", f"-DSTEP={step}")
    include = f"-I{ROOT / 'tasks' / 'harness' / 'include'}"
    compiled = Compiled(program="eval.out", argv=(*argv, include, "submission.cu", "-o", "eval.out"))
    report = evaluated(IN_PLACE, CU, "test", "benchmark", submission_name="submission.cu", compiled=compiled)
    found = verdict_of(report.steps)
    assert found.verdict == expected, found
