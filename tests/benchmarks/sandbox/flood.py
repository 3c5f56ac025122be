"""What a container that floods its output, or makes a million files, costs the process that listens, and the disk."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

from sandbox.protocol import Step, StepsRequest
from tests.benchmarks.sandbox.containers import MIB, Bench, bench

FLOOD_S = 8.0

_FLOOD = "import os\nblock = b'x' * (1 << 20)\nwhile True: os.write(1, block); os.write(2, block)"
_FILES = """
import os
made = 0
for number in range(1_000_000):
    for place in ('/work', '/tmp', '/dev/shm'):
        try:
            os.close(os.open(f'{place}/{number}', os.O_CREAT))
            made += 1
            break
        except OSError:
            pass
print(made)
"""


def main() -> None:
    """Print the growth of this process's memory and of the container's layer on disk."""
    with bench() as at:
        # What the first run of all allocates is no cost of hostile output.
        _run(at, "flood of nothing", "pass", timeout_s=10)
        _run(at, f"flood of stdout and stderr for {FLOOD_S:.0f} s", _FLOOD, timeout_s=FLOOD_S)
        _run(at, "a million files", _FILES, timeout_s=110)


def _run(at: Bench, what: str, source: str, *, timeout_s: float) -> None:
    # Files without content take memory too, and a million are to be made.
    limits = replace(at.spec.limits, wall_s=120, output_kill_bytes=1 << 50, memory_bytes=4096 * MIB)
    step = Step(name="test", argv=(at.spec.python, "-c", source), timeout_s=timeout_s)
    done = threading.Event()
    before = _rss_bytes()
    highest = [before]

    def watch() -> None:
        while not done.wait(0.01):
            highest[0] = max(highest[0], _rss_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    with at.engine.start(replace(at.spec, limits=limits)) as container:
        report = container.run(StepsRequest(files={}, steps=(step,)), on_progress=None, cancel=threading.Event())
        disk_bytes = _disk_bytes(at, container.id)
    done.set()
    watcher.join()
    (result,) = report.steps
    written = result.stdout_bytes + result.stderr_bytes
    made = f", made {result.stdout.strip()} files" if source is _FILES else ""
    print(
        f"{what}: {written / 1e9:.2f} GB of output{made}; memory of this process grew by"
        f" {(highest[0] - before) / MIB:.1f} MiB, the disk by {disk_bytes} bytes",
        flush=True,
    )


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _disk_bytes(at: Bench, container: str) -> int:
    """What the engine keeps of a container on disk: its own layer, and a log if there is one."""
    with at.engine._client(60) as api:
        (found,) = api.containers(all=True, size=True, filters={"id": container})
        log = api.inspect_container(container).get("LogPath") or ""
    return int(found.get("SizeRw") or 0) + (Path(log).stat().st_size if log and Path(log).exists() else 0)
