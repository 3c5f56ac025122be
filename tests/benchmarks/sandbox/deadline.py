"""From the deadline until nothing is left in the container's cgroup, in seconds, for trees that are hard to kill."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from sandbox.host.container import Container
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Ending
from tests.benchmarks.sandbox.containers import Bench, bench, percentiles

ROUNDS = 15
WALL_S = 0.8

_PRELUDE = """
import ctypes, os, signal, threading, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
"""
#: Each ignores every signal that can be ignored.
TREES = {
    "fork storm": "while True:\n    try: os.fork()\n    except OSError: pass",
    "setsid survivors": (
        "for _ in range(60):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            while True: time.sleep(1)\n        os._exit(0)\nwhile True: pass"
    ),
    "blocked in vfork": (
        "libc = ctypes.CDLL(None)\n"
        # The parent of a vfork waits uninterrupted until its child calls exec or ends.
        "for _ in range(40):\n    if os.fork() == 0:\n        libc.syscall(58)\n        while True: libc.pause()\n"
        "while True: time.sleep(1)"
    ),
    "stopped processes": (
        "for _ in range(60):\n    if os.fork() == 0:\n        os.kill(os.getpid(), signal.SIGSTOP)\n"
        "while True: time.sleep(1)"
    ),
    "memory to tear down": (
        "for place in ('/work/x', '/tmp/x'):\n    open(place, 'wb').write(bytes(180 << 20))\nwhile True: pass"
    ),
    "100,000 files": "for n in range(100000): open(f'/work/{n}', 'w').close()\nwhile True: pass",
    "flood of output": "while True: os.write(1, b'x' * 65536)",
}


def main() -> None:
    """Print a line for each tree, and one for all."""
    with bench() as at:
        every: list[float] = []
        for name, source in TREES.items():
            found = [_seconds(at, source) for _ in range(ROUNDS)]
            every += found
            print(f"deadline, {name}, s: {percentiles(found)}", flush=True)
        print(f"deadline, all, s: {percentiles(every)}")


def _seconds(at: Bench, source: str) -> float:
    limits = replace(at.spec.limits, wall_s=WALL_S, output_kill_bytes=1 << 50)
    step = Step(name="test", argv=(at.spec.python, "-c", _PRELUDE + source), timeout_s=100)
    with at.engine.start(replace(at.spec, limits=limits)) as container:
        watch = _Watch(container)
        begun = time.monotonic()
        watch.thread.start()
        report = container.run(StepsRequest(files={}, steps=(step,)), on_progress=None, cancel=threading.Event())
        watch.thread.join()
    if report.outcome.ending is not Ending.DEADLINE:
        raise SystemExit(f"the run ended {report.outcome.ending}, expected its deadline: {report.outcome.detail}")
    return watch.empty_s - begun - WALL_S


class _Watch:
    """Looks every millisecond whether anything is left in a container's cgroup."""

    def __init__(self, container: Container) -> None:
        self._box = container
        self.empty_s = 0.0
        self.thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        reader = self._box._counters
        # A directory that has gone is as empty as one can be.
        while reader.text("pids", "cgroup.procs").strip():
            time.sleep(0.001)
        self.empty_s = time.monotonic()
