"""The container for a slot: limits, mounts, devices, environment, labels. Pure.

Owns what every container of a GPU type has in common. Must not know the submission or its cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from runner.base.gpu_types.model import GpuType
from runner.base.model import Device, Job, Slot
from runner.devices.vendors import SUPPORTED
from runner.evaluation.context import Environment, Place
from runner.task_format.case_memory import tensor_bytes
from sandbox.policy.checks import GVISOR
from sandbox.spec import (
    Boot,
    DeviceDriver,
    Devices,
    Limits,
    Owner,
    SandboxSpec,
    Tmpfs,
)
from tasks.harness.roles import MODULES

#: Where init and the harness are mounted inside every container.
STAGE = "/kernel-runner"
#: What a GPU type calls the root file system that is this host's.
HOST_IMAGE = "host"
#: Labels a container with its slot, so that a later process knows whose cores and devices it uses.
SLOT_LABEL = "kernel-runner.slot"
#: Where compilers that a submission calls keep what they made, below /work: variable -> folder. The judge has its
#: own below its own directory (`sandbox.inside.boot`).
CACHES = {
    "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions",
    "TRITON_CACHE_DIR": ".cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/torchinductor",
}
#: Added to the sum of the programs' own limits: imports, file transfer, killing. The inner limits always end first.
WALL_MARGIN_S = 60.0
#: Whose requests may follow each other in one container, with its id: groups of a batch, or the public and the secret
#: run of a submission.
ContainerOwner = tuple[Literal["batch", "submission"], int]
#: Process of the built-in harness -> the module with its `main`.
_HARNESS_MODULES = {
    **MODULES,
    "parse": "tasks.harness.worker.parse",
    "prebuild": "tasks.harness.worker.prebuild",
    "profile": "tasks.harness.worker.profile_program",
}
#: Imports torch once for all processes of the harness.
_PRELOAD = 'import sys; sys.path.insert(0, "{stage}"); import tasks.harness.preload'
#: Makes a context on the device. Threads that the driver starts leave the judge's core alone, as in other workers; this
#: one leaves it when the worker begins.
_AHEAD = """import os, torch
from tasks.harness.shared.cores import leave_judge_core
cores = os.sched_getaffinity(0)
leave_judge_core()
torch.cuda.init()
torch.cuda.synchronize()
os.sched_setaffinity(0, cores)
"""
_PROCESS = 'import sys; sys.path.insert(0, "{stage}"); from {module} import main; sys.exit(main())'


def make_spec(place: Place, boot: Boot, *, wall_s: float, labels: Mapping[str, str]) -> SandboxSpec:
    """The container for a slot; the same for every submission on a GPU type.

    `wall_s`: seconds from the request to the end of the report, after which the container is killed.
    """
    gpu, slot, environment = place.gpu, place.slot, place.environment
    scratch_bytes = gpu.scratch_mib << 20
    tmpfs = [
        Tmpfs(target="/work", size_bytes=scratch_bytes, owner=Owner.WORKER),
        Tmpfs(target="/tmp", size_bytes=scratch_bytes, owner=Owner.WORKER, mode=0o1777),  # noqa: S108 the container's own
    ]
    if boot.kind == "pair":
        tmpfs.append(Tmpfs(target="/judge", size_bytes=scratch_bytes, owner=Owner.JUDGE))
    return SandboxSpec(
        image=environment.image,
        python=environment.python,
        boot=boot,
        limits=Limits(
            wall_s=wall_s,
            memory_bytes=int(gpu.memory_gib * (1 << 30)),
            pids=gpu.pids,
            cpus=slot.cpus,
            mems=None if slot.numa_node is None else (slot.numa_node,),
            shm_bytes=gpu.shm_mib << 20,
            # Also bounds the memory files in which tensors cross, so no smaller than what a case may hold.
            fsize_bytes=int(gpu.memory_gib * (1 << 30)),
        ),
        binds=environment.binds,
        tmpfs=tuple(tmpfs),
        devices=_devices(slot, environment),
        cgroup_parent=environment.cgroup_parent,
        environment={
            "HOME": "/work",
            "TMPDIR": "/tmp",  # noqa: S108 the container's own
            "USER": "worker",
            "LOGNAME": "worker",
            "LANG": "C.UTF-8",
            "PATH": _path(environment.python),
            # Sources live on a tmpfs that is thrown away: compiled files would only cost memory.
            "PYTHONDONTWRITEBYTECODE": "1",
            # For the processes of a task's own program. The harness's do not read it.
            "PYTHONPATH": f"{STAGE}/tasks/harness/site",
            **{variable: f"/work/{folder}" for variable, folder in CACHES.items()},
            # What the driver compiles for its device. A build has no device, so this does not travel with one.
            "CUDA_CACHE_PATH": "/work/.cache/cuda",
            # Before its first kernel for a CPU torch.compile else has the compiler try each set of vector instructions
            # of the processor, which takes longer than its kernels. A GPU type whose compiler lacks one says otherwise.
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
            # It precompiles headers outside of its cache, for cached kernels, too: longer than a few kernels take.
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
            # Clients of NVIDIA's multi-process service compute at the same time, and would disturb what is timed. A
            # container may have the socket of the host's service; without its directory no process becomes a client.
            "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent",
            **_torch_architectures(gpu),
            **({"KR_EMULATE_CUDA": str(tensor_bytes(gpu))} if gpu.emulate_cuda else {}),
            **gpu.environment,
        },
        labels={**labels, SLOT_LABEL: slot.name},
        runtime=gpu.runtime,
    )


def may_share(place: Place) -> bool:
    """Whether requests may follow each other in one container there.

    What outlives processes under gVisor has not been looked at.
    """
    return place.gpu.runtime not in GVISOR


def _path(python: str) -> str:
    own = python.rpartition("/")[0]
    system = ("/usr/local/cuda/bin", "/opt/rocm/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
    return ":".join(dict.fromkeys((own, *system, "/sbin", "/bin")))


def _torch_architectures(gpu: GpuType) -> dict[str, str]:
    """For which device torch builds extensions: it would ask the device, which is not there where it is built."""
    if gpu.nvcc_arch is None:
        return {}
    number = gpu.nvcc_arch.rstrip("abcdefghijklmnopqrstuvwxyz")
    return {"TORCH_CUDA_ARCH_LIST": f"{number[:-1]}.{number[-1:]}{gpu.nvcc_arch[len(number) :]}"}


def job_labels(job: Job) -> dict[str, str]:
    """What a container is for, for people who list containers."""
    return {
        "kernel-runner.job": str(job.id),
        "kernel-runner.attempt": str(job.attempt),
        "kernel-runner.submission": str(job.submission_id),
    }


def pair_boot(environment: Environment, *, loopback: bool = False) -> Boot:
    """Judge and worker, started before any request is there, and the rank checkers of a request that has ranks.

    Process groups of ranks need the loopback, and profilers.
    """
    return Boot(
        kind="pair",
        judge=harness_process(environment, "judge"),
        worker=harness_process(environment, "worker"),
        rank_checker=harness_process(environment, "rank_checker"),
        preload=_PRELOAD.format(stage=STAGE),
        ahead=_AHEAD,
        loopback=loopback,
    )


def harness_process(environment: Environment, name: str) -> tuple[str, ...]:
    """What to run for a process of the built-in harness.

    `parse` says whether a submission is Python; `prebuild` imports it to build it; `profile` runs a task's own eval
    program below a profiler. Another name is that of a guest's module with a `main`.
    """
    return (environment.python, "-I", "-c", _PROCESS.format(stage=STAGE, module=_HARNESS_MODULES.get(name, name)))


def _devices(slot: Slot, environment: Environment) -> Devices | None:
    if not slot.devices:
        return None
    groups = tuple(sorted({group for device in slot.devices for group in device.groups}))
    names = tuple(name for device in slot.devices if (name := cdi_name(device, environment.cdi)) is not None)
    if len(names) == len(slot.devices):
        by_cdi = all(environment.cdi[name] for name in names)
        nodes = dict.fromkeys(node for name in names for node in environment.cdi[name] if by_cdi)
        return Devices(driver=DeviceDriver.CDI, ids=names, groups=groups, nodes=tuple(nodes))
    if environment.device_driver is DeviceDriver.NVIDIA:
        uuids = tuple(device.uuid for device in slot.devices)
        return Devices(driver=DeviceDriver.NVIDIA, ids=uuids, groups=groups)
    nodes = dict.fromkeys(node for device in slot.devices for node in device.nodes)
    return Devices(driver=DeviceDriver.NODES, ids=tuple(nodes), groups=groups)


def cdi_name(device: Device, offered: Mapping[str, tuple[str, ...]]) -> str | None:
    """The name by which exactly this device is asked for; None: there is none.

    NVIDIA's specs name devices by index, by UUID or by both, AMD's by numbers of their own. So the device's node tells
    which name is its own. A spec may be older than the last boot, when the nodes had other numbers: a UUID whose
    node is another one is not believed. `offered`: full name -> nodes inside.
    """
    support = SUPPORTED[device.vendor]
    kind, node = support.cdi_kind, support.own_node
    by_uuid = f"{kind}={device.uuid}"
    own = {path for path in device.nodes if node.fullmatch(path)}
    if by_uuid in offered and (not offered[by_uuid] or own <= set(offered[by_uuid])):
        return by_uuid
    # The instances of a divided device share its node. By that one would get the whole device.
    if not own or (support.instances_share_node and device.partition is not None):
        return None
    names = (name for name in sorted(offered) if name.startswith(f"{kind}="))
    return next((name for name in names if {path for path in offered[name] if node.fullmatch(path)} == own), None)
