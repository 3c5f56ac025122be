"""What a container does to judge and worker, without one: two users, no capabilities, the filter of system calls.

    python -m tests.gpu.box UID -- COMMAND ARGUMENT...

Runs a command as another user, who can gain no rights and lock 64 KiB of memory, behind `sandbox/policy/seccomp.json`.
Needs root and libseccomp. There is no other root file system, no network namespace and no cgroup.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
#: As in a container (docs/security.md).
UIDS: Final = {"judge": 10001, "worker": 10002, "rank_checker": 10001}
_LIBRARY: Final = "libseccomp.so.2"
#: seccomp.h: actions, comparisons, and a name that this architecture does not have.
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_COMPARISONS: Final = {"NE": 1, "LT": 2, "LE": 3, "EQ": 4, "GE": 5, "GT": 6, "MASKED_EQ": 7}
_UNKNOWN: Final = -1
_PR_SET_NO_NEW_PRIVS: Final = 38
_LOCKED_BYTES: Final = 64 << 10
_PROGRAM: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {} import main; sys.exit(main())"


class _Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def lacking() -> str | None:
    """Why this cannot be had here."""
    if os.geteuid() != 0:
        return "only root may become another user"
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return f"needs {_LIBRARY}"
    packages = find_spec("torch")
    needed = [ROOT, Path(sys.executable).resolve(), Path((packages and packages.origin) or ROOT)]
    for path in (parent for each in needed for parent in each.parents):
        if not path.stat().st_mode & 0o001:
            return f"{path} is closed to other users"
    return None


def start(
    role: str, *, cwd: Path, env: Mapping[str, str], stdin: int, stdout: int, stderr: int, keep: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start a process of a role in it (see `tasks.harness.local.Start`)."""
    # Not above: as a program this module has no package.
    from tasks.harness.roles import MODULES

    uid = UIDS[role]
    cwd.parent.chmod(0o711)
    os.chown(cwd, uid, uid)
    # Each keeps what it compiles: the other one may not write there.
    caches = {
        name: str(cwd / name.lower())
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUDA_CACHE_PATH")
    }
    program = [sys.executable, "-P", "-c", _PROGRAM.format(MODULES[role]), str(ROOT)]
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), str(uid), "--", *program],
        cwd=cwd,
        env={**env, "HOME": str(cwd), "PYTHONDONTWRITEBYTECODE": "1", **caches},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(keep),
        start_new_session=True,
    )


def confine(uid: int) -> None:
    """Make this process as one of a container's.

    Raises:
        OSError: the kernel refused.
    """
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (_LOCKED_BYTES, _LOCKED_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _filter(json.loads((ROOT / "sandbox" / "policy" / "seccomp.json").read_text(encoding="utf-8")))


def _filter(policy: Mapping[str, Any]) -> None:
    """Load the policy into the kernel, for this process and its children."""
    library = ctypes.CDLL(_LIBRARY)
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_action(policy["defaultAction"], policy))))
    for entry in policy["syscalls"]:
        wanted = [
            _Comparison(
                arg=each["index"],
                op=_COMPARISONS[each["op"].removeprefix("SCMP_CMP_")],
                a=each["value"],
                b=each.get("valueTwo", 0),
            )
            for each in entry.get("args", ())
        ]
        for name in entry["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == _UNKNOWN:
                continue
            library.seccomp_rule_add_array(
                rules,
                ctypes.c_uint32(_action(entry["action"], entry)),
                ctypes.c_int(number),
                ctypes.c_uint(len(wanted)),
                (_Comparison * max(len(wanted), 1))(*wanted),
            )
    code = library.seccomp_load(rules)
    if code != 0:
        raise OSError(-code, "the filter of system calls")


def _action(name: str, entry: Mapping[str, Any]) -> int:
    if name == "SCMP_ACT_ALLOW":
        return _ALLOW
    if name == "SCMP_ACT_ERRNO":
        return _ERRNO | int(entry.get("errnoRet", entry.get("defaultErrnoRet", 1)))
    raise ValueError(f"action {name} of the policy is not known here")


def main() -> None:
    """Entry point."""
    uid, _, *command = sys.argv[1:]
    confine(int(uid))
    os.execvp(command[0], command)  # noqa: S606 the arguments are the caller's


if __name__ == "__main__":
    main()
