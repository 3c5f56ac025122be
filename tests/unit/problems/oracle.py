"""The record of which `oracles` has one for each task, how to find it by a task's name, and what public boards have."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

TASKS = Path(__file__).resolve().parents[3] / "tasks" / "problems"
#: Every task folder that one process on one device evaluates.
NAMES = tuple(
    sorted(
        path.parent.name
        for path in TASKS.glob("*/task.yml")
        if not yaml.safe_load(path.read_text()).get("multi_gpu", False)
    )
)

#: What a kernel returns: a tensor, or a sequence of them.
Output = torch.Tensor | Sequence[torch.Tensor]

#: Task folder -> tests and benchmarks of the public board of that name, and arguments of its largest benchmark.
PUBLIC: Mapping[str, tuple[int, int, Mapping[str, object]]] = {
    "amd_ag_gemm": (11, 6, {"m": 8192, "n": 29568, "k": 8192, "world_size": 8}),
    "amd_all2all": (9, 5, {"num_experts": 256, "hidden_dim": 7168, "max_num_tokens": 256, "world_size": 8}),
    "amd_fp8_mm": (11, 18, {"m": 6144, "n": 7168, "k": 2304}),
    "amd_gemm_rs": (11, 6, {"m": 8192, "n": 8192, "k": 29568, "world_size": 8}),
    "amd_identity": (5, 7, {"size": 65536}),
    "amd_mla_decode": (4, 2, {"batchsize": 128, "dim": 7168, "dq": 1536, "prefill": 6144, "nheads": 128}),
    "amd_moe": (3, 2, {"dhidden": 7168, "dexpert": 2048, "nroutedexperts": 32, "bs": 1, "seqlen": 8192}),
    "causal_conv1d": (5, 3, {"B": 1, "D": 2560, "S": 4096, "W": 4}),
    "cholesky": (17, 15, {"batch": 1, "n": 32768}),
    "conv2d": (5, 5, {"size": 256, "kernelsize": 32, "channels": 128, "batch": 1}),
    "cross_entropy": (3, 3, {"vocab_size": 128256, "batch_size": 4096}),
    "eigh": (39, 13, {"batch": 8, "n": 2048}),
    "fp8_quant": (5, 3, {"num_tokens": 4096, "hidden_dim": 7168, "group_size": 128}),
    "gated_deltanet_chunk_fwd_h": (3, 3, {"B": 2, "T": 1024, "H": 3, "K": 64, "V": 64}),
    "gated_deltanet_chunk_fwd_o": (3, 3, {"B": 2, "T": 1024, "H": 3, "K": 64, "V": 64}),
    "gated_deltanet_recompute_w_u": (3, 3, {"B": 2, "T": 1024, "H": 3, "K": 64, "V": 64}),
    "grayscale": (3, 6, {"size": 16384}),
    "histogram": (5, 6, {"size": 10485760}),
    "identity": (5, 7, {"size": 65536}),
    "matmul": (5, 8, {"m": 4096, "n": 5120, "k": 4096}),
    "mixed_mla": (4, 8, {"batchsize": 256, "kvseqlen": 8192}),
    "moe_mxfp4": (3, 7, {"dhidden": 7168, "dexpert": 2048, "nroutedexperts": 32, "bs": 512}),
    "mxfp4_mm": (4, 6, {"m": 64, "n": 7168, "k": 2048}),
    "nvfp4_dual_gemm": (10, 4, {"m": 512, "n": 4096, "k": 7168, "l": 1}),
    "nvfp4_gemm": (10, 3, {"m": 128, "n": 7168, "k": 16384, "l": 1}),
    "nvfp4_gemv": (10, 3, {"m": 7168, "k": 16384, "l": 1}),
    "nvfp4_group_gemm": (10, 4, {"k": [7168] * 8, "n": [4096] * 8, "g": 8}),
    "prefixsum": (5, 11, {"size": 268435456}),
    "qr": (19, 7, {"batch": 640, "n": 512}),
    "qr_v2": (22, 12, {"batch": 640, "n": 512, "case": "mixed"}),
    "sort": (5, 5, {"size": 100000000}),
    "trimul": (18, 7, {"seqlen": 1024, "bs": 1, "dim": 384, "hiddendim": 128}),
    "vectoradd": (5, 5, {"size": 16384}),
    "vectorsum": (5, 6, {"size": 52428800}),
}


@dataclass(frozen=True)
class Oracle:
    """The right answer, or one of them."""

    #: The task's data -> the exact result in float64.
    expected: Callable[[Any], Output]
    #: Of all outputs, or of each.
    dtype: torch.dtype | Sequence[torch.dtype]
    #: Whether there is one right answer, element by element; else identities are checked.
    unique: bool = True
    #: An error that is beyond the task's tolerances, relative and absolute.
    off: float = 0.02

    def answer(self, data: object) -> Output:
        """The exact result, rounded once to the output's type."""
        exact, dtype = self.expected(data), self.dtype
        if isinstance(dtype, torch.dtype):
            return exact.to(dtype) if isinstance(exact, torch.Tensor) else [tensor.to(dtype) for tensor in exact]
        return [tensor.to(each) for tensor, each in zip(exact, dtype, strict=True)]


def oracle_of(name: str) -> Oracle:
    """The oracle of a task folder."""
    # They need this module.
    from tests.unit.problems.oracles import ORACLES

    return ORACLES[name]


def leaves(output: object) -> list[torch.Tensor]:
    """The tensors in whatever a task makes or a kernel returns, in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    if dataclasses.is_dataclass(output):
        output = vars(output)
    if isinstance(output, Mapping):
        output = list(output.values())
    return [tensor for item in output for tensor in leaves(item)] if isinstance(output, list | tuple) else []
