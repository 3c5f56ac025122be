"""Lends pairs of uids to containers: no two containers of this host have the same pair at the same time.

A pair belongs to the process that holds its name, an abstract Unix socket: the kernel gives a name once in a network
namespace, and takes it back from a process that ends. So several daemons and commands on one host need no file, no
lock to clean up and no ranges of their own.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.errors import EngineRefused
from sandbox.spec import ACCOUNTS, Accounts


@dataclass(frozen=True, kw_only=True)
class LentAccounts:
    """A pair of uids, until it is given back."""

    accounts: Accounts
    name: socket.socket

    def give_back(self) -> None:
        """Let another container have them. Idempotent."""
        self.name.close()


def lend(accounts: Sequence[Accounts] = ACCOUNTS) -> LentAccounts:
    """Take the first pair that no process of this host has.

    Raises:
        EngineRefused: all are taken, or this process may open no more files.
    """
    for both in accounts:
        with contextlib.ExitStack() as undo:
            try:
                name = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                name.bind(f"\0kernel-runner/uids/{both.judge}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                raise EngineRefused(f"uids {both.judge} and {both.worker}: not to be had: {error.strerror}") from error
            undo.pop_all()
            return LentAccounts(accounts=both, name=name)
    raise EngineRefused(
        f"uids {accounts[0].judge} to {accounts[-1].worker}: all are taken by containers of this host, expected a free"
        " pair; see which run (docker ps --filter label=kernel-runner.owner)"
    )
