"""Stands in for Nsight Compute 2025.3, with the command line that the harness uses and the files that it leaves.

Every other command line is refused, as the real one refuses what it does not know. It runs the program, and captures
two kernels of its own by the filter; there is no device. A submission brings it into a container, see `bring`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

#: Name by `--kernel-name-base function`, and demangled.
KERNELS = (("vectorized_add", "void vectorized_add<float>(float *)"), ("reduce", "void reduce<float>(float *)"))
#: A kernel's name that is captured without content: the report is there, and has no row.
HOLLOW = "hollow"


def bring(code: bytes, *, folder: str = "bin") -> bytes:
    """A submission that puts this program into a folder below its own before it does anything else."""
    begin = (
        "import sys as _sys, pathlib as _path\n"
        f"_bin = _path.Path({folder!r}); _bin.mkdir(exist_ok=True); _ncu = _bin / 'ncu'\n"
        f"_ncu.write_text('#!' + _sys.executable + chr(10) + {Path(__file__).read_text(encoding='utf-8')!r})\n"
        "_ncu.chmod(0o755)\n"
    )
    return begin.encode() + code


def install(folder: Path) -> Path:
    """The program in a folder."""
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\n{Path(__file__).read_text(encoding='utf-8')}", encoding="utf-8")
    program.chmod(0o755)
    return program


def main(arguments: list[str]) -> int:
    """As ncu; the exit code."""
    head, rest = arguments[:2], arguments[2:]
    if head != ["--config-file", "off"] or os.environ.get("POPCORN_NCU") != "1":
        return _refuse(arguments)
    return _print(rest) if rest[:1] == ["--import"] else _record(rest)


def _record(arguments: list[str]) -> int:
    """`--target-processes all ... --export PATH PROGRAM ...`, every option in its place."""
    fixed = [
        *("--target-processes", "all", "--nvtx", "--nvtx-include", "custom_kernel/"),
        *("--set", "full", "--replay-mode", "kernel", "--clock-control", "none", "--kernel-name-base"),
    ]
    rest = arguments[len(fixed) :]
    if arguments[: len(fixed)] != fixed or rest[0] not in ("function", "demangled", "mangled"):
        return _refuse(arguments)
    base, rest = rest[0], rest[1:]
    kernel = None
    if rest[0] == "--kernel-name":
        kernel, rest = rest[1], rest[2:]
    if rest[0] != "--launch-count" or int(rest[1]) < 1 or rest[2:4] != ["--force-overwrite", "--export"]:
        return _refuse(arguments)
    path, program = Path(f"{rest[4]}.ncu-rep"), rest[5:]
    code = subprocess.run(program, pass_fds=_inherited(), check=False).returncode
    if code != 0:
        _say(f"==ERROR== The application returned an error code ({code}).")
        return code
    matches = [names[base != "function"] for names in KERNELS if _matches(kernel, names[base != "function"])]
    if not matches and kernel != HOLLOW:
        _say("==WARNING== No kernels were profiled.")
        return 0
    path.write_text(json.dumps({"kernels": matches[: int(rest[1])], "kernel": kernel, "base": base}), encoding="utf-8")
    _say(f"==PROF== Report: {path}")
    return 0


def _print(arguments: list[str]) -> int:
    """`--import PATH --page details [--csv]`."""
    as_csv = arguments[4:] == ["--csv"]
    if arguments[2:4] != ["--page", "details"] or (arguments[4:] and not as_csv):
        return _refuse(arguments)
    report = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
    _say("==PROF== Connected")
    if as_csv:
        _say('"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"')
    for number, kernel in enumerate(report["kernels"]):
        section = "GPU Speed Of Light Throughput"
        text = f"  {kernel} (1, 1, 1)x(32, 1, 1)\n    Section: {section}\n    Duration  us  3.20"
        _say(f'"{number}","{kernel}","{section}","Duration","us","3.20"' if as_csv else text)
    return 0


def _matches(kernel: str | None, name: str) -> bool:
    if kernel is None:
        return True
    expression = kernel.removeprefix("regex:")
    return re.search(expression, name) is not None if expression != kernel else kernel == name


def _inherited() -> tuple[int, ...]:
    results = os.environ.get("POPCORN_FD")
    return () if results is None else (int(results),)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _refuse(arguments: list[str]) -> int:
    _say(f"==ERROR== unrecognised options: {arguments}")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
