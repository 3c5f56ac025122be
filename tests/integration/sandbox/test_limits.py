"""What a submission sees in a real container, and hostile programs against the limits there."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

from sandbox.host import container as container_module
from sandbox.protocol import Step
from sandbox.spec import Ending
from tests.integration.sandbox.conftest import QUICK, SLEEP, WORKERS, Workshop, converse


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
