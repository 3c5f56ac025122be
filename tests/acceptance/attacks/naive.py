"""An evaluator as it must not be: submission, reference, clock, checker and result descriptor in one process.

Stands for "no trusted process" where the attack corpus shows what that one stops. Written for this, small, in the
manner of many: the expected output lies in memory while the submission runs, the clock is read around the call, what
runs in the background is waited for after that, the next seed follows from the last. Everything here is global, so that
it can be found; nothing here is to be imitated.

Reads a judge's request on stdin and Options (NAIVE_OPTIONS, JSON). The result lines go to NAIVE_FD.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import importlib
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch

from tasks.harness.judge.cases import Case, parse_cases

#: What one mode calls for timing, unless the warm-up says that there is time for fewer.
TIMED_CALLS = 8
BUDGET_NS = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Options:
    """How this evaluator differs from case to case."""

    #: Sign the report with a key that came with the request ...
    sign: bool = False
    #: ... and is kept in a page that nobody may read but while signing.
    hide: bool = False
    #: Write the report to stdout, where the submission prints, too.
    stdout: bool = False
    #: Calls between two readings of the clock ...
    batch: int = 1
    #: ... each with inputs of its own, which are made once.
    own_inputs: bool = False
    #: Check only the first call of a case, which is not timed.
    check_once: bool = False
    #: Work out the expected output after the call, from the inputs that were handed over.
    late: bool = False
    #: Change the seed from call to call, by 13.
    advance: bool = False


class Event:
    """A moment, behind a pointer as a device's runtime keeps it."""

    def __init__(self) -> None:
        self.stamp = ctypes.c_int64(0)

    def record(self) -> None:
        """Now."""
        self.stamp.value = time.perf_counter_ns()

    def elapsed_ns(self, end: Event) -> float:
        """How long until another one, as a C library says."""
        return float(_difftime(end.stamp.value, self.stamp.value))


_libc = ctypes.CDLL(None)
_difftime = _libc.difftime
_difftime.argtypes, _difftime.restype = (ctypes.c_int64, ctypes.c_int64), ctypes.c_double
_libc.fdopen.restype = ctypes.c_void_p
_libc.fputs.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
_libc.fflush.argtypes = (ctypes.c_void_p,)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

KEY = b""
PAGE: mmap.mmap | None = None
STREAM: int = 0
LINES: list[str] = []
EXPECTED: list[torch.Tensor] = []
EVENTS: list[Event] = []
ERRORS = ctypes.c_int(0)
TOLERANCE: dict[str, Any] = {}


def hide_key() -> None:
    """Put the key into a page of its own and close it."""
    global KEY, PAGE  # noqa: PLW0603 all state here is global on purpose
    PAGE = mmap.mmap(-1, mmap.PAGESIZE)
    PAGE[: len(KEY)] = KEY
    KEY = b""
    _protect(0)


def _protect(mode: int) -> None:
    if PAGE is not None:
        address = ctypes.addressof(ctypes.c_char.from_buffer(PAGE))
        _libc.mprotect(address, mmap.PAGESIZE, mode)


def log(key: str, value: object) -> None:
    """One line of the report."""
    LINES.append(f"{key}: {value}\n")


def write(text: str) -> None:
    """Send a part of the report."""
    _libc.fputs(text.encode(), STREAM)
    _libc.fflush(STREAM)


def report(options: Options) -> None:
    """Send the report, signed if it is to be."""
    text = "".join(LINES)
    write(text)
    if options.sign:
        key = KEY
        if PAGE is not None:
            _protect(mmap.PROT_READ)
            key = bytes(PAGE[:32])
        write(f"signature: {hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}\n")


def summarise(times: list[float]) -> float:
    """The time that is reported."""
    return median(times)


def compare(output: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether an output is right; places where the expected one is not a number are free."""
    free = expected.isnan()
    return torch.allclose(torch.where(free, 0.0, output.float()), torch.where(free, 0.0, expected.float()), **TOLERANCE)


def wait_for_background() -> None:
    """Stands for a device-wide synchronisation that comes after the clock has been read."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(timeout=5)


def inputs_of(task: ModuleType, case: Case, seed: int, options: Options) -> list[object]:
    """The inputs of the calls between two readings of the clock."""
    if options.own_inputs:
        return [task.generate_input(**case.with_seed(seed + step)) for step in range(options.batch)]
    return [task.generate_input(**case.with_seed(seed))] * options.batch


def call(
    task: ModuleType, kernel: Callable[[Any], torch.Tensor], inputs: list[object], options: Options, *, checked: bool
) -> float:
    """Call the kernel once, or a batch of times; the time of one call in ns."""
    if not options.late:
        EXPECTED[:] = [task.ref_kernel(data) for data in inputs]
    EVENTS[:] = [Event(), Event()]
    EVENTS[0].record()
    outputs = [kernel(data) for data in inputs]
    EVENTS[1].record()
    elapsed_ns = EVENTS[0].elapsed_ns(EVENTS[1]) / options.batch
    wait_for_background()
    if options.late:
        EXPECTED[:] = [task.ref_kernel(data) for data in inputs]
    if checked and not all(map(compare, outputs, EXPECTED)):
        ERRORS.value += 1
    return elapsed_ns


def run_case(
    task: ModuleType, kernel: Callable[[Any], torch.Tensor], case: Case, options: Options, *, timed: bool
) -> list[float]:
    """A warm-up, and if it is timed, as many calls as there is time for by the warm-up's clock."""
    seed = case.seed or 0
    inputs = inputs_of(task, case, seed, options)
    start = time.monotonic_ns()
    call(task, kernel, inputs, options, checked=True)
    took = max(time.monotonic_ns() - start, 1)
    count = max(1, min(TIMED_CALLS, BUDGET_NS // took)) if timed else 0
    times = []
    for _ in range(count):
        if options.advance:
            seed += 13
            inputs = inputs_of(task, case, seed, options)
        times.append(call(task, kernel, inputs, options, checked=not options.check_once))
    return times


def main() -> int:
    """Entry point: evaluate and report; exit code 0 unless the submission raised."""
    global KEY, STREAM  # noqa: PLW0603 all state here is global on purpose
    options = Options(**json.loads(os.environ.pop("NAIVE_OPTIONS")))
    STREAM = _libc.fdopen(1 if options.stdout else int(os.environ["NAIVE_FD"]), b"w")
    order = json.load(sys.stdin)
    KEY = bytes.fromhex(order["key"])
    if options.hide:
        hide_key()
    for name, text in {**order["files"], "submission.py": order["submission"]}.items():
        Path(name).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(Path.cwd()))
    kernel = importlib.import_module("submission").custom_kernel
    task = importlib.import_module("reference")
    TOLERANCE.update({key: vars(task)[key.upper()] for key in ("rtol", "atol") if key.upper() in vars(task)})
    for mode in order["modes"]:
        for index, case in enumerate(parse_cases(mode["cases"], global_seed=None)):
            times = run_case(task, kernel, case, options, timed=mode["name"] != "test")
            if times:
                log(f"benchmark.{index}.median", summarise(times))
                log(f"benchmark.{index}.runs", len(times))
    log("check", "fail" if ERRORS.value else "pass")
    report(options)
    return 0
