"""Follows submissions to their ends: progress in one private message, then the report, then the public verdict.

What is followed is the rows of `runner.discord_submission` that have no end. Nothing else is remembered but the
interactions whose private answers can be edited, which Discord allows for fifteen minutes. After that, or a restart,
progress goes on in a private thread, else in a direct message. Each step is noted in the row, and what may have been
done without being noted is looked for at Discord: a restart in between repeats nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import discord

from runner.base import logs
from runner.base.errors import DatabaseUnavailableError
from runner.extras.discord import report
from runner.extras.discord.errors import FAILURES
from runner.extras.discord.text import MESSAGE_CHARS, cut, plain
from runner.extras.shown import reports
from runner.extras.store import AsyncStore
from runner.store.connection import Row

_log: Final = logs.get_logger("discord.following")
#: How often all submissions are looked at; no message is edited more often.
LOOK_S: Final = 2.0
#: How many messages are edited, and how many submissions are ended, at a time: Discord takes fifty requests a second.
_EDITS: Final = 20
_ENDS: Final = 5
#: How long a submission waits that Discord refused something for.
_PAUSE_S: Final = 30.0
#: A thread without a new message is archived after an hour, the soonest that Discord has: a server takes no more than
#: a thousand that are not.
_ARCHIVED_AFTER_MIN: Final = 60
#: Discord's codes where a message of an archived thread is edited, and where Cloudflare refuses all requests of a host.
_ARCHIVED: Final = 50083
_BLOCKED: Final = 40333
_AWAY: Final = "The database is away. The submission is stored and goes on; so does this message."


class Follower:
    """Looks at all submissions that are followed, every `LOOK_S`."""

    def __init__(self, client: discord.Client, store: AsyncStore, *, channel_id: int | None) -> None:
        self._client = client
        self._store = store
        #: Where verdicts are announced; None: where they were asked for.
        self._channel_id = channel_id
        #: Interaction -> the one whose private answer can be edited.
        self._interactions: dict[int, discord.Interaction[Any]] = {}
        #: Submission -> what its message says, when it was edited last, and until when it waits.
        self._shown: dict[int, str] = {}
        self._edited: dict[int, float] = {}
        self._paused: dict[int, float] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no more; what has begun is broken off."""
        tasks = {*self._ending.values(), *(() if self._task is None else (self._task,))}
        while tasks:
            for task in tasks:
                task.cancel()
            # Python 3.11's `wait_for`, which the pool uses, may swallow a cancellation.
            _, tasks = await asyncio.wait(tasks, timeout=1.0)

    def expect(self, interaction: discord.Interaction[Any]) -> None:
        """Show the submission that this interaction is about to store in its private answer."""
        self._interactions[interaction.id] = interaction

    def repeat(self, submission_id: int) -> None:
        """Show how far a submission is once more: its private answer was edited by others."""
        self._shown.pop(submission_id, None)

    def forget(self, interaction_id: int) -> None:
        """The interaction stores nothing."""
        self._interactions.pop(interaction_id, None)

    async def _run(self) -> None:
        await self._client.wait_until_ready()
        is_away = False
        while True:
            try:
                await self._look()
                is_away = False
            except DatabaseUnavailableError as error:
                _log.warning("look_failed", reason=str(error))
                if not is_away:
                    await self._say_away()
                is_away = True
            except Exception as error:  # noqa: BLE001 a defect that one row meets must not end the loop
                _log.error("look_failed", error=repr(error), exc_info=error)
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        # What ends while the rows are on their way is open in them, and must not be ended again.
        busy = set(self._ending)
        rows = await self._store.all("discord_open")
        for interaction in [each for each in self._interactions.values() if each.is_expired()]:
            self.forget(interaction.id)
        ids = {row["submission_id"] for row in rows}
        for kept in (self._shown, self._edited, self._paused):
            for gone in kept.keys() - ids:
                del kept[gone]
        now = time.monotonic()
        free = [
            row
            for row in rows
            if row["submission_id"] not in busy and self._paused.get(row["submission_id"], now) <= now
        ]
        for row in [row for row in free if row["done"]][: _ENDS - len(self._ending)]:
            task = asyncio.create_task(self._end(row))
            self._ending[row["submission_id"]] = task
        changed = [row for row in free if not row["done"] and self._shown.get(row["submission_id"]) != _progress(row)]
        changed.sort(key=lambda row: self._edited.get(row["submission_id"], 0.0))
        await asyncio.gather(*(self._show(row, _progress(row)) for row in changed[:_EDITS]))

    async def _say_away(self) -> None:
        """Tell those whose messages can be edited without the database."""
        for interaction_id in list(self._interactions)[:_EDITS]:
            with suppress(*FAILURES):
                await self._edit_answer(interaction_id, _AWAY)
        self._shown.clear()

    async def _show(self, row: Row, text: str) -> None:
        """Show how far a submission is."""
        submission_id = row["submission_id"]
        try:
            if not await self._edit_answer(row["interaction_id"], text):
                await self._write(row, text, ())
        except Exception as error:  # noqa: BLE001 what one message meets must not keep the others
            self._fail(submission_id, error)
            return
        self._shown[submission_id] = text
        self._edited[submission_id] = time.monotonic()

    async def _end(self, row: Row) -> None:
        """Say all that is to be said of a submission that is over."""
        submission_id = row["submission_id"]
        try:
            ended = await report.load(self._store, submission_id)
            if ended is not None:
                text, files = report.full(ended)
                is_first_try = row["message_id"] is None
                place = await self._write(row, text, files)
                if ended.is_public:
                    await self._publish(row, await report.verdict(self._store, ended), is_first_try=is_first_try)
                if place is not None:
                    is_direct = isinstance(self._client.get_channel(place), discord.DMChannel)
                    where = "a direct message of this bot" if is_direct else f"<#{place}>"
                    text = cut(f"{ended.headline} The full report: {where}.")
                await self._edit_answer(row["interaction_id"], text)
            await self._store.all("discord_ended", submission_id=submission_id)
        except Exception as error:  # noqa: BLE001 as in the loop; it is tried again later
            self._fail(submission_id, error)
        else:
            self.forget(row["interaction_id"])
        finally:
            self._ending.pop(submission_id, None)

    def _fail(self, submission_id: int, error: Exception) -> None:
        """Let a submission wait before its messages are tried again."""
        if isinstance(error, (*FAILURES, DatabaseUnavailableError)):
            _log.warning("message_failed", submission_id=submission_id, reason=str(error))
        else:
            _log.error("report_failed", submission_id=submission_id, error=repr(error), exc_info=error)
        self._paused[submission_id] = time.monotonic() + _PAUSE_S

    async def _edit_answer(self, interaction_id: int, text: str) -> bool:
        """Edit the private answer of a command; whether it can be edited."""
        interaction = self._interactions.get(interaction_id)
        if interaction is None:
            return False
        try:
            if not interaction.is_expired():
                await interaction.edit_original_response(content=text, view=None)
                return True
        except discord.HTTPException as error:
            if _may_pass(error):
                raise
            # Its user has dismissed it, or Discord's clock is ahead.
        self.forget(interaction_id)
        return False

    async def _write(self, row: Row, text: str, files: Sequence[discord.File]) -> int | None:
        """Write or edit the message in the submission's thread; the thread, or None where Discord takes none."""
        is_noted = row["thread_id"] is not None
        try:
            thread_id, is_new = await self._thread(row)
            channel = self._client.get_partial_messageable(thread_id)
            message_id = row["message_id"]
            if message_id is None and not is_new:
                message_id = await self._own_message(channel, f"Submission {row['submission_id']} to ")
            try:
                message_id = await _put(channel, message_id, text, files)
            except discord.Forbidden:
                if not files:
                    raise
                note = "\nThe bot may not attach files here: /leaderboard get-submission has them."
                message_id = await _put(channel, message_id, cut(text, MESSAGE_CHARS - len(note)) + note, ())
        except discord.HTTPException as error:
            if _may_pass(error) or (is_noted and error.code == _ARCHIVED and await self._reopen(row["thread_id"])):
                raise
            if is_noted:
                # Moderators have removed the message, or removed or locked the thread.
                row["thread_id"] = row["message_id"] = None
                for each in files:
                    each.reset()
                return await self._write(row, text, files)
            # Neither a thread nor a direct message: `/leaderboard get-submission` shows the same.
            _log.warning("report_refused", submission_id=row["submission_id"], reason=str(error))
            return None
        if message_id != row["message_id"]:
            row["message_id"] = message_id
            await self._store.all("discord_message", submission_id=row["submission_id"], message_id=message_id)
        return thread_id

    async def _reopen(self, thread_id: int) -> bool:
        """Open an archived thread again; False: a moderator has locked it."""
        try:
            thread = await self._client.fetch_channel(thread_id)
            if isinstance(thread, discord.Thread):
                await thread.edit(archived=False)
        except discord.HTTPException as error:
            if _may_pass(error):
                raise
            return False
        return True

    async def _thread(self, row: Row) -> tuple[int, bool]:
        """The private thread of a submission, else the direct messages of its author; whether it is new."""
        if row["thread_id"] is not None:
            return int(row["thread_id"]), False
        name = f"Submission {row['submission_id']}: {row['leaderboard']}"[:100]
        user = discord.Object(int(row["user_id"]))
        channel = self._client.get_channel(row["channel_id"])
        if isinstance(channel, discord.Thread):
            channel = channel.parent
        place: int | None = None
        is_new = False
        if isinstance(channel, discord.TextChannel):
            # An earlier process may have made it without noting it, or without adding its user. Users make threads of
            # any name.
            own = [each for each in channel.threads if each.is_private() and each.owner_id == channel.guild.me.id]
            thread = next((each for each in own if each.name == name and not each.locked), None)
            is_new = thread is None
            place = await self._open_thread(channel, thread, name, user)
        if place is None:
            place, is_new = (await self._client.create_dm(user)).id, False
        row["thread_id"] = place
        await self._store.all("discord_thread", submission_id=row["submission_id"], thread_id=place)
        return place, is_new

    async def _open_thread(
        self, channel: discord.TextChannel, thread: discord.Thread | None, name: str, user: discord.Object
    ) -> int | None:
        """A private thread with this user in it, made if need be; None where the server takes none."""
        try:
            if thread is None:
                thread = await channel.create_thread(
                    name=name,
                    type=discord.ChannelType.private_thread,
                    invitable=False,
                    auto_archive_duration=_ARCHIVED_AFTER_MIN,
                )
            await thread.add_user(user)
        except discord.HTTPException as error:
            if _may_pass(error):
                raise
            _log.warning("thread_refused", channel_id=channel.id, reason=str(error))
            return None
        return thread.id

    async def _own_message(self, channel: discord.PartialMessageable, begin: str, limit: int = 100) -> int | None:
        """The bot's message that begins so, which an earlier process may have written without noting it."""
        async for message in channel.history(limit=limit):
            if message.author == self._client.user and message.content.startswith(begin):
                return message.id
        return None

    async def _publish(self, row: Row, text: str, *, is_first_try: bool) -> None:
        """Write the public verdict, once."""
        if row["verdict_id"] is not None:
            return
        channel = self._client.get_partial_messageable(self._channel_id or row["channel_id"])
        try:
            verdict_id = None if is_first_try else await self._own_message(channel, text.partition("\n")[0])
            if verdict_id is None:
                # Within minutes Discord itself takes no second message of a nonce.
                verdict_id = (await channel.send(text, nonce=f"verdict-{row['submission_id']}")).id
        except discord.HTTPException as error:
            if _may_pass(error):
                raise
            _log.warning("verdict_refused", submission_id=row["submission_id"], reason=str(error))
            return
        await self._store.all("discord_verdict", submission_id=row["submission_id"], verdict_id=verdict_id)


async def _put(
    channel: discord.PartialMessageable, message_id: int | None, text: str, files: Sequence[discord.File]
) -> int:
    """Write a message, or edit it; its id."""
    if message_id is None:
        return (await channel.send(text, files=files)).id
    await channel.get_partial_message(message_id).edit(content=text, attachments=files)
    return message_id


def _progress(row: Row) -> str:
    return cut(f"Submission {row['submission_id']} to **{plain(row['leaderboard'])}**: {plain(reports.progress(row))}.")


def _may_pass(error: discord.HTTPException) -> bool:
    """Whether Discord may take the same later: an answer without a code of Discord's says nothing of the message."""
    return error.status == 429 or error.status >= 500 or error.code in (0, _BLOCKED)
