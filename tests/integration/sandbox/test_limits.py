"""What a submission sees in a real container, and hostile programs against the limits, which are its own alone."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from sandbox.errors import EngineRefused
from sandbox.host import container as container_module
from sandbox.host.accounts import lend
from sandbox.protocol import PairRequest, Step
from sandbox.spec import ACCOUNTS, Ending
from tests.integration.sandbox.conftest import QUICK, SLEEP, WORKERS, Workshop, converse
from tests.support.waiting import PATIENCE_S


def test_the_wall_limit_kills_the_container(workshop: Workshop) -> None:
    """A step whose own timeout is longer than the container's limit ends with the container."""
    report = workshop.run(workshop.spec(wall_s=1.0), SLEEP)
    assert report.outcome.ending is Ending.DEADLINE
    assert report.ok is None
    # Killed, or init saw the line close a moment earlier.
    assert report.outcome.exit_code in (137, 3)
    assert report.outcome.detail is not None
    assert "1 s of wall time" in report.outcome.detail


def test_a_process_that_stood_still_reads_what_came_meanwhile(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the daemon is stopped for hours: the report is there, and no time limit was the submission's."""
    stopped_s = 0.0

    def stand_still(*_: object) -> None:
        nonlocal stopped_s
        stopped_s = 10_000.0

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped_s, monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(container_module, "time", clock)
    with workshop.engine.start(workshop.spec()) as container:
        report = converse(container, QUICK, on_progress=stand_still)
    assert report.outcome.ending is Ending.COMPLETED, report.outcome


def test_processor_time_is_bounded_for_all_processes_together(workshop: Workshop) -> None:
    """By the cgroup's count, in whatever processes it is used; what has been used before the request does not count."""
    source = "import os\nos.fork()\nos.fork()\nwhile True: pass"
    step = Step(name="test", argv=(workshop.python, "-c", source), timeout_s=100)
    report = workshop.steps(step, cpu_s=0.2)
    assert report.outcome.ending is Ending.CPU_TIME
    assert report.ok is None
    assert report.outcome.cpu_ns is not None
    assert report.outcome.cpu_ns > 200_000_000
    assert "0.2 s of processor time" in (report.outcome.detail or "")
    asleep = Step(name="test", argv=("/bin/sleep", "1.5"), timeout_s=100)
    assert workshop.steps(asleep, cpu_s=0.2).ok


_PROBE = """
import getpass, json, os, pwd, resource
status = dict(l.split(':', 1) for l in open('/proc/self/status') if ':' in l)
print(json.dumps({
    'uid': os.getresuid(), 'gid': os.getresgid(), 'groups': os.getgroups(), 'user': getpass.getuser(),
    'name': pwd.getpwuid(os.getuid()).pw_name,
    'status': {k: status[k].strip() for k in ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs', 'Seccomp')},
    'env': dict(os.environ), 'cwd': os.getcwd(), 'fds': sorted(int(f) for f in os.listdir('/proc/self/fd')),
    'interfaces': sorted(os.listdir('/sys/class/net')),
    'limits': [resource.getrlimit(getattr(resource, 'RLIMIT_' + n)) for n in ('CORE', 'NOFILE', 'FSIZE')],
    'oom': open('/proc/self/oom_score_adj').read().strip(), 'cpus': sorted(os.sched_getaffinity(0)),
    'session': os.getsid(0) == os.getpid(),
}))
"""


def test_a_submission_sees_an_empty_locked_room(workshop: Workshop) -> None:
    """Uid, capabilities, environment, descriptors, limits and paths are exactly what the spec says."""
    step, _ = workshop.program(_PROBE)
    assert step.exit_code == 0, step.stderr
    seen = json.loads(step.stdout)
    assert seen["uid"] == seen["gid"] == [seen["uid"][0]] * 3
    assert seen["uid"][0] in WORKERS
    assert seen["name"] == "worker"
    assert seen["groups"] == []
    assert seen["user"] == "worker"
    assert seen["status"] == {
        "CapEff": "0" * 16,
        "CapPrm": "0" * 16,
        "CapBnd": "00000000000000e0",
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }
    assert set(seen["env"]) <= {"PATH", "LANG", "HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "POPCORN_FD", "LC_CTYPE"}
    assert seen["cwd"] == seen["env"]["HOME"] == "/work"
    # 0, 1, 2, the result pipe and the listing itself.
    assert [fd for fd in seen["fds"] if fd > 2 and fd != int(seen["env"]["POPCORN_FD"])][1:] == []
    assert seen["interfaces"] == ["lo"]
    assert seen["limits"] == [[1, 1], [4096, 4096], [1 << 30, 1 << 30]]
    assert seen["oom"] == "1000"
    assert seen["cpus"] == [0]
    assert seen["session"] is True


#: Each takes one more of what the kernel counts, and raises where it gives no more.
_TAKE = """
import array, ctypes, fcntl, json, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
kept = []

def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def descriptors_in_flight():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    kept.append((ours, theirs))
    # As many as one message may carry.
    ours.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 253))], socket.MSG_DONTWAIT)

def queued_signals():
    # Real-time signals queue while they are blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    kept.append(checked(libc.sigqueue(os.getpid(), signal.SIGRTMIN, None)))

def pages_in_pipes():
    ours, theirs = os.pipe()
    kept.append((ours, theirs))
    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, 1 << 20)

RESOURCES = {each.__name__: each for each in
             (descriptors_in_flight, queued_signals, pages_in_pipes)}

def ended_with(take):
    try:
        take()
    except OSError as error:
        return error.errno
    return 0

def take_all(take):
    while (error := ended_with(take)) == 0:
        pass
    return error
"""
_HOG = (
    _TAKE
    + """
take = RESOURCES[line.recv(100).decode()]
take_all(take)
# A process that begins now, as another submission of the same uid would.
child = os.fork()
if child == 0:
    [os.close(fd) for pair in kept for fd in ([pair] if isinstance(pair, int) else [])]
    os._exit(ended_with(take))
line.sendall(b'%d' % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
line.recv(1)
"""
)
_JUDGE = """
peer = line()
peer.sendall(request()['resource'].encode())
say('progress', phase='test', done=int(peer.recv(10)), total=0)
hear()
"""


@pytest.mark.parametrize("resource", ["descriptors_in_flight", "queued_signals", "pages_in_pipes"])
def test_a_container_that_takes_all_takes_nothing_of_another(workshop: Workshop, resource: str) -> None:
    """Beside it a second process of its uid gets none, and a process in another container gets one."""
    refused: list[int] = []
    begun, cancel = threading.Event(), threading.Event()

    def on_progress(_: str, error: int, __: int) -> None:
        refused.append(error)
        begun.set()

    spec = workshop.spec(workshop.pair_boot(_JUDGE, _HOG))
    with ThreadPoolExecutor(1) as pool:
        request = PairRequest(payload={"resource": resource})
        hog = pool.submit(workshop.run, spec, request, cancel=cancel, on_progress=on_progress)
        hog.add_done_callback(lambda _: begun.set())
        try:
            assert begun.wait(PATIENCE_S)
            assert refused, hog.result(0)
            step, _ = workshop.program(f"{_TAKE}\nprint(json.dumps(ended_with({resource})))")
        finally:
            cancel.set()
    assert refused[0] != 0, "the hog took all of it"
    assert json.loads(step.stdout) == 0, step.stderr


def test_two_containers_have_no_uid_in_common(workshop: Workshop) -> None:
    """Judge and worker of one are neither judge nor worker of the other; a pair is free when its container is gone."""
    with workshop.engine.start(workshop.spec()) as one:
        with workshop.engine.start(workshop.spec()) as other:
            assert one.spec.accounts != other.spec.accounts
        with pytest.raises(EngineRefused, match=r"all are taken .*, expected a free pair"):
            lend([one.spec.accounts])
        freed = lend([other.spec.accounts])
        freed.give_back()
    uids = [uid for both in ACCOUNTS for uid in (both.judge, both.worker)]
    assert len(set(uids)) == len(uids)
