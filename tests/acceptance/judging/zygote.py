"""A process that has imported torch and a half of the harness, and forks itself into judges or workers.

Started by `nursery` with the role as its argument and a socket at KR_ZYGOTE_FD. Each order on it is one packet: a JSON
object {cwd, env, keep, without} with the descriptors stdin, stdout, stderr and those whose numbers `keep` names. The
answer is {pid}; when a child has ended, {pid, code}. Ends, with all its children, when the socket does.

A third role, "naive", evaluates as the attack corpus tells it to; `without` are the defences that a judge lacks there.

A fork has a process and memory of its own, as a fresh interpreter has, which is what matters here. It saves the import,
one to two seconds of a core for each.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

#: Longest order; an environment is a few kilobytes.
ORDER_BYTES = 1 << 18
MOST_DESCRIPTORS = 16
#: Above every number that is asked for: descriptors are parked there before they get theirs.
_PARKED_FROM = 600


def load(role: str) -> Callable[[], int]:
    """Import one half of the harness, as its own interpreter would; its entry point."""
    if role == "judge":
        from tasks.harness.judge.main import main
    elif role == "naive":
        from tests.acceptance.attacks.naive import main
    else:
        # The worker's module leaves the judge's core alone where a judge waits for it; children inherit that.
        os.environ["KR_JUDGE_FD"] = "-1"
        from tasks.harness.worker.main import main

        del os.environ["KR_JUDGE_FD"]
    return main


def become(order: Mapping[str, Any], descriptors: Sequence[int], main: Callable[[], int]) -> NoReturn:
    """In a child: take the place that was asked for, and run."""
    code = 1
    try:
        os.setsid()
        parked = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _PARKED_FROM) for descriptor in descriptors]
        os.closerange(0, _PARKED_FROM)
        for source, target in zip(parked, (0, 1, 2, *order["keep"]), strict=True):
            os.dup2(source, target, inheritable=True)
        os.closerange(_PARKED_FROM, _PARKED_FROM + 2 * MOST_DESCRIPTORS)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        sys.argv = ["-c"]
        if order["without"]:
            from tests.acceptance.attacks.relax import switch_off

            switch_off(order["without"])
        code = main()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code)


def serve(line: socket.socket, main: Callable[[], int]) -> None:
    """Fork on order, report ends, until the other side is gone."""
    poller = select.poll()
    poller.register(line, select.POLLIN)
    children: dict[int, int] = {}
    while True:
        for ready, _ in poller.poll():
            if ready != line.fileno():
                pid = children.pop(ready)
                poller.unregister(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                line.send(json.dumps({"pid": pid, "code": code}).encode())
                continue
            data, received, _, _ = socket.recv_fds(line, ORDER_BYTES, MOST_DESCRIPTORS)
            if not data:
                for pid in children.values():
                    os.kill(pid, signal.SIGKILL)
                return
            pid = os.fork()
            if pid == 0:
                line.close()
                become(json.loads(data), received, main)
            for descriptor in received:
                os.close(descriptor)
            watched = os.pidfd_open(pid)
            children[watched] = pid
            poller.register(watched, select.POLLIN)
            line.send(json.dumps({"pid": pid}).encode())


if __name__ == "__main__":
    serve(socket.socket(fileno=int(os.environ.pop("KR_ZYGOTE_FD"))), load(sys.argv[1]))
