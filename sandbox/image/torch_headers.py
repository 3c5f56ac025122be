"""Precompiles torch/extension.h, which load_inline else reads anew for each submission.

Run it with the evaluation environment's Python, as the user who owns that: when an image is built, and on a host after
torch or the compiler has changed. Writes one file for each set of flags, of almost a gigabyte, below
PREFIX/share/kernel-runner, where `tasks/harness/shared/torch_headers.py` has compilers look. GCC takes the one of its
own version and flags, else reads the headers themselves.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.utils import cpp_extension

#: What submissions add to load_inline's flags; the first is what it takes without.
FLAGS = ("", "-O3")


def main(flags: Sequence[str]) -> None:
    """Entry point. Arguments: other flags, one set each."""
    headers = Path(sys.prefix, "share", "kernel-runner", f"torch-{torch.__version__}-{torch.version.git_version}")
    # Runs go on meanwhile, and a compiler that finds half a file fails.
    new = headers.with_name("torch-new")
    shutil.rmtree(new, ignore_errors=True)
    folder = new / "torch" / "extension.h.gch"
    folder.mkdir(parents=True)
    include_paths = [*cpp_extension.include_paths("cpu"), sysconfig.get_path("include", scheme="posix_prefix")]
    source = Path(cpp_extension.include_paths("cpu")[0], "torch", "extension.h")
    for number, more in enumerate(flags or FLAGS):
        arguments = [flag for path in include_paths for flag in ("-isystem", path)]
        arguments += ["-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC", "-std=c++20", *more.split()]
        output = str(folder / str(number))
        subprocess.run(["c++", "-w", "-x", "c++-header", str(source), "-o", output, *arguments], check=True)
    # An environment that the runner itself is installed in has more in this folder.
    for old in headers.parent.glob("torch-*"):
        if old != new:
            shutil.rmtree(old)
    new.rename(headers)


if __name__ == "__main__":
    main(sys.argv[1:])
