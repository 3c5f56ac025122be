"""What a submission can see and do in a real container, read from inside as the worker's uid."""

from __future__ import annotations

import json

from tests.integration.sandbox.conftest import WORKERS, Workshop

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
