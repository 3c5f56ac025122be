"""Attacks from one worker on the next one of its container; containers without the defence, as their control.

Each attack is a text that looks for what an equal candidate has left, and then leaves it. It raises an error that says
so if it has met something. Two equal candidates make a case, whatever their order is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from sandbox.policy import hardening, hostconfig

_HEAD: Final = "import ctypes, fcntl, os, pathlib, signal, sys, time\n"
_TAIL: Final = "if met:\n    raise RuntimeError('met')\n"


def _file(path: str) -> str:
    make = "p.parent.mkdir(parents=True, exist_ok=True)\np.write_text('x')\n"
    return f"p = pathlib.Path({path!r})\nmet = p.exists()\n{make}"


def _system_v(call: str, size: str) -> str:
    look, make = f"met = libc.{call}(77, {size}, 0o666) >= 0\n", f"libc.{call}(77, {size}, 0o1000 | 0o666)\n"
    return f"libc = ctypes.CDLL(None)\n{look}{make}"


#: A process that is no child of the candidate any more, and goes on with what follows.
_DAEMON: Final = "if os.fork() == 0:\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n"

#: `named(name)` lists the running processes of a name. It skips zombies, which have no command line.
_NAMED: Final = (
    "def named(name):\n    found = set()\n"
    "    for p in pathlib.Path('/proc').glob('[0-9]*/comm'):\n"
    "        try:\n            if p.read_text() == name + '\\n' and p.with_name('cmdline').read_bytes():\n"
    "                found.add(p.parent.name)\n"
    "        except OSError:\n            pass\n    return found\n"
)

_ATTACKS: Final[Mapping[str, str]] = {
    "a file in its directory": _file("/work/left"),
    "a file in a folder that is forbidden": (
        "p = pathlib.Path('/work/locked')\nmet = p.exists()\np.mkdir()\n(p / 'x').write_text('x')\np.chmod(0)\n"
    ),
    "an access list for what is made in its directory": (
        "import struct\nmet = bool(os.listxattr('/work'))\n"
        "rights = b''.join(struct.pack('<HHi', who, 7, -1) for who in (1, 4, 32))\n"
        "os.setxattr('/work', 'system.posix_acl_default', struct.pack('<I', 2) + rights)\n"
    ),
    "times and flags of its directory": (
        "mark = 1 << 61\nfd = os.open('/work', os.O_RDONLY)\nflags = fcntl.ioctl(fd, 0x80086601, bytes(8))\n"
        "met = os.fstat(fd).st_atime_ns == mark or any(flags)\n"
        "os.utime('/work', ns=(mark, mark))\nfcntl.ioctl(fd, 0x40086602, bytes([64, 0, 0, 0, 0, 0, 0, 0]))\n"
    ),
    "a message queue": "p = pathlib.Path('/dev/mqueue/left')\nmet = p.exists()\np.touch()\n",
    "a file in /tmp": _file("/tmp/left"),
    "a file in /dev/shm": _file("/dev/shm/left"),
    "a module that the next one imports": (
        "try:\n    import left_module\n    met = True\nexcept ImportError:\n    met = False\n"
        "    pathlib.Path('/work/left_module.py').write_text('')\n"
    ),
    "a library in a compiler's cache": (
        "p = pathlib.Path(os.environ['HOME'], '.cache', 'torch_extensions', 'left.so')\nmet = p.exists()\n"
        "p.parent.mkdir(parents=True, exist_ok=True)\np.write_bytes(b'x')\n"
    ),
    "a variable of the shell's start": _file("/work/.bashrc"),
    "shared memory of System V": _system_v("shmget", "4096"),
    "semaphores of System V": _system_v("semget", "1"),
    "a socket that listens": (
        "import socket\ns = socket.socket(socket.AF_UNIX)\n"
        "try:\n    s.connect('\\0left')\n    met = True\nexcept OSError:\n    met = False\n"
        f"{_DAEMON}    s = socket.socket(socket.AF_UNIX)\n"
        "    s.bind('\\0left')\n    s.listen()\n    time.sleep(86399)\n"
        # Until it listens, so that the next one meets it.
        "while not met:\n    try:\n        socket.socket(socket.AF_UNIX).connect('\\0left')\n        break\n"
        "    except OSError:\n        time.sleep(0.01)\n"
    ),
    "a process": (
        f"{_NAMED}met = bool(named('sleep'))\n"
        f"{_DAEMON}    os.execvp('sleep', ['sleep', '86398'])\n"
        # Until it is there, so that the next one meets it.
        "while not named('sleep'):\n    time.sleep(0.01)\n"
    ),
    # The one that it kills calls itself prey, as it does itself from here on. It goes on when its own killer is there
    # for the next one, and waits for as long as there is one that it has not made.
    "a process that kills the next one": (
        f"{_NAMED}met = False\nown = os.getpid()\nkillers = named('killer')\n"
        f"{_DAEMON}"
        "    ctypes.CDLL(None).prctl(15, b'killer')\n"
        "    while True:\n"
        "        for p in pathlib.Path('/proc').glob('[0-9]*/comm'):\n"
        "            try:\n"
        "                if p.read_text() == 'prey\\n' and int(p.parent.name) != own:\n"
        "                    os.kill(int(p.parent.name), signal.SIGKILL)\n"
        "            except OSError:\n"
        "                pass\n"
        "        time.sleep(0.01)\n"
        "ctypes.CDLL(None).prctl(15, b'prey')\n"
        "while not named('killer') - killers or named('killer') & killers:\n    time.sleep(0.01)\n"
    ),
}


def attacks(good: str) -> Mapping[str, str]:
    """The attacks, each followed by a candidate that is right."""
    return {name: f"{_HEAD}{text}{_TAIL}{good}" for name, text in _ATTACKS.items()}


def all_at_once(good: str) -> str:
    """All of them in one submission that is right, but those on caches, which its secret run is to get."""
    texts = {name: _HEAD + text for name, text in _ATTACKS.items() if "cache" not in name}
    # What it starts is called as it is itself, and would be killed.
    last = "a process that kills the next one"
    texts[last] = texts.pop(last)
    return (
        f"met = []\nfor _name, _text in {texts!r}.items():\n    _names = {{}}\n    exec(_text, _names)\n"
        f"    if _names['met']:\n        met.append(_name)\nif met:\n    raise RuntimeError(f'met {{met}}')\n{good}"
    )


@contextmanager
def without_cleaning() -> Iterator[None]:
    """While inside: in containers, nothing is killed and nothing is removed between workers and requests."""
    create_body = hostconfig.create_body

    def relaxed_body(*given: Any, **more: Any) -> MutableMapping[str, Any]:  # noqa: ANN401 handed through
        body = create_body(*given, **more)
        *before, source, boot = body["Entrypoint"]
        if not source.endswith("; main()"):
            raise AssertionError(f"init is started in another way: {source}")
        # The worker itself ends: else the next one would never come.
        off = (
            "import os; import sandbox.inside.pair as p; wait = p.Reaper.final_status; p.Reaper.final_status = "
            "lambda r, pid: (r.status(pid) is None and os.kill(pid, 9), wait(r, pid))[1]; "
            "p.clean_up = p.kill_all_of = lambda *_, **__: None"
        )
        body["Entrypoint"] = [*before, f"{source.removesuffix('main()')}{off}; main()", boot]
        return body

    with (
        mock.patch.object(hostconfig, "create_body", relaxed_body),
        mock.patch.object(hardening, "violations", return_value=[]),
    ):
        yield
