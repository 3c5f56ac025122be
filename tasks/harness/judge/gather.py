"""Answers from several processes at once: who answers first is heard first, and who fails cuts the others' time short.

A rank that fails or dies leaves the others waiting for it inside a collective, for ever. So after the first bad answer
the rest have a moment left, in which the cause of all may still be heard: a rank that died makes its neighbours raise
before anybody says that it is dead. Pure I/O, knows nothing of what is said. Called by the crew.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.harness.shared.wire import Channel, PeerClosed, WireViolation

#: What the others have left after the first bad answer: to answer themselves if they can.
GRACE_NS = 2_000_000_000


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one process said, or how its channel ended."""

    index: int
    message: Mapping[str, Any] = field(default_factory=dict)
    #: The caller's to close.
    descriptors: tuple[int, ...] = ()
    error: PeerClosed | WireViolation | None = None


def gather(
    channels: Sequence[Channel],
    *,
    good: Callable[[Mapping[str, Any]], bool],
    deadline_ns: int,
    wake_fd: int | None = None,
    spin_ns: int = 0,
    grace_ns: int = GRACE_NS,
) -> tuple[Reply, ...]:
    """One message of each channel, in the order of their arrival; who said nothing in time is missing.

    Args:
        channels: whom to listen to.
        good: whether a message leaves the others their time.
        deadline_ns: on time.monotonic_ns.
        wake_fd: ends the wait like a bad answer once it is readable.
        spin_ns: how long to ask again and again, which is quicker than being woken up.
        grace_ns: what is left after the first bad answer, or after `wake_fd` became readable.
    """
    pending = dict(enumerate(channels))
    heard: list[Reply] = []
    limit_ns = deadline_ns
    spin_until = time.monotonic_ns() + spin_ns if spin_ns else 0
    poll = select.poll()
    for channel in channels:
        poll.register(channel.fileno(), select.POLLIN)
    if wake_fd is not None:
        poll.register(wake_fd, select.POLLIN)
    while pending:
        for index, channel in list(pending.items()):
            answer = _hear(index, channel)
            if answer is None:
                continue
            del pending[index]
            poll.unregister(channel.fileno())
            heard.append(answer)
            if answer.error is not None or not good(answer.message):
                limit_ns = min(limit_ns, time.monotonic_ns() + grace_ns)
        now = time.monotonic_ns()
        if not pending or now >= limit_ns:
            break
        if now < spin_until:
            continue
        ready = poll.poll((limit_ns - now) / 1e6)
        if wake_fd is not None and any(descriptor == wake_fd for descriptor, _ in ready):
            # It stays readable, and has been heard now.
            poll.unregister(wake_fd)
            wake_fd = None
            limit_ns = min(limit_ns, time.monotonic_ns() + grace_ns)
    return tuple(heard)


def _hear(index: int, channel: Channel) -> Reply | None:
    try:
        found = channel.receive_now()
    except (PeerClosed, WireViolation) as error:
        return Reply(index=index, error=error)
    return None if found is None else Reply(index=index, message=found[0], descriptors=tuple(found[1]))
