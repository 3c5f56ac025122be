"""Answers from several processes at once, in the order of their arrival. A failure shortens the others' time.

A rank that fails or dies leaves the others in a collective, for ever. So after the first bad answer the rest have a
short time left. In it the cause may still arrive: a rank that died makes its neighbours raise before its death is
reported. Pure I/O, without knowledge of the messages.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.harness.shared.wire import Channel, PeerClosed, WireViolation

#: Time that the others have after the first bad answer.
GRACE_NS = 2_000_000_000


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The message of one process, or how its channel ended."""

    index: int
    message: Mapping[str, Any] = field(default_factory=dict)
    #: The caller must close them.
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
    """One message of each channel, in the order of arrival. Channels that time out are missing.

    `good`: whether a message leaves the others their full time, else they have `grace_ns`; the same once `wake_fd` is
    readable. `deadline_ns`: on time.monotonic_ns. `spin_ns`: how long to poll without sleeping, which is quicker than
    being woken up.
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
            # It stays readable, so it is not watched any more.
            poll.unregister(wake_fd)
            wake_fd = None
            limit_ns = min(limit_ns, time.monotonic_ns() + grace_ns)
    return tuple(heard)


def _hear(index: int, channel: Channel) -> Reply | None:
    try:
        received = channel.receive_now()
    except (PeerClosed, WireViolation) as error:
        return Reply(index=index, error=error)
    return None if received is None else Reply(index=index, message=received[0], descriptors=tuple(received[1]))
