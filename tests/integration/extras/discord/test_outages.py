"""What is followed survives the frontend's death at any request, and the database's: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import discord
import pytest
from simcord.http import router

from runner.extras.discord import following
from runner.extras.discord.client import Client
from tests.integration.extras.discord.simulation import Server, ended, told, until
from tests.integration.store.conftest import CODE, Bench
from tests.support.waiting import PATIENCE_S

#: More than the requests of a submission's end.
REQUESTS = 8


class Death:
    """Ends the bot at one of its next requests, before or after that takes effect."""

    def __init__(self) -> None:
        self.has_come = False
        self._left: int | None = None
        self._takes_effect = False
        self._dispatch = router.dispatch

    def comes(self, request: int | None, *, takes_effect: bool = False) -> None:
        """At which request from now on, counted from 1; None: the bot lives."""
        self.has_come, self._left, self._takes_effect = False, request, takes_effect

    def dispatch(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - handed through
        """A request of the bot."""
        if self.has_come:
            raise asyncio.CancelledError
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self.has_come = True
                if self._takes_effect:
                    self._dispatch(*given, **named)
                raise asyncio.CancelledError
        return self._dispatch(*given, **named)


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    """The death of the bot; meanwhile it looks often."""
    ending = Death()
    monkeypatch.setattr(router, "dispatch", ending.dispatch)
    monkeypatch.setattr(following, "LOOK_S", 0.05)
    monkeypatch.setattr(following, "_PAUSE_S", 0.05)
    return ending


def test_a_frontend_that_dies_at_any_request_loses_and_doubles_nothing(
    bench: Bench, make_client: Callable[..., Client], finish: Callable[..., None], death: Death
) -> None:
    """The next one says what the one before did not, of two users on two GPU types."""
    bench.board("sort", "CPU", "H100")

    async def play() -> None:
        async with Server(make_client()) as server:
            users = server.member("ada"), server.member("bob")
            submission = 0
            for takes_effect in (False, True):
                for request in range(1, REQUESTS + 1):
                    death.comes(None)
                    for user, gpu in zip(users, ("CPU", "H100"), strict=True):
                        reply = await user.submit("ranked", CODE, "sort", gpu=gpu)
                        submission += 1
                        await reply.reads(f"Submission {submission} to")
                    death.comes(request, takes_effect=takes_effect)
                    finish("CPU", "H100")
                    await until(lambda: death.has_come, f"request {request} is sent")
                    await server.restart(make_client(), dead=lambda: death.comes(None))
                    await ended(bench, submission)
                    for number, user in enumerate(users, start=submission - 1):
                        assert told(server, user, number) == (1, 1), (number, request, takes_effect)
                        other = users[user is users[0]]
                        assert told(server, other, number) == (0, 1)

    asyncio.run(play())


#: What becomes of thread and message while a submission waits, or what Discord answers then, and how often.
HINDRANCES: dict[str, tuple[str, str, int, int, int | None] | None] = {
    "archived": ("PATCH", "{thread}/messages/*", 400, 50083, 1),
    "locked": ("*", "{thread}*", 403, 50083, None),
    "channel locked": ("POST", "{channel}/messages", 403, 50083, None),
    "message removed": None,
    "thread removed": None,
    "token reset": ("*", "{thread}*", 401, 0, 3),
    "refused by a proxy": ("*", "{thread}*", 403, 0, 3),
    "blocked by Cloudflare": ("*", "{thread}*", 403, 40333, 3),
}
#: How many reports in a thread and public verdicts come of it; else one of each.
TOLD = {"locked": (0, 1), "channel locked": (1, 0)}


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_a_report_is_written_whatever_became_of_its_place(
    bench: Bench, make_client: Callable[..., Client], finish: Callable[..., None], death: Death, hindrance: str
) -> None:
    """After a restart a thread's message is where progress goes on: opened again, written anew, or tried again."""
    bench.board("sort")

    async def play() -> None:
        async with Server(make_client()) as server:
            ada = server.member("ada")
            await (await ada.submit("ranked", CODE, "sort")).reads("Submission 1 to")
            await server.restart(make_client())
            await until(lambda: [each for each in ada.threads() if each.history()], "progress goes on")
            (thread,) = ada.threads()
            if (refused := HINDRANCES[hindrance]) is not None:
                method, path, status, code, times = refused
                path = "/channels/" + path.format(thread=thread.id, channel=server.channel.id)
                server.env.inject_error(method, path, status=status, code=code, times=times)
            elif hindrance == "message removed":
                server.env.backend.delete_message(thread.id, thread.history()[0].id)
            else:
                server.env.backend.delete_channel(thread.id)
            finish()
            await ended(bench, 1)
            assert told(server, ada, 1) == TOLD.get(hindrance, (1, 1))
            if hindrance == "locked":
                assert [each for each in ada.actor.user.dm_channel.history() if "Accepted" in each.content]
            if hindrance == "archived":
                edits = [each.json for each in server.env.http_requests if each.path == f"/channels/{thread.id}"]
                assert edits[-1:] == [{"archived": False}]

    asyncio.run(play())


def test_a_database_that_goes_away_delays_what_is_said(
    bench: Bench,
    make_client: Callable[..., Client],
    finish: Callable[..., None],
    outage: Callable[[], AbstractContextManager[None]],
    death: Death,
) -> None:
    """Users read that it is away; what is stored goes on, and a command that was refused stored nothing."""
    bench.board("sort")

    async def play() -> None:
        async with Server(make_client(patience_s=0.3)) as server:
            ada = server.member("ada")
            reply = await ada.submit("ranked", CODE, "sort")
            await reply.reads("Submission 1 to", "queued")
            bench.store.close()
            with outage():
                await reply.reads("database is away")
                script = {"script": ("mine.py", CODE)}
                for name, more in {"show": {}, "task": {}, "template": {}, "submit test": script}.items():
                    refused = await ada.begin(f"leaderboard {name}", leaderboard_name="sort", **more)
                    await refused.reads("database is away")
                assert await ada.completions("leaderboard show", "leaderboard_name", "s") == []
            await reply.reads("queued")
            silent = asyncio.Event()

            async def no_answer(*_: Any, **__: Any) -> None:  # noqa: ANN401 - of any edit
                """The network takes packets and brings none back."""
                silent.set()
                raise TimeoutError

            with outage(), pytest.MonkeyPatch.context() as network:
                network.setattr(discord.Interaction, "edit_original_response", no_answer)
                await asyncio.wait_for(silent.wait(), PATIENCE_S)
            finish()
            await reply.reads("Accepted")
            await ended(bench, 1)
            assert told(server, ada, 1) == (1, 1)

    asyncio.run(play())
