"""What live pages show of leaderboards: one state per leaderboard and GPU type, made once per change for all who watch.

The states are made from the database's events, and every few seconds, since events may be missing. A watcher has no
queue: each frame is a whole state with the newest records, so one that is slow skips frames and misses no record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from runner.base.errors import DatabaseUnavailableError
from runner.extras.gateway import charts
from runner.extras.gateway.queries import MOST
from runner.extras.store import AsyncStore
from runner.store.connection import Row

#: Places and records that a state has.
PLACES: Final = 10
RECORDS: Final = 10
#: How often every watched state is made again, and all of its scores are read: some may have been taken out.
LOOK_S: Final = 5.0
_ALL_S: Final = 60.0
#: The time between two states of a leaderboard, at least.
_PAUSE_S: Final = 0.2
#: How many scores are read at the beginning, and after a change.
_SCORES: Final = 3000
_NEWEST: Final = 100
#: A state without watchers serves those who load the page for this long.
_FRESH_S: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A leaderboard and a GPU type."""

    board_id: int
    gpu: str

    @property
    def key(self) -> str:
        """The id of its part of a page."""
        return f"board-{self.board_id}-{self.gpu.encode().hex()}"


@dataclass(frozen=True, kw_only=True)
class State:
    """What a live page shows of a topic."""

    topic: Topic
    name: str
    deadline: datetime
    over: bool
    public: bool
    places: Sequence[Row]
    #: The newest first.
    records: Sequence[charts.Score]
    spark: charts.Drawing | None
    #: Public jobs alone: nothing is said of secret ones.
    waiting: int
    running: Sequence[Row]


@dataclass
class View:
    """The newest state of a topic, and who waits for the next one."""

    topic: Topic
    state: State | None = None
    #: Grows with each state that differs.
    version: int = 0
    made_at: float = float("-inf")
    read_at: float = float("-inf")
    scores: dict[int, charts.Score] = field(default_factory=dict)
    watchers: set[asyncio.Event] = field(default_factory=set)
    #: Frames of the newest state, by layout.
    frames: dict[str, bytes] = field(default_factory=dict)
    making: asyncio.Lock = field(default_factory=asyncio.Lock)

    def frame(self, layout: str, make: Callable[[State], bytes]) -> bytes:
        """The newest state as bytes, made for the first watcher of a layout."""
        if layout not in self.frames and self.state is not None:
            self.frames[layout] = make(self.state)
        return self.frames.get(layout, b"")


class Live:
    """Makes the states and wakes those who watch."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._views: dict[Topic, View] = {}
        self._changed: set[int] = set()
        self._all_changed = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to make states."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Make no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def leave(self) -> None:
        """Let every watcher look whether the process is to stop."""
        for view in self._views.values():
            for event in view.watchers:
                event.set()

    def heard(self, submission_ids: Iterable[int]) -> None:
        """Something happened to these submissions; none: perhaps to any."""
        if not self._views:
            return
        # Every login of the database may send events.
        ids = {submission_id for submission_id in submission_ids if 0 < submission_id <= MOST}
        self._changed |= ids
        self._all_changed |= not ids
        self._wake.set()

    @asynccontextmanager
    async def watch(self, topics: Sequence[Topic]) -> AsyncIterator[tuple[Sequence[View], asyncio.Event]]:
        """The views of these topics, and an event that is set at each change; to be cleared by who waits."""
        event = asyncio.Event()
        views = [self._views.setdefault(topic, View(topic)) for topic in topics]
        for view in views:
            view.watchers.add(event)
        try:
            with suppress(DatabaseUnavailableError):
                for view in views:
                    await self._make(view, fresh_s=LOOK_S)
            yield views, event
        finally:
            for view in views:
                view.watchers.discard(event)

    async def now(self, topic: Topic) -> State | None:
        """A state for one who loads the page: of the watchers, or a second old; None: there is no such leaderboard."""
        view = self._views.setdefault(topic, View(topic))
        if not view.watchers or view.state is None:
            await self._make(view, fresh_s=_FRESH_S)
        return view.state

    async def _run(self) -> None:
        looked_at = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, looked_at + LOOK_S - time.monotonic())):
                    await self._wake.wait()
            self._wake.clear()
            every = self._all_changed or time.monotonic() >= looked_at + LOOK_S
            ids, self._changed, self._all_changed = list(self._changed), set(), False
            try:
                boards: set[int] = set()
                if every:
                    looked_at = time.monotonic()
                elif ids:
                    boards = {row["id"] for row in await self._store.all("boards_of", ids=ids)}
                for view in list(self._views.values()):
                    if view.watchers and (every or view.topic.board_id in boards):
                        await self._make(view)
                    elif not view.watchers and time.monotonic() > view.made_at + LOOK_S:
                        self._views.pop(view.topic, None)
            except DatabaseUnavailableError:
                # The listener says so; what was missed is made at the next look.
                self._all_changed = True
            await asyncio.sleep(_PAUSE_S)

    async def _make(self, view: View, *, fresh_s: float = 0.0) -> None:
        """Make a view's state; one that is `fresh_s` old will do."""
        async with view.making:
            began = time.monotonic()
            if began < view.made_at + fresh_s:
                return
            if began > view.read_at + _ALL_S:
                view.scores, view.read_at = {}, began
            state = await self._read(view)
            view.made_at = began
            if state != view.state:
                view.state, view.version, view.frames = state, view.version + 1, {}
                for event in view.watchers:
                    event.set()

    async def _read(self, view: View) -> State | None:
        board_id, gpu = view.topic.board_id, view.topic.gpu
        board = await self._store.one("live_board", board_id=board_id, gpu_type=gpu)
        if board is None:
            return None
        places = await self._store.all("places", leaderboard=board["name"], gpu_type=gpu, limit=PLACES, offset=0)
        bests = [charts.Score.of(row) for row in places if charts.is_time(row["score"])]
        newest = await self._scores(view.topic, _NEWEST if view.scores else _SCORES)
        is_known = any(score.submission_id in view.scores for score in newest)
        # The best score may be of a submission that waited long: it is none of the newest.
        scores = view.scores | {score.submission_id: score for score in (*newest, *bests)}
        records = charts.records(list(scores.values()))
        if view.scores and not (is_known and bests and records[-1].seconds == bests[0].seconds):
            # More came than were read, or the best was taken out.
            newest = await self._scores(view.topic, _SCORES)
            scores = {score.submission_id: score for score in (*newest, *bests)}
            records = charts.records(list(scores.values()))
        view.scores = scores
        return State(
            topic=view.topic,
            name=board["name"],
            deadline=board["deadline"],
            over=board["over"],
            public=board["visibility"] == "public",
            places=places,
            records=records[::-1][:RECORDS],
            spark=charts.sparkline(list(scores.values())),
            waiting=board["waiting"],
            running=board["running"],
        )

    async def _scores(self, topic: Topic, limit: int) -> Sequence[charts.Score]:
        rows = await self._store.all("board_scores", board_id=topic.board_id, gpu_type=topic.gpu, limit=limit)
        return [charts.Score.of(row) for row in rows]
