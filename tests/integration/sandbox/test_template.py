"""Judge and worker as forks of a template, in real containers: each is like a process of its own."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from typing import Any

import pytest

from sandbox.protocol import PairRequest
from sandbox.spec import ACCOUNTS, Accounts
from tests.acceptance.escapes.case import PRELUDE, all_cases
from tests.integration.sandbox.conftest import Workshop, converse

#: Different in every process that runs it, equal in all forks of one.
PRELOAD = "import os, sys, tempfile; sys.made_once = os.urandom(8).hex(); tempfile.gettempdir()"

#: What a process can see of itself.
_LOOK = """
import gc, resource, tempfile

def look():
    status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)
    with open('/proc/self/mem', 'rb'):
        pass
    kept = ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp', 'SigBlk', 'SigIgn', 'SigCgt',
            'Uid', 'Gid', 'Groups', 'Umask', 'Threads', 'Cpus_allowed_list')
    return {
        **{key: status[key].strip().replace(str(os.getuid()), 'my uid') for key in kept},
        'parent': os.getppid(),
        'leads its session': os.getsid(0) == os.getpid(),
        'fds': open_descriptors(),
        'environ': dict(os.environ),
        'argv': sys.argv,
        'path': sys.path,
        'main': __name__,
        'flags': str(sys.flags),
        'directory': os.getcwd(),
        'temporary': tempfile.gettempdir(),
        'oom': open('/proc/self/oom_score_adj').read(),
        'limits': [resource.getrlimit(limit) for limit in range(16)],
        'collects': gc.isenabled(),
        'owner of its files': os.stat('/proc/self/mem').st_uid == os.getuid(),
    }
"""
_JUDGE = (
    _LOOK
    + """
payload = request()
mine = look()
peer = line()
peer.sendall(b'x')
theirs = json.loads(peer.recv(100000))
others = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        others.append(int(open(f'/proc/{pid}/status').read().split('Uid:')[1].split()[0]))
    except OSError:
        pass
step('test', json.dumps({'judge': mine, 'worker': theirs, 'uids': sorted(others),
                         'once': [getattr(sys, 'made_once', None), theirs.pop('once')]}))
"""
)
_WORKER = (
    _LOOK
    + """
line.recv(1)
line.sendall(json.dumps({**look(), 'once': getattr(sys, 'made_once', None)}).encode())
line.recv(1)
"""
)


def _found(workshop: Workshop, preload: str) -> dict[str, Any]:
    found: dict[str, Any] = workshop.said(_JUDGE, _WORKER, boot={"preload": preload})
    return found


def test_a_fork_is_like_a_process_of_its_own(workshop: Workshop) -> None:
    """Ids, capabilities, descriptors, environment, limits and all else that it sees are those of an exec.

    When the request is there the template is gone: init alone still has root's uid.
    """
    forked, separate = _found(workshop, PRELOAD), _found(workshop, "")
    assert separate.pop("once") == [None, None]
    in_judge, in_worker = forked.pop("once")
    assert in_judge == in_worker
    assert in_judge is not None
    # Another run on this machine may hold the accounts that the first one had.
    for root, judge, worker in (forked.pop("uids"), separate.pop("uids")):
        assert root == 0
        assert Accounts(judge=judge, worker=worker) in ACCOUNTS
    assert forked == separate
    assert forked["worker"]["parent"] == forked["judge"]["parent"] == 1
    assert forked["worker"]["CapPrm"] == forked["judge"]["CapPrm"] == "0" * 16


@pytest.mark.parametrize(
    "preload", ["import no_such_module", "import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)", "?"]
)
def test_where_the_preload_fails_judge_and_worker_start_without_it(workshop: Workshop, preload: str) -> None:
    """What is missing is for them to say, whose stderr is reported."""
    assert _found(workshop, preload)["once"] == [None, None]


def test_the_preload_can_run_on_other_cores(workshop: Workshop) -> None:
    """Judge and worker are started on the container's own, which it gets when it is told; those are what is checked."""
    own, other = sorted(os.sched_getaffinity(0))[:2]
    judge = """
payload = request()
peer = line()
peer.sendall(b'x')
step('test', json.dumps([sys.made_on, sorted(os.sched_getaffinity(0)), json.loads(peer.recv(100))]))
"""
    worker = "line.recv(1); line.sendall(str(sorted(os.sched_getaffinity(0))).encode()); line.recv(1)"
    preload = "import os, sys; sys.made_on = sorted(os.sched_getaffinity(0)); os.sched_setaffinity(0, sys.made_on)"
    boot = workshop.pair_boot(judge, worker, preload=preload)
    spec = replace(workshop.spec(boot, cpus=(own,)), import_cpus=(other,))
    asked = threading.Event()
    with workshop.engine.start(spec, wait_for_cores=asked.set) as container:
        assert asked.is_set()
        report = converse(container, PairRequest(payload={}))
    assert json.loads(report.steps[0].stdout) == [[other], [own], [own]]
    assert report.attested["cpus"] == [own]


def test_further_ranks_are_forks_too(workshop: Workshop) -> None:
    """They are made when the request is there, of a process that has not seen it."""
    judge = """
request()
lines = [line(), *(next_line() for _ in range(5))]
for peer in lines:
    peer.sendall(b'x')
step('test', json.dumps([sys.made_once, *(peer.recv(100).decode() for peer in lines)]))
"""
    worker = "line.recv(1); line.sendall(sys.made_once.encode()); line.recv(1)"
    assert len(set(workshop.said(judge, worker, worker, boot={"preload": PRELOAD}, ranks=3))) == 1


def test_what_a_judge_orders_that_has_ended_is_not_done(workshop: Workshop) -> None:
    """Init sees that the judge has ended, then reads its `ahead` frame. It starts no worker beside the next request."""
    judge = """
if request():
    step('test', sum(open(f'/proc/{pid}/status').read().split('Uid:')[1].split()[:1] == ['10000']
                     for pid in os.listdir('/proc') if pid.isdigit()))
    os._exit(0)
peer = line()
peer.sendall(b'x')
peer.recv(1)
say('spawn', role='candidate')
while len(os.listdir('/tmp')) == 30000:
    time.sleep(0.001)
say('ahead', count=4)
os._exit(0)
"""
    # Init removes these between the two, and meanwhile the judge ends.
    worker = """
if line.recv(1):
    for number in range(30000):
        os.close(os.open(f'/tmp/{number}', os.O_CREAT | os.O_WRONLY))
    line.sendall(b'x')
line.recv(1)
"""
    spec = workshop.spec(workshop.pair_boot(judge, worker, preload=PRELOAD, ahead="pass"))
    with workshop.engine.start(spec) as container:
        for payload in ({}, {"looks": True}):
            request = PairRequest(payload=payload, successive=True, stay_open=True)
            report = converse(container, request)
            assert report.ok, report.message
    # The template alone.
    assert report.steps[0].stdout == "1"


def test_a_second_name_of_a_drivers_file_ends_the_container(workshop: Workshop) -> None:
    """Where the kernel does not forbid it, a worker gives it one, which a later worker would read."""
    judge = """
request()
say('ahead', count=1)
assert further.recv(1) == b'a'
next_worker()
"""
    # Not by a worker: most hosts forbid it.
    ahead = "import os; os.close(os.open('/dev/shm/a', os.O_CREAT)); os.link('/dev/shm/a', '/dev/shm/b')"
    report = workshop.pair(judge, boot={"preload": PRELOAD, "ahead": ahead}, successive=True)
    assert "cannot be removed" in (report.message or "")


_AHEAD_AND_ONE_WORKER = """
request()
say('ahead', count=2)
assert further.recv(1) == b'a'
peer = line()
"""


@pytest.mark.parametrize(
    ("begin", "closed"), [("request(); peer = line()", 1), (_AHEAD_AND_ONE_WORKER, 3)], ids=["template", "ahead"]
)
def test_what_waits_beside_a_submission_is_as_closed_as_init(workshop: Workshop, begin: str, closed: int) -> None:
    """A template, and workers that were started ahead: no signal, no memory, no limit, no descriptor of them."""
    names = ("signal_everybody", "priorities", "proc_memory_write", "proc_of_others", "process_memory_calls", "ptrace")
    sources = [case.source for case in all_cases() if case.name in (*names, "pidfd_getfd")]
    assert len(sources) == len(names) + 1
    worker = f"""
line.recv(1)
names = {{}}
exec({PRELUDE.read_text(encoding="utf-8")!r}, names)
uids = []
for pid in names['others']():
    try:
        uids.append(open(f'/proc/{{pid}}/status').read().split('Uid:')[1].split()[:4])
    except (FileNotFoundError, ProcessLookupError):
        # The parent of a fork, which ends at once.
        pass
for source in {sources!r}:
    exec(source, names)
line.sendall(json.dumps([names['BREACHES'], uids]).encode())
line.recv(1)
"""
    judge = begin + "\npeer.sendall(b'x'); step('test', peer.recv(100000).decode())"
    spec = workshop.spec(workshop.pair_boot(judge, worker, preload=PRELOAD, ahead="pass"))
    with workshop.engine.start(spec) as container:
        for _ in range(2):
            request = PairRequest(payload={}, successive=True, stay_open=True)
            report = converse(container, request)
            assert report.ok, report.message
            breaches, uids = json.loads(report.steps[0].stdout)
            assert breaches == []
            # And perhaps the parent of the last fork, which ends at once. None is left of the request before.
            assert uids.count(["10000", "0", "10000", "0"]) in (closed, closed + 1)


def test_a_worker_that_was_started_ahead_is_like_another_and_runs_its_code_before(workshop: Workshop) -> None:
    """Ids, capabilities of all threads, descriptors, environment; another takes the place of one that failed."""
    judge = (
        _LOOK
        + """
request()
def ask(peer):
    peer.sendall(b'x')
    return json.loads(peer.recv(100000))
seen = [ask(line()), ask(next_worker())]
say('ahead', count=4)
assert further.recv(1) == b'a'
seen += [ask(next_worker()) for _ in range(4)]
step('test', json.dumps(seen))
"""
    )
    worker = _WORKER.replace("{**look()", "{**look(), 'ahead': getattr(sys, 'ahead', None)")
    ahead = """
import os, sys, threading
sys.ahead = [*os.getresuid(), int(open('/proc/self/status').read().split('CapPrm:')[1].split()[0], 16)]
# A driver may leave such a file. No worker can remove it, and it must not end the request.
open(f'/dev/shm/{os.getpid()}', 'w').close()
for number in range(4):
    try:
        open(f'/tmp/{number}', 'x').close()
        break
    except FileExistsError:
        pass
if number % 2:
    raise RuntimeError
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
    boot = {"preload": PRELOAD, "ahead": ahead}
    plain, replaced, *others = workshop.said(judge, worker, boot=boot, successive=True)
    assert plain == replaced
    capabilities = 1 << 5 | 1 << 6 | 1 << 7
    # Every other one fails.
    assert [other["ahead"] for other in others] == [[10000, 0, 10000, capabilities]] * 2 + [None] * 2
    # With a second thread the C library has a signal of its own by which all change their uid.
    for other in others:
        assert other | {"ahead": None, "Threads": "1", "SigCgt": plain["SigCgt"]} == plain
        assert other["Threads"] == ("1" if other["ahead"] is None else "2")
