"""Between two workers of one container everything goes, whoever of judge and worker made it, however it is nested."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sandbox.errors import EngineRefused
from sandbox.protocol import PairRequest
from tests.integration.sandbox.conftest import Workshop, converse

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
import fcntl
while True:
    said = line.recv(4096).decode()
    if said == '?':
        there = {place: os.listdir(place) for place in ('/work', '/tmp', '/dev/shm')}
        for table in ('shm', 'sem'):
            there[table] = open(f'/proc/sysvipc/{table}').read().splitlines()[1:]
        there['mode'] = os.stat('/work').st_mode & 0o777
        there['output'] = [fcntl.fcntl(1, fcntl.F_GETFL) & os.O_NONBLOCK, fcntl.fcntl(2, fcntl.F_GETPIPE_SZ) == 4096]
        line.sendall(json.dumps(there).encode())
    elif said == '.':
        make_system_v()
        os.chmod('/work', 0)
        fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK)
        fcntl.fcntl(2, fcntl.F_SETPIPE_SZ, 4096)
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
    """Files, folders and links of both users, the judge's in sticky folders too, and System V objects of both.

    Its output is as it was for the first one.
    """
    there = workshop.said(_JUDGE, _WORKER, payload={"made": _nests()}, successive=True)
    empty: dict[str, list[str]] = {name: [] for name in ("/work", "/tmp", "/dev/shm", "shm", "sem")}
    # Sizes of pipes the judge resets, which reads what is left in them.
    assert there == {**empty, "mode": 0o700, "output": [0, True]}


_SUCCESSIVE_JUDGE = (
    _MAKE
    + """
def lives(name):
    try:
        return name.isdigit() and bool(open(f'/proc/{name}/cmdline').read())
    except OSError:
        return False
payload = request()
worker = line()
worker.sendall(b'?')
there = json.loads(worker.recv(65536).decode())
there['/judge'] = os.listdir('/judge')
# Init, the template, this process and its worker.
there['processes'] = sum(map(lives, os.listdir('/proc')))
for path in ('/judge/own', '/tmp/judge', '/dev/shm/judge'):
    make(path)
make_system_v()
if os.fork() == 0:
    os.setsid()
    time.sleep(86400)
for path in ('/work/own', '/tmp/worker', '/dev/shm/worker'):
    worker.sendall(path.encode())
    worker.recv(1)
worker.sendall(b'.')
worker.recv(1)
step('test', json.dumps(there))
os._exit(payload['exit_code'])
"""
)


@pytest.mark.parametrize("successive", [False, True])
def test_a_further_request_meets_nothing_of_the_last_one(workshop: Workshop, successive: bool) -> None:
    """New processes, empty directories of both users, no System V objects; a report of its own."""
    with workshop.engine.start(workshop.spec(workshop.pair_boot(_SUCCESSIVE_JUDGE, _WORKER))) as container:
        request = PairRequest(payload={"exit_code": 0}, successive=successive, stay_open=True)
        last = replace(request, stay_open=False)
        for number in range(3):
            report = converse(container, request if number < 2 else last)
            assert report.ok, report.message
            (step,) = report.steps
            there = json.loads(step.stdout)
            assert there == {
                **{name: [] for name in ("/work", "/tmp", "/dev/shm", "/judge", "shm", "sem")},
                "mode": 0o700,
                "output": [0, False],
                # After the last one no template is needed.
                "processes": 4 if successive or number < 2 else 3,
            }
        with pytest.raises(EngineRefused, match="it has had 3"):
            converse(container, request)


def test_a_further_request_is_counted_by_itself(workshop: Workshop) -> None:
    """Processor time from its own beginning; a peak of memory only where no earlier request had a higher one."""
    judge = "payload = request(); peer = line(); peer.sendall(payload['mib'].to_bytes(4)); peer.recv(1)"
    worker = """
used = bytearray(int.from_bytes(line.recv(4)) << 20)
while time.process_time() < len(used) / (1 << 28):
    pass
line.sendall(b'k')
line.recv(1)
"""
    with workshop.engine.start(workshop.spec(workshop.pair_boot(judge, worker))) as container:
        outcomes = []
        for mib in (256, 1, 384):
            report = converse(container, PairRequest(payload={"mib": mib}, stay_open=True))
            assert report.is_clean, report
            outcomes.append(report.outcome)
    first, second, third = outcomes
    assert None not in (first.cpu_ns, second.cpu_ns)
    assert second.cpu_ns < first.cpu_ns  # type: ignore[operator]
    assert second.peak_memory_bytes is None
    assert third.peak_memory_bytes > first.peak_memory_bytes > 256 << 20  # type: ignore[operator]


def test_after_a_judge_that_failed_there_is_no_further_request(workshop: Workshop) -> None:
    """Whatever is asked for: what broke one request must not meet another."""
    with workshop.engine.start(workshop.spec(workshop.pair_boot(_SUCCESSIVE_JUDGE, _WORKER))) as container:
        report = converse(container, PairRequest(payload={"exit_code": 1}, stay_open=True))
        assert report.ok is False
        assert not container.is_open
