"""What the kernel counts per uid for the whole host: one container that takes all of it takes nothing of another's."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.errors import EngineRefused
from sandbox.host.accounts import lend
from sandbox.protocol import PairRequest
from sandbox.spec import ACCOUNTS
from tests.integration.sandbox.conftest import Workshop
from tests.support.waiting import PATIENCE_S

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
