"""The time of a compute-bound and of a memory-bound kernel in a hardened and in an unhardened container, in turns.

Both containers live at the same time, on the same core, in the same file system, and wait for a word to compute once.
Which goes first changes from round to round. The unhardened one has none of the settings of the table but for the
core, the binds and the missing network.
"""

from __future__ import annotations

import random
import select
import statistics
from dataclasses import dataclass
from typing import Any

from sandbox.host.attach import Attachment, attach
from sandbox.host.engine import _create
from sandbox.policy import hostconfig
from tests.benchmarks.sandbox.containers import Bench, bench

#: Short, so that most of a pair lie within one turn of a busy machine's scheduler; many, so that the median is sure.
ROUNDS = 3000
#: Of the bootstrap that says how sure the median is.
RESAMPLES = 2000
_KEPT = ("Mounts", "NetworkMode", "CpusetCpus", "LogConfig")

_PROGRAM = """
import sys, time, torch
torch.set_num_threads(1)
a, b, c = (torch.rand(384, 384) for _ in range(3))
big, other = torch.rand(1 << 22), torch.rand(1 << 22)
def compute():
    torch.mm(a, b, out=c)
def memory():
    other.copy_(big)
work = {'compute': compute, 'memory': memory}
for function in work.values():
    for _ in range(10): function()
print('ready', flush=True)
for line in sys.stdin:
    function = work[line.strip()]
    begun = time.perf_counter_ns()
    function()
    print(time.perf_counter_ns() - begun, flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class _Runner:
    """A container that computes when it is told to."""

    attachment: Attachment

    def tell(self, word: str) -> int:
        """Compute once; nanoseconds by its own clock."""
        self.attachment.write(memoryview(f"{word}\n".encode()))
        return int(self.hear())

    def hear(self) -> str:
        """The next line."""
        line = b""
        while not line.endswith(b"\n"):
            select.select([self.attachment], [], [])
            pieces = self.attachment.read()
            if pieces is None:
                raise SystemExit(f"the container ended: {line!r}")
            line += b"".join(data for _, data in pieces)
        return line.decode().strip()


def main() -> None:
    """Print a line for each kernel: medians, and the median of the ratios with its 95 % interval."""
    with bench() as at:
        runners = {name: _start(at, hardened=name == "hardened") for name in ("hardened", "unhardened")}
        for runner in runners.values():
            runner.hear()
        for kernel in ("compute", "memory"):
            times: dict[str, list[int]] = {"hardened": [], "unhardened": []}
            for number in range(ROUNDS):
                order = ("hardened", "unhardened") if number % 2 else ("unhardened", "hardened")
                for name in order:
                    times[name].append(runners[name].tell(kernel))
            _report(kernel, times["hardened"], times["unhardened"])


def _start(at: Bench, *, hardened: bool) -> _Runner:
    body: dict[str, Any] = hostconfig.create_body(at.spec, owner=at.engine.owner)
    body |= {"Entrypoint": [at.spec.python, "-I", "-c", _PROGRAM], "User": "10002:10002", "Env": ["HOME=/tmp"]}
    if not hardened:
        host = body["HostConfig"]
        body["HostConfig"] = {key: host[key] for key in _KEPT} | {"SecurityOpt": ["seccomp=unconfined"]}
    container = at.engine._call("create", lambda api: _create(api, body))
    attachment = attach(at.engine._socket_path, at.engine._version(), container, timeout_s=60)
    at.engine._call("start", lambda api: api.start(container))
    return _Runner(attachment=attachment)


def _report(kernel: str, hardened: list[int], unhardened: list[int]) -> None:
    ratios = [one / other for one, other in zip(hardened, unhardened, strict=True)]
    draw = random.Random(1)  # noqa: S311 a bootstrap, no secret
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = (100 * (medians[int(RESAMPLES * part)] - 1) for part in (0.025, 0.975))
    change = 100 * (statistics.median(hardened) / statistics.median(unhardened) - 1)
    print(
        f"{kernel}: median {statistics.median(hardened) / 1e6:.3f} ms hardened,"
        f" {statistics.median(unhardened) / 1e6:.3f} ms unhardened: {change:+.2f} %;"
        f" of pairs {100 * (statistics.median(ratios) - 1):+.2f} % (95 %: {low:+.2f} to {high:+.2f}),"
        f" {len(ratios)} pairs",
        flush=True,
    )
