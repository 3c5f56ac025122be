"""Process groups without a network: they work after their sockets have stopped listening."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tasks.harness.shared.process_groups import close_listeners, threads_of_rank
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
RANK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
import torch.distributed as dist
from tasks.harness.shared.process_groups import become_rank, close_listeners, join_group, leave_group
rank = int(sys.argv[3])
become_rank(rank=rank, world_size=2, device="cpu")
for meeting in ("first", "second"):
    join_group(Path(sys.argv[2]) / meeting, rank=rank, world_size=2, device="cpu")
    closed = close_listeners()
    total = torch.tensor([rank + 1.0])
    for _ in range(3):
        dist.all_reduce(total)
    shares = [torch.zeros(1), torch.zeros(1)]
    dist.all_gather(shares, total + rank)
    print(meeting, closed > 0, total.item(), [share.item() for share in shares], close_listeners(), flush=True)
    if meeting == "first":
        dist.barrier()
        leave_group()
import os
os._exit(0)
"""


def test_ranks_meet_compute_and_no_longer_listen(tmp_path: Path) -> None:
    """Two processes enter a group, and another one later; each time nothing is left that anybody could connect to."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(ROOT), str(tmp_path), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert out.splitlines() == ["first True 12.0 [12.0, 13.0] 0", "second True 12.0 [12.0, 13.0] 0"], err


def test_closing_listeners_leaves_other_sockets_alone() -> None:
    """A connection goes on; the listener refuses, and its descriptor stays taken."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = listener.getsockname()
        with socket.create_connection(address) as mine, listener.accept()[0] as its:
            number = listener.fileno()
            assert close_listeners() == 1
            mine.sendall(b"still here")
            assert its.recv(100) == b"still here"
            with socket.socket() as late:
                assert late.connect_ex(address) != 0
            assert listener.fileno() == number


def test_ranks_share_the_cores() -> None:
    """At least one thread each."""
    assert threads_of_rank(10_000) == 1
    assert threads_of_rank(1) >= threads_of_rank(2)
