"""Process groups of torch.distributed inside a container without a network.

Gloo over the loopback device on the CPU, NCCL or RCCL on devices; rank r is on device r. Workers form one group, rank
checkers another. Ranks find each other through a file in a directory of their uid, not through a port, which another
process could take first.
"""

from __future__ import annotations

import os
import socket
import stat
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

#: The judge has a limit of its own. This one only ends groups that would never end.
_TIMEOUT = timedelta(hours=24)


def become_rank(*, rank: int, world_size: int, device: str) -> None:
    """Make the calling process a rank: its device or its share of the cores, and the variables that libraries read."""
    os.environ.update(
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "12356",
            # There is no other network device, and host names do not resolve in a container.
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
        }
    )
    torch.set_num_threads(threads_of_rank(world_size))
    if device != "cpu":
        torch.cuda.set_device(rank)


def threads_of_rank(world_size: int) -> int:
    """How many threads a rank may use beside the others, on the calling process's cores."""
    return max(1, len(os.sched_getaffinity(0)) // world_size)


def join_group(meeting: Path, *, rank: int, world_size: int, device: str) -> None:
    """Join the default group. All ranks name the same file, which must not exist yet."""
    store = dist.FileStore(str(meeting), world_size)  # type: ignore[attr-defined]  # torch does not export it by name
    if device == "cpu":
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_TIMEOUT)
    else:
        dist.init_process_group(
            "nccl",
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=_TIMEOUT,
            device_id=torch.device("cuda", rank),
        )


def leave_group() -> None:
    """Leave the default group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def close_listeners() -> int:
    """Close every listening socket of this process for good; how many there were.

    Gloo goes on listening after its ranks have found each other, and answers every connection. Its descriptors stay in
    use, so that gloo does not close a later descriptor with the same number.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    closed = 0
    for path in list(Path("/proc/self/fd").iterdir()):
        descriptor = int(path.name)
        if _listens(descriptor):
            os.dup2(null, descriptor, inheritable=False)
            closed += 1
    os.close(null)
    return closed


def _listens(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        copy = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        # Closed meanwhile, as the one that lists the directory is.
        return False
    with copy:
        return bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
