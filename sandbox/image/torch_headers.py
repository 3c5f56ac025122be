"""Precompiles headers of torch, which compilers else read anew for each submission.

These are torch/extension.h for `load_inline`, and what each kernel of `torch.compile` for this processor includes. Run
it with the evaluation environment's Python, as the user who owns that: when an image is built, and on a host after
torch, the compiler or the processor has changed. `kernel-runner install` runs it `--once`: for a torch that has none
yet. Writes below PREFIX/share/kernel-runner, where `tasks/harness/shared/torch_headers.py` has compilers look: almost a
gigabyte for each set of flags of extensions, 300 MB for `torch.compile`. GCC takes the one of its own version and
flags, else reads the headers themselves. Beside them it writes which vector instructions the compiler knows.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.utils import cpp_extension

#: What submissions add to load_inline's flags; the first is what it takes without.
FLAGS = ("", "-O3")
EXTENSION = "torch/extension.h"
KERNEL = "torch/csrc/inductor/cpp_prefix.h"
#: File with one line for each of torch's looks at the compiler that it passes: SHA-256 of flags and source.
LOOKS = "looks"
ONCE = "--once"


def main(arguments: Sequence[str]) -> None:
    """Entry point. Arguments: `--once`; other flags of extensions, one set each."""
    headers = Path(sys.prefix, "share", "kernel-runner", f"torch-{torch.__version__}-{torch.version.git_version}")
    if ONCE in arguments and (headers / f"{KERNEL}.gch").is_dir():
        return
    # Containers have users of their own.
    os.umask(0o022)
    # Runs go on meanwhile, and a compiler that finds half a file fails.
    new = headers.with_name("torch-new")
    shutil.rmtree(new, ignore_errors=True)
    flags = [argument for argument in arguments if argument != ONCE] or FLAGS
    for header, commands in ((EXTENSION, extension_commands(flags)), (KERNEL, kernel_commands(new / LOOKS))):
        folder = new / f"{header}.gch"
        folder.mkdir(parents=True)
        source = Path(cpp_extension.include_paths("cpu")[0], header)
        for number, command in enumerate(commands):
            subprocess.run([*command, "-w", "-x", "c++-header", str(source), "-o", folder / str(number)], check=True)
    # An environment that the runner itself is installed in has more in this folder.
    for old in headers.parent.glob("torch-*"):
        if old != new:
            shutil.rmtree(old)
    new.rename(headers)


def extension_commands(flags: Sequence[str]) -> Iterator[list[str]]:
    """How `load_inline` calls the compiler, once for each set of further flags."""
    include_paths = [*cpp_extension.include_paths("cpu"), sysconfig.get_path("include", scheme="posix_prefix")]
    for more in flags:
        arguments = [flag for path in include_paths for flag in ("-isystem", path)]
        yield ["c++", "-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC", "-std=c++20", *arguments, *more.split()]


def kernel_commands(looks: Path) -> Iterator[list[str]]:
    """How `torch.compile` calls the compiler for kernels with this processor's vector instructions, and without.

    `looks`: where the looks at the compiler are written.
    """
    # Imported here, because it takes seconds, and `--once` mostly needs none of it.
    from torch._inductor import config, cpu_vec_isa
    from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions

    look, passed = cpu_vec_isa.VecISA.check_build, []

    def look_and_note(vec_isa: cpu_vec_isa.VecISA, code: str) -> bool:
        passes = look(vec_isa, code)
        if passes:
            passed.append(hashlib.sha256(f"{vec_isa.build_arch_flags()}\n{code}".encode()).hexdigest())
        return passes

    setattr(cpu_vec_isa.VecISA, "check_build", look_and_note)  # noqa: B010 a method, to mypy
    # As in containers; it decides on a macro, and GCC refuses headers that were precompiled with others.
    config.cpp_cache_precompile_headers = False
    for vec_isa in (cpu_vec_isa.pick_vec_isa(), cpu_vec_isa.invalid_vec_isa):
        options = CppTorchDeviceOptions(vec_isa=vec_isa, device_type="cpu", include_pytorch=False, compile_only=True)
        command = shlex.split(CppBuilder(name="kernel", sources="", BuildOption=options).get_command_line())
        yield command[: command.index("-o")]
    looks.write_text("\n".join(passed), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
