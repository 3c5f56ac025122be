"""No two jobs share a container, a process, a writable path or shared memory, warm or not."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from runner.devices.quarantine import Quarantine
from runner.evaluation.warm_pool import PoolBounds, WarmPool
from sandbox.host.engine import Container, DockerEngine
from sandbox.policy.observed import NAMESPACES
from sandbox.protocol import Step, StepsRequest
from tests.integration.sandbox.conftest import Workshop
from tests.support.waiting import PATIENCE_S

SLOTS = ("cpu0", "cpu1")
JOBS = 3

#: Looks for what others have left wherever something can be left, then leaves it itself, a process included.
_MARK = """
import ctypes, json, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)
found = {'files': [], 'processes': [], 'socket': 'nobody', 'sysv': None}
for place in ('/work', '/tmp', '/dev/shm', '/var/tmp', '/run', '/dev/mqueue'):
    for top, folders, names in os.walk(place):
        found['files'] += [os.path.join(top, name) for name in names if 'mark' in name]
    try:
        open(place + '/mark', 'w').write('mine')
    except OSError:
        pass
channel = socket.socket(socket.AF_UNIX)
try:
    channel.connect('\\0mark')
    found['socket'] = 'somebody'
except ConnectionRefusedError:
    pass
segment = libc.shmget(4242, 4096, 0o1666 | 0o1000)  # IPC_CREAT | IPC_EXCL
found['sysv'] = ctypes.get_errno() if segment < 0 else 0
for pid in os.listdir('/proc'):
    if pid.isdigit():
        name = open(f'/proc/{pid}/comm').read().strip()
        if name == 'mark':
            found['processes'].append(pid)
if os.fork() == 0:
    os.setsid()
    open('/proc/self/comm', 'w').write('mark')
    server = socket.socket(socket.AF_UNIX)
    server.bind('\\0mark')
    server.listen()
    time.sleep(1000)
print(json.dumps(found))
"""


def _apart(container: Container, engine: DockerEngine) -> dict[str, str]:
    """What identifies a container's namespaces, cgroup and writable file systems, from the host."""
    process = Path("/proc", str(engine._inspect(container.id)["State"]["Pid"]))
    places = ("work", "tmp", "dev/shm")
    return {
        **{name: str((process / "ns" / name).readlink()) for name in NAMESPACES},
        **{place: str((process / "root" / place).stat().st_dev) for place in places},
        "cgroup memberships": (process / "cgroup").read_text(encoding="ascii"),
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may look at the namespaces of other users' processes")
def test_jobs_share_nothing(workshop: Workshop) -> None:
    """Two slots work at the same time from their warm containers; each job finds nothing, and leaves what it can."""
    spec = workshop.spec()
    pool = WarmPool(workshop.engine, Quarantine(), PoolBounds(size=JOBS))
    used: list[str] = []
    found: list[dict[str, Any]] = []
    apart: list[dict[str, str]] = []
    failures: list[BaseException] = []

    def wait_for_all() -> None:
        with pool._changed:
            assert pool._changed.wait_for(
                lambda: all(len(pool._pools[slot].containers) == JOBS for slot in SLOTS), timeout=PATIENCE_S
            )

    def work(slot: str) -> None:
        request = StepsRequest(
            files={"prog.py": _MARK.encode()}, steps=(Step(name="test", argv=(workshop.python, "prog.py")),)
        )
        try:
            for _ in range(JOBS):
                container = pool.take(slot, spec, cancel=threading.Event())
                assert container is not None
                with container:
                    used.append(container.id)
                    report = container.run(request, on_progress=None, cancel=threading.Event())
                found.append(json.loads(report.steps[0].stdout))
        except BaseException as error:
            failures.append(error)
            raise

    try:
        for slot in SLOTS:
            pool.release(slot, spec)
        wait_for_all()
        apart += [
            _apart(each.container, workshop.engine) for place in pool._pools.values() for each in place.containers
        ]
        threads = [threading.Thread(target=work, args=(slot,)) for slot in SLOTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        pool.close()
    assert failures == []
    assert len(set(used)) == len(found) == JOBS * len(SLOTS)
    for kind in apart[0]:
        assert len({each[kind] for each in apart}) == len(apart), kind
    assert all(each["files"] == each["processes"] == [] and each["socket"] == "nobody" for each in found), found
    # A segment of that key exists nowhere; where System V memory is forbidden altogether, the same holds.
    assert {each["sysv"] for each in found} <= {0, 1}
