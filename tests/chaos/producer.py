"""The frontend of the storm: submits and cancels at its own pace, and repeats what got no answer.

Every submission has an idempotency key, so a repeated one must not become a second submission. What it meant to do is
in its orders, which are drawn from the seed before the storm begins.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from runner.errors import DatabaseUnavailableError
from runner.model import Mode, Verdict
from runner.store import Store
from tests.chaos.script import VERDICTS, Script, job_key

BOARD: Final = "storm"
_MODES: Final = (Mode.LEADERBOARD,) * 5 + (Mode.TEST, Mode.TEST, Mode.BENCHMARK, Mode.PROFILE, Mode.PRIVATE)


@dataclass(kw_only=True)
class Order:
    """One submission as it is meant, and what became of the wish so far."""

    key: str
    at_s: float
    user_id: str
    mode: Mode
    gpu_types: tuple[str, ...]
    priority: int
    script: Script
    #: Seconds after its submission; None: it is left alone.
    cancel_after_s: float | None
    submission_id: int | None = None
    cancelled: bool = False

    def jobs(self) -> frozenset[str]:
        """The jobs it must have."""
        twins = {Mode.LEADERBOARD: (False, True), Mode.PRIVATE: (True,)}.get(self.mode, (False,))
        return frozenset(job_key(gpu_type, secret=secret) for gpu_type in self.gpu_types for secret in twins)


def draw(
    *, seed: int, count: int, over_s: float, gpu_types: Sequence[str], work_s: float, lease_s: float
) -> tuple[Order, ...]:
    """Orders: all modes, some failures, some cancelled.

    Half of the work is as short as can be, so that results come thick and fast; of the rest, `work_s` long on average,
    some is longer than a lease.
    """
    chance = random.Random(f"orders {seed}")  # noqa: S311 - reproducible on purpose
    orders = []
    for number in range(count):
        mode = chance.choice(_MODES)
        # Ranked submissions on every type: their last jobs end on different hosts.
        types = tuple(gpu_types) if mode is Mode.LEADERBOARD else (chance.choice(gpu_types),)
        script = Script(
            work_ms=round(1000 * _work_s(chance, work_s, lease_s)),
            failing=chance.choices((0, 1, 2, 3), (88, 6, 3, 3))[0],
            verdicts={
                job_key(gpu_type, secret=secret): _verdict(chance) for gpu_type in types for secret in (False, True)
            },
        )
        orders.append(
            Order(
                key=f"order-{seed}-{number}",
                at_s=over_s * number / count,
                user_id=f"user-{chance.randint(1, 7)}",
                mode=mode,
                gpu_types=types,
                priority=chance.choices((0, 1, -1), (8, 1, 1))[0],
                script=script,
                cancel_after_s=chance.choice((0.0, 0.05, 0.5, lease_s)) if chance.random() < 0.1 else None,
            )
        )
    return tuple(orders)


def _work_s(chance: random.Random, work_s: float, lease_s: float) -> float:
    kind = chance.random()
    if kind < 0.5:
        return chance.uniform(0.002, 0.03)
    return chance.uniform(0.2, 1.8) * work_s if kind < 0.95 else chance.uniform(0.5, 1.5) * lease_s


def _verdict(chance: random.Random) -> Verdict:
    return Verdict.ACCEPTED if chance.random() < 0.8 else chance.choice(VERDICTS)


def publish_board(store: Store, gpu_types: Sequence[str]) -> None:
    """The leaderboard that everything is submitted to."""
    store.create_board(
        name=BOARD,
        deadline=datetime.now(UTC) + timedelta(days=1),
        task={"lang": "py"},
        description="",
        gpus=gpu_types,
        templates={},
        extra=None,
    )


class Producer:
    """Works off orders in a thread of its own; `retries` counts what got no answer the first time."""

    def __init__(self, database_url: str, orders: Sequence[Order]) -> None:
        self._store = Store(database_url, application_name="chaos frontend")
        self._orders = orders
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self.retries = 0
        self.error: Exception | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def finished(self) -> bool:
        """Whether every order is placed and every cancellation answered, or it broke."""
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop, finished or not."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(30.0)
        self._store.close()

    def _run(self) -> None:
        begun_s = time.monotonic()
        #: (when, number, what): number breaks ties, so orders need no order.
        due = [(order.at_s, number, order, False) for number, order in enumerate(self._orders)]
        heapq.heapify(due)
        try:
            while due and not self._stop.is_set():
                at_s, number, order, cancel = heapq.heappop(due)
                if self._stop.wait(max(0.0, begun_s + at_s - time.monotonic())):
                    return
                if cancel:
                    self._cancel(order)
                    continue
                self._submit(order)
                if order.cancel_after_s is not None:
                    heapq.heappush(due, (time.monotonic() - begun_s + order.cancel_after_s, number, order, True))
        except Exception as error:  # noqa: BLE001 - handed to the storm, which fails with it
            self.error = error

    def _submit(self, order: Order) -> None:
        while not self._stop.is_set():
            try:
                order.submission_id = self._store.submit(
                    leaderboard=BOARD,
                    user_id=order.user_id,
                    file_name="script.py",
                    code=order.script.to_code(),
                    mode=order.mode.value,
                    gpu_types=order.gpu_types,
                    user_name=None,
                    priority=order.priority,
                    idempotency_key=order.key,
                )
            except DatabaseUnavailableError:
                self.retries += 1
                self._stop.wait(0.2)
            else:
                return

    def _cancel(self, order: Order) -> None:
        # Noted before: the database may have heard it although no answer came.
        order.cancelled = True
        while not self._stop.is_set() and order.submission_id is not None:
            try:
                self._store.cancel(order.submission_id, order.user_id)
            except DatabaseUnavailableError:
                self.retries += 1
                self._stop.wait(0.2)
            else:
                return
