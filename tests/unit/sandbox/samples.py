"""Records the sandbox's unit tests share."""

from __future__ import annotations

from sandbox.spec import Bind, Boot, DeviceDriver, Devices, Limits, Owner, SandboxSpec, Tmpfs

#: A spec in which every optional part is used.
FULL = SandboxSpec(
    image="sha256:abc",
    python="/opt/env/bin/python",
    boot=Boot(kind="pair", judge=("python", "judge"), worker=("python", "worker"), rank_checker=("python", "checker")),
    limits=Limits(wall_s=60, memory_bytes=1 << 30, pids=100, cpus=(3, 1), mems=(0,), shm_bytes=1 << 20, nofile=512),
    binds=(Bind(source="/usr", target="/usr"), Bind(source="/state/stage/x", target="/kernel-runner")),
    tmpfs=(
        Tmpfs(target="/work", size_bytes=1 << 20, owner=Owner.WORKER),
        Tmpfs(target="/judge", size_bytes=1 << 20, owner=Owner.JUDGE),
        Tmpfs(target="/tmp", size_bytes=1 << 20, owner=Owner.ROOT, mode=0o1777),
    ),
    devices=Devices(driver=DeviceDriver.NODES, ids=("/dev/kfd", "/dev/dri/renderD128"), groups=(105,)),
    environment={"PATH": "/bin"},
    labels={"kernel-runner.job": "7"},
    runtime="runsc",
    cgroup_parent="kernelrunner.slice",
)
