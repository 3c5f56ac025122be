"""Between two workers of one container everything goes, whoever of judge and worker made it, however it is nested."""

from __future__ import annotations

import json

from sandbox.protocol import PairRequest
from tests.integration.sandbox.conftest import Workshop

_MAKE = """
import ctypes
def make(path):
    os.mkdir(path)
    os.chmod(path, 0o777)
    open(f'{path}/file', 'w').close()
    # Where the worker may not look.
    os.symlink('/judge/there', f'{path}/link')
def make_system_v():
    libc = ctypes.CDLL(None)
    assert libc.shmget(0, 4096, 0o1666) >= 0
    assert libc.semget(0, 1, 0o1666) >= 0
"""
_JUDGE = (
    _MAKE
    + """
def next_worker():
    say('spawn', role='candidate')
    _, (fd,), _, _ = socket.recv_fds(socket.socket(fileno=os.dup(int(os.environ['KR_RANKS_FD']))), 1, 1)
    return socket.socket(fileno=fd)
os.mkdir('/judge/there')
worker = line()
for maker, path in request()['made']:
    if maker == 'judge':
        make(path)
    else:
        worker.sendall(path.encode())
        worker.recv(1)
make_system_v()
worker.sendall(b'.')
worker.recv(1)
worker = next_worker()
worker.sendall(b'?')
step('test', worker.recv(65536).decode())
os._exit(0)
"""
)
_WORKER = (
    _MAKE
    + """
import json
while True:
    said = line.recv(4096).decode()
    if said == '?':
        there = {place: os.listdir(place) for place in ('/work', '/tmp', '/dev/shm')}
        for table in ('shm', 'sem'):
            there[table] = open(f'/proc/sysvipc/{table}').read().splitlines()[1:]
        there['mode'] = os.stat('/work').st_mode & 0o777
        line.sendall(json.dumps(there).encode())
    elif said == '.':
        make_system_v()
        os.chmod('/work', 0)
        line.sendall(b'k')
    elif said:
        make(said)
        line.sendall(b'k')
    else:
        break
"""
)


def _nests() -> list[tuple[str, str]]:
    """Folders within folders, of judge and worker in turn, in both places where both may write."""
    made = []
    for place in ("/tmp", "/dev/shm"):
        for first, second in (("judge", "worker"), ("worker", "judge")):
            path = f"{place}/{first}"
            for maker in (first, second, first, second, second, first, first):
                made.append((maker, path))
                path += "/deeper"
    return [*made, ("worker", "/work/own")]


def test_a_later_worker_finds_nothing(workshop: Workshop) -> None:
    """Files, folders and links of both users, the judge's in sticky folders too, and System V objects of both."""
    request = PairRequest(payload={"made": _nests()}, successive=True)
    report = workshop.run(workshop.spec(workshop.pair_boot(_JUDGE, _WORKER)), request)
    assert report.ok, report.message
    there = json.loads(report.steps[0].stdout)
    assert there == {"/work": [], "/tmp": [], "/dev/shm": [], "shm": [], "sem": [], "mode": 0o700}
