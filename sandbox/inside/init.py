"""Init, the trusted process 1 of every container: starts judge, worker or programs, and talks to the daemon.

Theory of operation. The engine starts init as uid 0 with a boot document as argument. Init has the capabilities SETUID,
SETGID and KILL, no new privileges, the seccomp profile and a read-only root. It sends `ready` with its observations of
the container. Init reads one request and its build archive, runs the request (`pair`, `steps`) and sends `end`. Then it
waits until the daemon closes stdin, so that the daemon can still read the cgroup's counters. If stdin closes earlier,
the daemon is gone, and init ends the container. After a `stay_open` request that ended well, the daemon may send a
further one instead: init then removes what the last one left, and starts new processes for it.

Init must not run a submission's code or import torch, and must treat what a submission wrote as bytes. It is
single-threaded: every wait is a select over the daemon, the children and a timeout. The engine enforces the limits of
the whole container from outside. Standard library only: this runs inside the container.
"""

from __future__ import annotations

import os
import platform
import resource
import stat
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sandbox import mountinfo, protocol
from sandbox.inside.boot import parse_boot
from sandbox.inside.build_archive import unpack_archive
from sandbox.inside.connection import DaemonConnection
from sandbox.inside.pair import JudgeEnded, Pair, import_elsewhere
from sandbox.inside.process import DaemonGone, InitError, Reaper
from sandbox.inside.steps import run_steps

#: Exit codes of the container: the conversation ended properly, or the daemon disappeared.
DONE = 0
ABANDONED = 3
_LIMITS = {
    "core": resource.RLIMIT_CORE,
    "fsize": resource.RLIMIT_FSIZE,
    "nofile": resource.RLIMIT_NOFILE,
    # RLIMIT_NICE and RLIMIT_RTPRIO, for which the module has no names.
    "nice": 13,
    "rtprio": 14,
}
#: Makes terminals, for which threads of the kernel work while those that write to them sleep.
_TERMINAL_MAKERS = (Path("/dev/ptmx"), Path("/dev/pts/ptmx"))


def main() -> None:
    """Run the container. Argument 1 is the boot document. Never returns."""
    code = ABANDONED
    try:
        code = _serve(sys.argv[1])
    except DaemonGone:
        pass
    finally:
        # The end of process 1 ends every process of the container. No cleanup may delay it.
        os._exit(code)


def _serve(document: str) -> int:
    reaper = Reaper()
    daemon = DaemonConnection(report_bytes=64 << 20, reaper=reaper)
    pair = _send_end_of(lambda: _run(document, daemon, reaper), daemon)
    while pair is not None:
        incoming = daemon.next_request()
        if incoming is None:
            return DONE
        pair = _send_end_of(partial(pair.serve_next, incoming), daemon)
    daemon.wait_for_close()
    return DONE


def _send_end_of(work: Callable[[], Pair | None], daemon: DaemonConnection) -> Pair | None:
    """Run a request, and send its `end` frame; return what can serve a further request, if anything can."""
    end = protocol.End(ok=True, message=None)
    pair = None
    try:
        pair = work()
    except JudgeEnded as error:
        end = protocol.End(ok=False, message=str(error), author_exit=error.author_exit)
    except (InitError, protocol.FrameError) as error:
        end = protocol.End(ok=False, message=str(error))
    except DaemonGone:
        raise
    except Exception as error:  # noqa: BLE001 the daemon must get every failure as a sentence
        traceback.print_exc()
        end = protocol.End(ok=False, message=f"the container's init failed: {type(error).__name__}: {error}")
    daemon.send(end.to_message())
    return pair


def _run(document: str, daemon: DaemonConnection, reaper: Reaper) -> Pair | None:
    boot = parse_boot(document)
    daemon.report_bytes = boot.report_bytes
    # An init with another account is refused for it (`facts`).
    for path in _TERMINAL_MAKERS if os.geteuid() == 0 else ():
        with suppress(FileNotFoundError):
            path.chmod(0)
    template = import_elsewhere(boot, daemon, reaper) if boot.awaited_cpus else None
    # First, since the engine checks the facts meanwhile: judge and worker exist once their libraries are imported.
    daemon.send(protocol.Ready(facts=facts()).to_message())
    if boot.kind == "pair":
        return Pair(boot=boot, daemon=daemon, reaper=reaper, template=template).serve()
    incoming = daemon.request()
    unpack_archive(incoming.archive, boot=boot, reaper=reaper)
    run_steps(incoming.request, boot=boot, daemon=daemon, reaper=reaper)
    return None


def facts() -> dict[str, Any]:
    """This process's observations of its container. The engine compares them with the spec."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if ":" in line
    )
    return {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "cap_eff": status["CapEff"].strip(),
        "cap_bnd": status["CapBnd"].strip(),
        "no_new_privs": status.get("NoNewPrivs", "").strip(),
        "seccomp": status.get("Seccomp", "").strip(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "interfaces": sorted(path.name for path in Path("/sys/class/net").glob("*")),
        "limits": {name: resource.getrlimit(number) for name, number in _LIMITS.items()},
        "mounts": _mounts(),
        "devices": _devices(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "hostname": platform.node(),
    }


def _mounts() -> list[dict[str, Any]]:
    """For each mount: mount point, file system type, options, owner and mode of its root, and size."""
    mounts = []
    for mount in mountinfo.parse(Path("/proc/self/mountinfo").read_bytes()):
        top = Path(mount.point).stat()
        usage = os.statvfs(mount.point)
        mounts.append(
            {
                "target": mount.point,
                "type": mount.type,
                "options": mount.options,
                "mode": stat.S_IMODE(top.st_mode),
                "uid": top.st_uid,
                "gid": top.st_gid,
                "size_bytes": usage.f_blocks * usage.f_frsize,
                "inodes": usage.f_files,
            }
        )
    return mounts


def _devices() -> list[str]:
    """The character and block devices below /dev."""
    paths = []
    for directory, _, names in os.walk("/dev"):
        for name in names:
            path = Path(directory, name)
            mode = path.lstat().st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                paths.append(str(path))
    return sorted(paths)
