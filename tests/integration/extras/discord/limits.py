"""Discord's rate limits, as a client that heeds their headers meets them: a request waits until its bucket has room.

Nobody waits here. A request that would have to moves Discord's clock to when it may be sent, so the time that something
takes at least is a matter of which requests it needs, not of this machine.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from typing import Any, Final

from simcord import Env
from simcord.http.client import FakeHTTPClient

#: Method and path -> how many requests are taken in how many seconds; the groups of a path name the bucket. Discord
#: documents the global limit alone. The others are what bots read in its answers, that of threads the longest of them.
#: Edits of a command's answer (5 in 2 s) are left out: the frontend makes at most one in that time.
_BUCKETS: Final = (
    ("POST", re.compile(r"/channels/(\d+)/messages"), 5, 5.0),
    ("PATCH", re.compile(r"/channels/(\d+)/messages/\d+"), 5, 5.0),
    ("GET", re.compile(r"/channels/(\d+)/messages"), 5, 5.0),
    ("POST", re.compile(r"/channels/(\d+)/threads"), 50, 300.0),
    ("PUT", re.compile(r"/channels/(\d+)/thread-members/\d+"), 5, 5.0),
    ("POST", re.compile(r"/users/@me/channels"), 10, 600.0),
    (None, re.compile(r".*"), 50, 1.0),
)


class Limits:
    """Heeds the limits of what the bot sends from now on."""

    def __init__(self, env: Env) -> None:
        #: Discord's time, in seconds since the beginning.
        self.clock_s = 0.0
        self._taken: dict[tuple[str, ...], deque[float]] = defaultdict(deque)
        http = env.bot.http
        assert isinstance(http, FakeHTTPClient)
        request = http.request

        async def limited(route: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - handed through
            path = re.sub(r"^https://[^/]+/api/v\d+", "", route.url)
            for method, pattern, most, period_s in _BUCKETS:
                match = pattern.fullmatch(path)
                if method in (None, route.method) and match is not None:
                    self._take((method or "", pattern.pattern, *match.groups()), most, period_s)
            # Commands' answers can be edited for 15 minutes of this clock.
            env.backend.advance_clock(self.clock_s - env.backend.clock.elapsed)
            return await request(route, *given, **named)

        http.request = limited  # type: ignore[method-assign]

    def _take(self, bucket: tuple[str, ...], most: int, period_s: float) -> None:
        taken = self._taken[bucket]
        if len(taken) == most:
            self.clock_s = max(self.clock_s, taken.popleft() + period_s)
        taken.append(self.clock_s)
