"""Runs the tests of this folder layer by layer, in as many slices of time as it takes, and says what they have shown.

    python -m tests.gpu FOLDER [--seconds 570] [--layers clock,attacks]

FOLDER/record.jsonl gets a line for every test that begins or ends, with all timed calls. What has ended is not repeated
by the next slice with the same FOLDER; a test that had not ended comes last. FOLDER/LAYER.log has what pytest printed.
Needs Python, torch and pytest. Exit code 0: everything that ran passed, and everything ran.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.gpu.layers import LAYERS, Layer, failed_layers, last_outcomes, summary
from tests.gpu.recording import ROOT, append, read

#: No layer begins with fewer seconds left: judge and worker alone take some to import torch.
_LEAST_S: Final = 20.0
#: Seconds for one test, in a layer.
_CASE_S: Final = 150
#: Seconds for a mode of a test of speed. The tasks' own limits would take an hour.
_MODE_S: Final = "10"


def run(layer: Layer, folder: Path, limit_s: float) -> bool:
    """Run a layer; whether it ended by itself."""
    # Builds of extensions are shared by all tests; one that was killed leaves a lock.
    caches = {
        variable: str((folder / name).absolute())
        for variable, name in (("TORCH_EXTENSIONS_DIR", "extensions"), ("TRITON_CACHE_DIR", "triton"))
    }
    for lock in (folder / "extensions").rglob("lock"):
        lock.unlink()
    environment = {
        "KERNEL_RUNNER_GPU_SECONDS": _MODE_S,
        **os.environ,
        **caches,
        "KERNEL_RUNNER_GPU_RECORD": str((folder / "record.jsonl").absolute()),
        "KERNEL_RUNNER_GPU_LAYER": layer.name,
        "KERNEL_RUNNER_GPU_CASE_S": str(_CASE_S),
    }
    with (folder / f"{layer.name}.log").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *layer.select],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            # 5: all its tests have ended in an earlier slice.
            return process.wait(timeout=limit_s) in {0, 1, 5}
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_layers(layers: Sequence[Layer], folder: Path, *, seconds: float) -> dict[str, str]:
    """Run layers for so many seconds; those that are not finished, and why."""
    until = time.monotonic() + seconds
    left: dict[str, str] = {}
    for layer in layers:
        failed = sorted(failed_layers(read(folder / "record.jsonl")) & set(layer.needs))
        remaining_s = until - time.monotonic()
        if failed:
            left[layer.name] = f"it needs {', '.join(failed)}"
        elif remaining_s < _LEAST_S:
            left[layer.name] = "the time was over; run again with the same folder"
        elif not run(layer, folder, min(layer.limit_s, remaining_s)):
            left[layer.name] = f"it did not end in time, or pytest broke; see {layer.name}.log"
    return left


def facts() -> Mapping[str, str]:
    """What this machine is."""
    # It imports torch, which `main` looks for first.
    from tests.gpu.bench import Machine, software

    machine = Machine.here()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": machine.name,
        "driver": _driver(),
        "software": software(),
    }


def _driver() -> str:
    for path in (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version")):
        with suppress(OSError):
            found = re.search(r"\d+\.\d+(\.\d+)*", path.read_text(encoding="utf-8"))
            if found is not None:
                return found[0]
    return "unknown"


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="for the record; the same one for every slice of time")
    parser.add_argument("--seconds", type=float, default=570.0, help="how long to run in all (%(default)g)")
    parser.add_argument("--layers", default=",".join(layer.name for layer in LAYERS), help="some of %(default)s")
    given = parser.parse_args()
    if find_spec("torch") is None:
        parser.error(f"{sys.executable} has no torch; run this with one that has it")
    if find_spec("pytest") is None:
        parser.error(f"this needs pytest: {sys.executable} -m pip install pytest")
    wanted = given.layers.split(",")
    unknown = set(wanted) - {layer.name for layer in LAYERS}
    if unknown:
        parser.error(f"there is no layer {', '.join(sorted(unknown))}")
    record, about = given.folder / "record.jsonl", facts()
    try:
        given.folder.mkdir(parents=True, exist_ok=True)
        append(record, about)
    except OSError as error:
        parser.error(f"cannot use {given.folder} as a folder for the record: {error.strerror}")
    left = run_layers([layer for layer in LAYERS if layer.name in wanted], given.folder, seconds=given.seconds)
    found = read(record)
    sys.stdout.write("\n".join(summary(found, left)) + "\n")
    return 1 if left or "failed" in last_outcomes(found).values() else 0


if __name__ == "__main__":
    sys.exit(main())
