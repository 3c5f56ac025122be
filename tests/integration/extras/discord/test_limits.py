"""A hundred submissions at once, within Discord's rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from runner.extras.discord import following
from tests.integration.extras.discord.limits import Limits
from tests.integration.extras.discord.simulation import Server, ended, told
from tests.integration.store.conftest import CODE, Bench

pytestmark = pytest.mark.anyio

USERS, EACH = 10, 10
#: How long a command's answer can be edited.
TOKEN_S = 15 * 60


async def test_a_hundred_submissions_at_once_stay_within_the_limits(
    bench: Bench, server: Server, finish: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost or doubled, and every author reads the end where the command was given."""
    bench.board("sort", "CPU", "H100")
    monkeypatch.setattr(following, "LOOK_S", 0.05)

    limits = Limits(server.env)
    users = [server.member(f"user{number}") for number in range(USERS)]
    sent = [
        (user, await user.begin("leaderboard submit ranked", **options))
        for number in range(EACH)
        for user, gpu in zip(users, ("CPU", "H100") * (USERS // 2), strict=True)
        for options in ({"script": ("mine.py", CODE), "gpu": gpu, "leaderboard_name": "sort"},)
    ]
    for _, reply in sent:
        await reply.reads("Submission ")
    await asyncio.to_thread(finish, "CPU", "H100")
    await ended(bench, len(sent))
    for user, reply in sent:
        text = await reply.reads("Accepted")
        assert told(server, user, int(text.split()[1])) == (1, 1)
    assert limits.clock_s < TOKEN_S
