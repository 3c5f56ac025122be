"""The frontend and the operator of the storm: submit, cancel, rerun, invalidate, and repeat what got no answer.

Every submission has an idempotency key, so a repeated one must not become a second submission. What it meant to do is
in its orders, which are drawn from the seed before the storm begins.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from runner.base.errors import DatabaseUnavailableError, NotFoundError, SubmissionError
from runner.base.model import Mode, Verdict
from runner.extras.boards.again import Selection
from runner.extras.boards.store import BoardStore
from tests.chaos.script import VERDICTS, Script, job_key

BOARD: Final = "storm"
_MODES: Final = (Mode.LEADERBOARD,) * 5 + (Mode.TEST, Mode.TEST, Mode.BENCHMARK, Mode.PROFILE, Mode.PRIVATE)


class Deed(StrEnum):
    """What may be done to a submission after it was made."""

    CANCEL = "cancel"
    RERUN = "rerun"
    INVALIDATE = "invalidate"


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
    #: What follows, and how many seconds after its submission.
    deeds: tuple[tuple[float, Deed], ...] = ()
    submission_id: int | None = None
    #: What was done, or at least sent: the database may have heard it although no answer came.
    done: set[Deed] = field(default_factory=set)

    def jobs(self) -> frozenset[str]:
        """The jobs it must have."""
        kinds = {Mode.LEADERBOARD: (False, True), Mode.PRIVATE: (True,)}.get(self.mode, (False,))
        return frozenset(job_key(gpu_type, secret=secret) for gpu_type in self.gpu_types for secret in kinds)


def draw(
    *, seed: int, count: int, over_s: float, gpu_types: Mapping[str, int], work_s: float, lease_s: float
) -> tuple[Order, ...]:
    """Orders: all modes, some failures, some cancelled, GPU types by weight.

    Half of the work is as short as can be, so that results come thick and fast; of the rest, `work_s` long on average,
    some is longer than a lease.
    """
    chance = random.Random(f"orders {seed}")  # noqa: S311 - reproducible on purpose
    orders = []
    for number in range(count):
        mode = chance.choice(_MODES)
        # Ranked submissions on several types: their last jobs end on different hosts.
        types = _gpu_types(chance, gpu_types, 2 if mode is Mode.LEADERBOARD else 1)
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
                deeds=_deeds(chance, lease_s),
            )
        )
    return tuple(orders)


def _gpu_types(chance: random.Random, weights: Mapping[str, int], count: int) -> tuple[str, ...]:
    chosen: set[str] = set()
    while len(chosen) < count:
        chosen.update(chance.choices(list(weights), list(weights.values())))
    return tuple(sorted(chosen))


def _deeds(chance: random.Random, lease_s: float) -> tuple[tuple[float, Deed], ...]:
    """Some are cancelled, at once or in the middle; some are evaluated again when they are probably over."""
    kind = chance.random()
    if kind < 0.1:
        return ((chance.choice((0.0, 0.05, 0.5, lease_s)), Deed.CANCEL),)
    later_s = chance.uniform(0.5, 2.0) * lease_s
    if kind < 0.16:
        return ((later_s, Deed.RERUN),)
    if kind < 0.18:
        return ((later_s, Deed.INVALIDATE),)
    if kind < 0.20:
        return ((later_s, Deed.INVALIDATE), (1.5 * later_s, Deed.RERUN))
    if kind < 0.22:
        return ((later_s, Deed.RERUN), (later_s + 0.05, Deed.CANCEL))
    return ()


def _work_s(chance: random.Random, work_s: float, lease_s: float) -> float:
    kind = chance.random()
    if kind < 0.5:
        return chance.uniform(0.002, 0.03)
    return chance.uniform(0.2, 1.8) * work_s if kind < 0.97 else chance.uniform(0.5, 1.5) * lease_s


def _verdict(chance: random.Random) -> Verdict:
    # Early checks look for what does not compile.
    return Verdict.ACCEPTED if chance.random() < 0.8 else chance.choice((*VERDICTS, *[Verdict.COMPILE_ERROR] * 2))


class Producer:
    """Works off orders in a thread of its own; `repeated` counts what got no answer the first time."""

    def __init__(
        self,
        database_url: str,
        orders: Sequence[Order],
        *,
        direct_host: str | None = None,
        hold_after: int | None = None,
    ) -> None:
        """`direct_host`: HOST:PORT of the server itself, if the address leads to a pooler.

        `hold_after`: after so many submissions it waits for `go_on`.
        """
        self._store = BoardStore(database_url, application_name="chaos frontend", direct_host=direct_host)
        self._orders = orders
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._hold_after = len(orders) if hold_after is None else hold_after
        self.go_on = threading.Event()
        #: Submissions that were answered.
        self.placed = 0
        self.repeated = 0
        self.error: Exception | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def finished(self) -> bool:
        """Whether every order is placed and everything that follows is answered, or it broke."""
        return not self._thread.is_alive()

    def repeat(self) -> int:
        """Once finished, submit everything again with the same keys; how many submissions got another id.

        For a database that has lost what it had answered.
        """
        moved = 0
        for order in self._orders:
            before, order.submission_id = order.submission_id, self._insist(lambda order=order: self._submit(order))  # type: ignore[misc]  # mypy: default in lambda
            moved += order.submission_id != before
        return moved

    def close(self) -> None:
        """Stop, finished or not."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(30.0)
        self._store.close()

    def _run(self) -> None:
        begun_s = time.monotonic()
        #: (when, number, order, deed): the number breaks ties; no deed: the submission itself.
        due: list[tuple[float, int, Order, Deed | None]] = []
        for order in self._orders:
            due.append((order.at_s, len(due), order, None))
        heapq.heapify(due)
        number = len(due)
        try:
            while due and not self._stop.is_set():
                at_s, _, order, deed = heapq.heappop(due)
                if self._stop.wait(max(0.0, begun_s + at_s - time.monotonic())):
                    return
                if deed is not None:
                    self._do(order, deed)
                    continue
                while self.placed >= self._hold_after and not self.go_on.wait(0.1):
                    if self._stop.is_set():
                        return
                order.submission_id = self._insist(lambda order=order: self._submit(order))  # type: ignore[misc]  # mypy: default in lambda
                self.placed += 1
                for after_s, what in order.deeds:
                    number += 1
                    heapq.heappush(due, (time.monotonic() - begun_s + after_s, number, order, what))
        except Exception as error:  # noqa: BLE001 - handed to the storm, which fails with it
            self.error = error

    def _submit(self, order: Order) -> int:
        return self._store.submit(
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

    def _do(self, order: Order, deed: Deed) -> None:
        submission_id = order.submission_id
        if submission_id is None:
            return
        order.done.add(deed)
        selection = Selection(submission_id=submission_id)
        match deed:
            case Deed.CANCEL:
                self._insist(lambda: self._store.cancel(submission_id, order.user_id))
            case Deed.RERUN:
                self._insist(lambda: self._store.rerun(selection, reason="storm"))
            case Deed.INVALIDATE:
                self._insist(lambda: self._store.invalidate(selection, reason="storm"))

    def _insist(self, action: Callable[[], int]) -> int | None:
        """Ask until there is an answer; None: refused (it runs, ran again already, or is lost), or told to stop."""
        while not self._stop.is_set():
            try:
                return action()
            except (SubmissionError, NotFoundError):
                return None
            except DatabaseUnavailableError:
                self.repeated += 1
                self._stop.wait(0.2)
        return None
