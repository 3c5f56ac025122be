"""Compiles what a Triton template launches, for devices that are not here; launches nothing.

A program. Arguments: a folder with the task's files and the template as `submission.py`, architectures and cases, both
as JSON. Triton itself makes signature and options from the arguments of each launch. Writes a JSON line for each kernel
and architecture.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

#: Bytes of shared memory (LDS) that one program may have, by architecture. A kernel that needs more compiles, but its
#: launch fails. From the CUDA C++ Programming Guide, "Compute Capabilities", and the ROCm documentation, "AMD GPU
#: specifications".
SHARED_BYTES: Final[Mapping[str, int]] = {
    "sm_75": 64 << 10,
    "sm_80": 163 << 10,
    "sm_89": 99 << 10,
    "sm_90": 227 << 10,
    "sm_100": 227 << 10,
    "gfx90a": 64 << 10,
    "gfx942": 64 << 10,
    "gfx950": 160 << 10,
}


class Driver:
    """What Triton asks of a device at a launch. Device `n` is the architecture of that number."""

    def __init__(self, architectures: Sequence[str]) -> None:
        self._targets = [_target(name) for name in architectures]
        self.device = 0

    def get_current_device(self) -> int:
        """The number of the architecture that is compiled for."""
        return self.device

    def get_current_stream(self, device: int) -> int:  # noqa: ARG002 Triton gives it
        """No stream: nothing is launched."""
        return 0

    def get_current_target(self) -> GPUTarget:
        """What is compiled for."""
        return self._targets[self.device]


def _target(architecture: str) -> GPUTarget:
    """Triton's name of an architecture; the last number is the size of a warp."""
    if architecture.startswith("sm_"):
        return GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32)
    return GPUTarget("hip", architecture, 64)


def main() -> None:
    """Compile what the template launches for each case."""
    directory, architectures, cases = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    sys.path.insert(0, directory)
    driver = Driver(architectures)
    triton.runtime.driver.set_active(driver)
    original = JITFunction.run
    seen: set[tuple[str, str]] = set()

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> None:  # noqa: ANN401 Triton's own
        for device, name in enumerate(architectures):
            driver.device = device
            kernel = original(self, *arguments, grid=grid, warmup=True, **keywords)
            if (name, kernel.hash) in seen:
                continue
            seen.add((name, kernel.hash))
            binary = kernel.asm["cubin" if "cubin" in kernel.asm else "hsaco"]
            found = {
                "kernel": self.fn.__name__,
                "architecture": name,
                "binary_bytes": len(binary),
                "shared_bytes": kernel.metadata.shared,
            }
            sys.stdout.write(json.dumps(found) + "\n")

    JITFunction.run = run
    reference, submission = importlib.import_module("reference"), importlib.import_module("submission")
    for case in cases:
        # Of several ranks this is the first; what would arrive from the others is zeros.
        several = "world_size" in case
        if several:
            _stand_alone(case["world_size"])
        submission.custom_kernel(reference.generate_input(**case, **({"rank": 0} if several else {})))


def _stand_alone(world_size: int) -> None:
    """Replace the collectives that the templates call."""

    def zeros(output: torch.Tensor, *_: object, **__: object) -> None:
        output.zero_()

    replaced: dict[str, Any] = {
        "get_world_size": lambda: world_size,
        "all_gather_into_tensor": zeros,
        "reduce_scatter_tensor": zeros,
        "all_to_all_single": zeros,
    }
    for name, function in replaced.items():
        setattr(dist, name, function)


if __name__ == "__main__":
    main()
