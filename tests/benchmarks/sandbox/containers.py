"""What the parts share: an engine, a small container, and percentiles."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import binds, stage
from sandbox.spec import Boot, Limits, Owner, SandboxSpec, Tmpfs

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """An engine, and a container of 512 MiB on one core."""

    engine: DockerEngine
    spec: SandboxSpec


@contextmanager
def bench() -> Iterator[Bench]:
    """An engine whose containers are gone afterwards."""
    python = Path(os.environ.get("KERNEL_RUNNER_EVAL_PYTHON") or ROOT / ".venv-eval" / "bin" / "python")
    root = HostRoot(python)
    core = max(os.sched_getaffinity(0))
    engine = DockerEngine(owner=f"bench-{os.getpid()}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        staged = stage(Path(directory), {})
        spec = SandboxSpec(
            image=engine.ensure_host_root(root),
            python=root.python,
            boot=Boot(kind="steps"),
            limits=Limits(wall_s=60, memory_bytes=512 * MIB, pids=256, cpus=(core,)),
            binds=(*root.binds(), *binds(staged)),
            tmpfs=(
                Tmpfs(target="/work", size_bytes=256 * MIB, owner=Owner.WORKER),
                Tmpfs(target="/judge", size_bytes=16 * MIB, owner=Owner.JUDGE),
                Tmpfs(target="/tmp", size_bytes=256 * MIB, owner=Owner.ROOT, mode=0o1777),
            ),
        )
        try:
            yield Bench(engine=engine, spec=spec)
        finally:
            engine.reap()
            engine.close()


def percentiles(values: Sequence[float]) -> str:
    """Half, 99 of 100, and the worst."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"p50 {cuts[49]:.3f}, p99 {cuts[98]:.3f}, worst {max(values):.3f} ({len(values)} times)"
