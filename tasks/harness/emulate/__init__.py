"""An emulated CUDA device: programs that name `device="cuda"` run on processor cores, without a changed line.

For trying tasks and submissions on a machine without an accelerator. Every tensor "on the device" is an ordinary tensor
in host memory that reports `cuda:0` as its device (`mode`). `torch.cuda` reports one device whose streams run
everything at once, in order, and whose events read the host's clock (`device`). What needs a compiler for devices
(Triton, CUDA extensions) or a driver (CUDA graphs) is refused by name (`hooks`). Times show the speed of a processor
and never rank: the runner refuses ranked runs.

KR_EMULATE_CUDA switches it on and holds the device's memory in bytes. Judge, rank checkers and workers call
`install_if_asked`. A task's own eval program and its processes get it from `../site/sitecustomize.py`, which is on
their path. They load this package from its file, so it must stand alone, and it must import torch only when told to.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Environment variable: bytes of the emulated device's memory; unset where nothing is emulated.
VARIABLE = "KR_EMULATE_CUDA"


def ask(memory_bytes: int) -> None:
    """Emulate a device with so much memory from now on, in this process and in those it starts."""
    os.environ[VARIABLE] = str(memory_bytes)
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "site")
    install_if_asked()


def asked() -> bool:
    """Whether a device is emulated here."""
    return bool(os.environ.get(VARIABLE))


def install_if_asked() -> None:
    """Emulate from now on, in all threads of this process, if the environment says so."""
    memory = os.environ.get(VARIABLE)
    if memory:
        from .hooks import watch_imports
        from .install import install

        watch_imports(None)
        install(int(memory))


def install_with_torch() -> None:
    """The same, as soon as torch is imported. Processes without torch are not changed."""
    memory = os.environ.get(VARIABLE)
    if memory:
        from .hooks import watch_imports

        watch_imports(int(memory))
