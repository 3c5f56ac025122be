"""What people of other servers, of the same channel and without an invitation get to read: nothing of others'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import discord
import pytest

from runner.base.errors import ConfigError
from runner.extras.discord import following
from runner.extras.discord.client import Client
from runner.extras.discord.queries import QUERIES
from runner.extras.store import AsyncStore
from tests.integration.extras.discord.conftest import ADMIN, CREATOR
from tests.integration.extras.discord.simulation import Server, ended
from tests.integration.extras.gateway.conftest import invite, login_of
from tests.integration.store.conftest import CODE, Bench, ranked
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("names_server", [False, True], ids=["no guild id", "guild id"])
async def test_roles_of_another_server_count_nothing(
    bench: Bench, make_client: Callable[..., Client], *, names_server: bool
) -> None:
    """Whoever adds the bot to a server of their own has every role there; a number makes the commands one server's.

    They go with the number: beside those of all servers each would be there twice.
    """
    bench.board("sort")
    bench.submit(leaderboard="sort", user_id="u1")

    client = make_client()
    server = Server(client)
    foreign = server.env.create_guild()
    if names_server:
        client.config = client.config.model_copy(update={"discord_guild_id": server.guild.id})
    home = discord.Object(server.guild.id)

    async def numbers() -> list[int]:
        return [len(await client.tree.fetch_commands(guild=each)) for each in (None, home)]

    async with server:
        assert await numbers() == ([0, 2] if names_server else [2, 0])
        if names_server:
            assert client.tree.get_commands() == []
            await (await server.member("root", ADMIN).command("admin stats")).reads("1 submissions")
            # As if Discord had not yet forgotten the commands for all servers.
            for each in client.tree.get_commands(guild=home):
                client.tree.add_command(each, guild=discord.Object(foreign.id))
            await client.tree.sync(guild=discord.Object(foreign.id))
        server.move(foreign)
        eve = server.member("eve", ADMIN, CREATOR)
        new = {"leaderboard_name": "new", "deadline": "2100-01-01", "task_zip": ("task.zip", b"")}
        commands: tuple[tuple[str, dict[str, Any]], ...] = (
            ("leaderboard create", new),
            ("leaderboard delete", {"leaderboard_name": "sort"}),
            ("admin ban", {"user": eve.actor}),
            *((f"admin {name}", {}) for name in ("stop", "start", "stats")),
        )
        for command, options in commands:
            assert "Roles count in one server alone" in (await eve.command(command, **options)).text, command
        reply = await eve.command("leaderboard get-submission", submission_id=1)
        assert reply.text == "You have no submission 1."
        assert not await reply.files()
        client = make_client()
        await server.restart(client)
        assert await numbers() == [2, 0]


@pytest.mark.usefixtures("bench")
async def test_a_login_without_the_role_is_told_at_the_start(
    make_client: Callable[..., Client], database_url: str
) -> None:
    """Not by a defect at each command."""
    client, url = make_client(), login_of(database_url, "runner_test_reader", "runner_readonly")
    client.store = AsyncStore(url, queries=QUERIES, connections=1, name="test", patience_s=PATIENCE_S)
    try:
        with pytest.raises(ConfigError, match="expected one with the role runner_discord"):
            await client.setup_hook()
    finally:
        await client.close()


async def test_users_read_nothing_that_is_not_theirs(
    bench: Bench, server: Server, finish: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report goes to no thread of theirs, a closed leaderboard has no public verdict; a GPU type hides no other's."""
    bench.board("sort", "CPU", "CPU-2")
    bench.board("hidden")
    monkeypatch.setattr(following, "LOOK_S", 0.05)

    ada, eve = server.member("ada"), server.member("eve")
    invite(bench.url, "hidden", ada.id)
    backend = server.env.backend
    trap = backend.create_thread(server.channel.id, "Submission 1: sort", eve.actor.id)
    first = await ada.submit("ranked", CODE, "sort", gpu="CPU CPU-2")
    second = await ada.submit("ranked", CODE, "hidden")
    finish("CPU")
    job = bench.claim("CPU-2")
    bench.store.complete(job, ranked(job, passed=False))
    await first.reads("Wrong answer", "The full report: <#")
    await second.reads("Accepted", "The full report: <#")
    await ended(bench, 2)
    (verdict,) = [text for text in server.public() if "**ada**" in text]
    assert verdict.splitlines() == [
        "**ada** on **sort**, submission 1:",
        "CPU: **2.50 µs** (own clock, unchecked), place 1 of 1.",
        "CPU-2: Wrong answer.",
    ]
    (handle,) = [each for each in server.channel.threads if each.id == trap.id]
    assert handle.history() == []
