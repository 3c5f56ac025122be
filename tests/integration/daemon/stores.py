"""Stores of a daemon under test that count, wait or lie where the test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from runner.store import Claims, HostRecord, Reclaimed, Stop, Store, Wakeup
from tests.integration.daemon.rig import Rig
from tests.support.waiting import PATIENCE_S


@dataclass
class Watch:
    """What a daemon's stores do, and a gate before each claim."""

    claims: int = 0
    reclaims: int = 0
    registers: int = 0
    #: `time.monotonic()` when the last registration was answered, and when the last reclaim began.
    registered_s: float = 0.0
    reclaimed_s: float = 0.0
    opened: list[str] = field(default_factory=list)
    #: What the listener has heard and acted on: it has come back for more.
    heard: list[Wakeup] = field(default_factory=list)
    #: Cleared: the next claim waits.
    gate: threading.Event = field(default_factory=threading.Event)
    #: Set while a claim waits at the gate.
    waiting: threading.Event = field(default_factory=threading.Event)
    #: What the daemon is told that a claim has brought; may raise.
    answer: Callable[[Claims], Claims] = lambda claims: claims


def watch(rig: Rig) -> Watch:
    """Watch the stores of a rig that is not started yet."""
    seen = Watch()
    seen.gate.set()

    class Watched(Store):
        at_hand: Wakeup | None = None

        def claim(self, *, host: str, slots: Mapping[str, int], lease_s: float, instance: str | None = None) -> Claims:
            if not seen.gate.is_set():
                seen.waiting.set()
                assert seen.gate.wait(PATIENCE_S)
                seen.waiting.clear()
            seen.claims += 1
            claims = super().claim(host=host, slots=slots, lease_s=lease_s, instance=instance)
            return seen.answer(claims)

        def reclaim(self) -> Sequence[Reclaimed]:
            seen.reclaimed_s = time.monotonic()
            seen.reclaims += 1
            return super().reclaim()

        def register_host(self, host: HostRecord) -> None:
            seen.registers += 1
            super().register_host(host)
            seen.registered_s = time.monotonic()

        def listen(self, *, stop: Stop, timeout_s: float) -> Wakeup | None:
            if self.at_hand is not None:
                seen.heard.append(self.at_hand)
            self.at_hand = super().listen(stop=stop, timeout_s=timeout_s)
            return self.at_hand

    def make(purpose: str) -> Store:
        seen.opened.append(purpose)
        return Watched(rig.daemon_url, application_name=f"daemon {purpose}")

    rig.store_factory = make
    return seen


def notify(rig: Rig, channel: str, *payloads: str) -> None:
    """Send notifications, each in a transaction of its own."""
    for payload in payloads:
        rig.sql("SELECT pg_notify(%(channel)s, %(payload)s)", channel=channel, payload=payload)
