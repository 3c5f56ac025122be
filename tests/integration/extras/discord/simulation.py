"""A simulated Discord server before the real frontend and a real database: users give commands, select and click.

Simcord's own notion of time waits until a bot does nothing, which one with a database never does. Here the bot runs in
real time, and what a user waits for is asked again and again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType
from typing import Any, Self, TypeVar

import discord
import psycopg
import simcord
from simcord.actors import MemberActor
from simcord.builders import ChannelHandle, GuildHandle
from simcord.components import walk_components
from simcord.results import InteractionResult, ResponseMessage

from runner.extras.discord.client import Client
from runner.extras.discord.errors import sentence
from tests.integration.store.conftest import Bench
from tests.support.waiting import PATIENCE_S

T = TypeVar("T")
_PAUSE_S = 0.02


async def until(condition: Callable[[], T], what: str, *, explain: Callable[[], str] = lambda: "") -> T:
    """`wait_until` for what happens in this event loop."""
    end_s = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        if time.monotonic() > end_s:
            raise AssertionError(f"never happened: {what} {explain()}".rstrip())
        await asyncio.sleep(_PAUSE_S)
    return answer


class Reply:
    """What a user reads in answer to a command, at any moment."""

    def __init__(self, member: Member, result: InteractionResult) -> None:
        self._member = member
        self._result = result

    @property
    def message(self) -> ResponseMessage | None:
        """The answer; None while the user reads that the bot is thinking."""
        message = self._result.response
        return None if message is None or message.flags.loading else message

    @property
    def text(self) -> str:
        """The newest text of the answer."""
        return "" if self.message is None else self.message.content

    @property
    def private(self) -> bool:
        """Whether the user alone sees it."""
        return self._result.ephemeral

    @property
    def options(self) -> list[str]:
        """What the drop-down of the answer offers; empty without one."""
        return [option["value"] for menu in self._components() for option in menu.get("options") or ()]

    @property
    def buttons(self) -> list[str]:
        """The labels of the answer's buttons."""
        return [each["label"] for each in self._components() if each.get("label")]

    async def files(self) -> dict[str, bytes]:
        """The answer's files."""
        assert self.message is not None
        return {file.filename: await file.read() for file in self.message.attachments}

    async def reads(self, *words: str) -> str:
        """The answer's text, once it has all these words."""
        return await until(
            lambda: self.text if all(word in self.text for word in words) else "",
            f"the answer has {', '.join(words)}",
            explain=lambda: f"it is {self.text!r}; {self._member.server.env.transcript()[-3000:]}",
        )

    async def select(self, *values: str) -> None:
        """Select in the drop-down."""
        await until(lambda: self.options, "a drop-down is offered", explain=lambda: self.text)
        assert self.message is not None
        await self._member.actor.select(self.message, list(values))

    async def click(self, label: str) -> None:
        """Click a button."""
        await until(lambda: label in self.buttons, f"a button {label} is offered", explain=lambda: self.text)
        assert self.message is not None
        await self._member.actor.click(self.message, label=label)

    def _components(self) -> list[dict[str, Any]]:
        return [] if self.message is None else list(walk_components(self.message.components))


class Member:
    """A user of the server."""

    def __init__(self, server: Server, actor: MemberActor) -> None:
        self.server = server
        self.actor = actor

    @property
    def id(self) -> str:
        """The user's id, as rows have it."""
        return str(self.actor.id)

    async def begin(self, name: str, **options: Any) -> Reply:  # noqa: ANN401 - of any command
        """Give a command, and do not wait for what comes of it. A file is a pair of name and content."""
        return Reply(self, await self.actor.slash(self.server.channel, name, **options))

    async def command(self, name: str, **options: Any) -> Reply:  # noqa: ANN401 - of any command
        """Give a command and wait for the first answer."""
        reply = await self.begin(name, **options)
        await until(lambda: reply.message is not None, f"/{name} is answered", explain=self.server.env.transcript)
        return reply

    async def submit(self, mode: str, code: bytes, board: str | None = None, **options: Any) -> Reply:  # noqa: ANN401
        """Submit a file, and wait for the first answer."""
        named = {} if board is None else {"leaderboard_name": board}
        return await self.command(f"leaderboard submit {mode}", script=("mine.py", code), **named, **options)

    async def completions(self, name: str, option: str, typed: str, **filled: Any) -> list[str]:  # noqa: ANN401
        """What is offered while the user types."""
        # The answer comes from a database, later than the simulation looks.
        from simcord.actors import _autocomplete_result

        result = await _autocomplete_result(self.actor, self.server.channel, name, option, typed, filled)
        await until(lambda: result.acknowledged, "choices come")
        return [choice["name"] for choice in result.autocomplete_choices or ()]

    def threads(self) -> list[ChannelHandle]:
        """The threads of the channel that this user is in."""
        backend = self.server.env.backend
        return [
            each for each in self.server.channel.threads if self.actor.id in backend.get_channel(each.id).thread_members
        ]


class Server(AbstractAsyncContextManager["Server"]):
    """A Discord server with the channel `submissions`, in which a bot runs."""

    def __init__(self, bot: Client) -> None:
        self._bot = bot
        self.env = simcord.Env(bot, check_errors=False)
        # Nothing that the bot does belongs to the simulation's clock.
        self.env._bot_scope = nullcontext  # type: ignore[method-assign, assignment]
        self.guild = self.env.create_guild()
        self.channel = self.guild.create_text_channel("submissions")
        self._roles: dict[str, Any] = {}
        self._before: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        """Connect the bot."""
        self._before = asyncio.all_tasks()
        self._clock = self.env.time_context()
        self._clock.__enter__()
        await self.env.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect the bot; a defect of it fails the test."""
        try:
            await self._bot.close()
            await self.env.shutdown()
        finally:
            self._clock.__exit__(kind, error, trace)
        if kind is None and (defects := [each for each in self.env.errors if _is_defect(each)]):
            raise BaseExceptionGroup("defects of the bot", defects)

    def member(self, name: str, *roles: str) -> Member:
        """A user with these roles."""
        for role in roles:
            if role not in self._roles:
                self._roles[role] = self.guild.create_role(role)
        user = self.env.create_user(name)
        return Member(self, self.guild.add_member(user, roles=[self._roles[role] for role in roles]))

    def move(self, guild: GuildHandle) -> None:
        """Make users and read messages in another server of the same Discord."""
        self.guild, self.channel, self._roles = guild, guild.create_text_channel("submissions"), {}

    async def restart(self, bot: Client, dead: Callable[[], None] = lambda: None) -> None:
        """Kill the bot in whatever it is doing; another one takes its place. `dead` is called in between."""
        killed = {task for task in asyncio.all_tasks() - self._before if task is not asyncio.current_task()}
        while killed:
            for task in killed:
                task.cancel()
            # Python 3.11's `wait_for`, which the pool uses, may swallow a cancellation.
            _, killed = await asyncio.wait(killed, timeout=1.0)
        dead()
        self._bot = bot
        await self.env.restart_bot(bot)

    def public(self) -> list[str]:
        """The messages that everybody in the channel reads, and those of public threads."""
        places = [self.channel, *(each for each in self.channel.threads if not self._is_private(each))]
        return [each.content for place in places for each in place.history() if not each.flags.ephemeral]

    def _is_private(self, thread: ChannelHandle) -> bool:
        return bool(self.env.backend.get_channel(thread.id).type == discord.ChannelType.private_thread.value)


def _is_defect(error: BaseException) -> bool:
    """Whether the bot had no sentence for it."""
    return sentence(error.original if isinstance(error, discord.app_commands.CommandInvokeError) else error)[1]


async def ended(bench: Bench, submissions: int) -> None:
    """Wait until everything is said of all submissions."""
    query = "SELECT count(*) FROM runner.discord_submission WHERE ended_at IS NOT NULL"
    with psycopg.connect(bench.url, autocommit=True) as connection:
        await until(lambda: connection.execute(query).fetchone() == (submissions,), "all is said")


def told(server: Server, member: Member, submission: int) -> tuple[int, int]:
    """How often a submission has a private report that its author alone sees, and a public verdict."""
    reports = [
        message.content
        for thread in member.threads()
        for message in thread.history()
        if f"Submission {submission} to" in message.content
    ]
    verdicts = [text for text in server.public() if f"submission {submission}:" in text]
    return sum("Accepted" in text for text in reports), len(verdicts)
