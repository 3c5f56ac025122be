"""One process per database is the bot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from runner.extras.discord.client import Client
from tests.integration.extras.discord.simulation import until
from tests.integration.store.conftest import Db

pytestmark = pytest.mark.anyio


async def test_of_two_bots_one_serves(make_client: Callable[..., Client], db: Db) -> None:
    """The other waits and takes over where the first ends; a bot that was replaced notices it."""
    first, second, third = clients = [make_client() for _ in range(3)]
    for client in clients:
        await client.store.open()
    await first.turn.take()
    taking = asyncio.create_task(second.turn.take())
    with capture_logs() as logs:
        await until(lambda: [line for line in logs if line["event"] == "discord_waits"], "the second waits")
    assert not taking.done()
    await first.turn.end()
    await taking
    # As if it had not reached the database for so long that another process has become the bot, which is killed then.
    db.execute("UPDATE runner.discord_bot SET holder = gen_random_uuid(), held_until = now() + interval '1 second'")
    taking = asyncio.create_task(third.turn.take())
    await until(second.turn.lost.is_set, "the second has noticed")
    assert not third.turn.lost.is_set()
    await taking
    for client in clients:
        await client.turn.end()
        await client.store.close()
