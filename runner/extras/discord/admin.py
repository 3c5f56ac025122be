"""Commands of creators and administrators: create, delete, stop, start, ban, unban, stats."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import discord
from discord import app_commands

from runner.base import logs, units
from runner.base.dates import DateError, read_date
from runner.base.errors import DatabaseUnavailableError
from runner.extras.boards import publication
from runner.extras.boards.store import BoardStore
from runner.extras.discord import choices
from runner.extras.discord.access import only_admin, only_creator
from runner.extras.discord.answers import answer, defer
from runner.extras.discord.errors import Refusal
from runner.extras.discord.groups import ADMIN, LEADERBOARD
from runner.extras.discord.text import plain
from runner.task_format.model import TaskFolder
from runner.task_format.trees import MAX_ARCHIVE_BYTES

if TYPE_CHECKING:
    from runner.extras.discord.client import Client

_log: Final = logs.get_logger("discord.admin")
_REASON: Final = "an administrator stopped them"


@LEADERBOARD.command(name="create", description="Publish a task as a leaderboard (creators)")
@app_commands.describe(
    leaderboard_name="The name of the new leaderboard",
    deadline="2030-06-30, or 2030-06-30 18:00 (UTC)",
    task_zip="The task's folder as a .zip, with its task.yml",
    gpu="GPU types; without them you select",
)
async def create(
    interaction: discord.Interaction[Client],
    leaderboard_name: str,
    deadline: str,
    task_zip: discord.Attachment,
    gpu: str | None = None,
) -> None:
    """Store nothing unless the whole archive is right."""
    only_creator(interaction)
    await defer(interaction)
    url = interaction.client.config.secret("discord_publish_url")
    if url is None:
        raise Refusal(
            "Here leaderboards are made with `kernel-runner leaderboard create`: discord\\_publish\\_url\\_file is not "
            "set."
        )
    ends = _deadline(deadline)
    if task_zip.size > MAX_ARCHIVE_BYTES:
        raise Refusal(f"The archive has {units.size(task_zip.size)}, expected at most {units.size(MAX_ARCHIVE_BYTES)}.")
    folder = await asyncio.to_thread(publication.load_archive, "task.zip", await task_zip.read())
    names = await _gpus(interaction, folder, gpu)
    name = leaderboard_name.strip()

    def publish() -> Sequence[str]:
        """The GPU types of the new leaderboard."""
        store = BoardStore(url, application_name="kernel-runner discord publishing")
        try:
            offered = publication.offered(store, interaction.client.config.gpus_dir, folder, names, name)
            publication.create(store, name, folder, deadline=ends, gpus=offered, creator_id=interaction.user.id)
        finally:
            store.close()
        return offered

    offered = await asyncio.to_thread(publish)
    _log.info("leaderboard_created", leaderboard=name, user=str(interaction.user.id))
    await answer(
        interaction,
        f"**{plain(name)}** is open on {', '.join(map(plain, offered))} until {discord.utils.format_dt(ends, 'f')}.",
    )


def _deadline(text: str) -> datetime:
    try:
        ends = read_date(text, zone=UTC)
    except DateError as error:
        raise Refusal(f"The deadline is wrong: {plain(str(error))}.") from None
    if ends <= datetime.now(UTC):
        raise Refusal(f"The deadline {units.moment(ends)} UTC has passed.")
    return ends


async def _gpus(interaction: discord.Interaction[Client], folder: TaskFolder, given: str | None) -> list[str]:
    """What is named, or selected from the task's own GPU types, those of live hosts, and others that are announced."""
    if given is not None and given.strip():
        return given.replace(",", " ").split()
    announced = await interaction.client.store.all("announced_gpu_types")
    names = list(dict.fromkeys((*folder.gpus, *(row["name"] for row in announced))))
    if not names:
        raise Refusal("No host has announced a GPU type, and task.yml names none: give them as `gpu`.")
    return await choices.chosen_gpus(interaction, names, None, ask="On which GPU types is it ranked?")


@LEADERBOARD.command(name="delete", description="Delete a leaderboard with its submissions (administrators)")
@app_commands.describe(leaderboard_name="The leaderboard")
@app_commands.autocomplete(leaderboard_name=choices.board_names)
async def delete(interaction: discord.Interaction[Client], leaderboard_name: str) -> None:
    """Ask first; then remove all of it."""
    only_admin(interaction)
    await defer(interaction)
    store = interaction.client.store
    board = await choices.board(interaction, leaderboard_name, everything=True)
    submissions = (await store.row("count_submissions", board_id=board["id"]))["submissions"]
    await _confirm(
        interaction,
        f"Delete **{plain(board['name'])}** with {submissions} submissions? Nothing brings them back.",
        button="Delete",
    )
    try:
        while (await store.row("delete_board", name=board["name"], force=True))["deleted"]:
            pass
    except DatabaseUnavailableError as error:
        raise Refusal(
            f"The database is away. **{plain(board['name'])}** may be deleted in part: give the command again."
        ) from error
    _log.info("leaderboard_deleted", leaderboard=board["name"], user=str(interaction.user.id))
    await answer(interaction, f"**{plain(board['name'])}** is deleted.")


class _Button(discord.ui.Button[Any]):
    async def callback(self, interaction: discord.Interaction[Any], /) -> None:
        """Take the click."""
        await interaction.response.defer()
        if self.view is not None:
            self.view.stop()


async def _confirm(interaction: discord.Interaction[Client], question: str, *, button: str) -> None:
    """Wait for the click on a button that only this user sees.

    Raises:
        Refusal: it did not come.
    """
    view: discord.ui.View = discord.ui.View(timeout=choices.WAIT_S)
    view.add_item(_Button(label=button, style=discord.ButtonStyle.danger))
    await answer(interaction, question, view=view)
    if await view.wait():
        raise Refusal("Nothing was done: the button was not clicked within five minutes.")


@ADMIN.command(name="stop", description="Take no more submissions, from any frontend (administrators)")
@app_commands.describe(reason="What users read who submit")
async def stop(interaction: discord.Interaction[Client], reason: str = _REASON) -> None:
    """What waits is evaluated."""
    only_admin(interaction)
    await defer(interaction)
    await interaction.client.store.all("stop_intake", reason=reason)
    _log.info("intake_stopped", user=str(interaction.user.id))
    await answer(interaction, "No submissions are taken, by any frontend, until /admin start. What waits is evaluated.")


@ADMIN.command(name="start", description="Take submissions again (administrators)")
async def start(interaction: discord.Interaction[Client]) -> None:
    """End what `stop` began."""
    only_admin(interaction)
    await defer(interaction)
    await interaction.client.store.all("start_intake")
    _log.info("intake_started", user=str(interaction.user.id))
    await answer(interaction, "Submissions are taken.")


@ADMIN.command(name="ban", description="Take no more submissions of a user, and rank none (administrators)")
@app_commands.describe(user="The user")
async def ban(interaction: discord.Interaction[Client], user: discord.User) -> None:
    """Refuse what the user submits from now on, by any frontend."""
    await _set_ban(interaction, user, banned=True)


@ADMIN.command(name="unban", description="Take submissions of a banned user again (administrators)")
@app_commands.describe(user="The user")
async def unban(interaction: discord.Interaction[Client], user: discord.User) -> None:
    """End a ban."""
    await _set_ban(interaction, user, banned=False)


async def _set_ban(interaction: discord.Interaction[Client], user: discord.User, *, banned: bool) -> None:
    only_admin(interaction)
    await defer(interaction)
    if await interaction.client.store.one("ban", user_id=str(user.id), banned=banned) is None:
        raise Refusal(f"{plain(user.name)} has never submitted anything.")
    _log.info("ban_changed", banned=banned, banned_user=str(user.id), user=str(interaction.user.id))
    await answer(interaction, f"{plain(user.name)} is {'banned' if banned else 'no longer banned'}.")


@ADMIN.command(name="stats", description="How much was submitted and run (administrators)")
@app_commands.describe(leaderboard_name="One leaderboard; without it, all", last_day="Only the last 24 hours")
@app_commands.autocomplete(leaderboard_name=choices.board_names)
async def stats(
    interaction: discord.Interaction[Client],
    leaderboard_name: str | None = None,
    last_day: bool = False,  # noqa: FBT001, FBT002 - discord.py makes the option of it
) -> None:
    """Counts of submissions and users, and per GPU type of runs, with how long they waited."""
    only_admin(interaction)
    await defer(interaction)
    board = None if leaderboard_name is None else await choices.board(interaction, leaderboard_name, everything=True)
    chosen = {"board_id": None if board is None else board["id"], "last_day": last_day}
    total = await interaction.client.store.row("stats", **chosen)
    runs = await interaction.client.store.all("stats_runs", **chosen)
    place = "All leaderboards" if board is None else plain(board["name"])
    counts = f"{total['num_submissions']} submissions ({total['sub_waiting']} not over) of {total['num_users']} users"
    lines = [f"{place}{', last 24 hours' if last_day else ''}: {counts}"]
    for row in runs:
        delay = (
            ""
            if row["avg_delay"] is None
            else f", begun after {units.age(row['avg_delay'].total_seconds())} on average"
        )
        lines.append(
            f"{plain(row['runner'])}: {row['runs']} runs, {row['passed']} passed, {row['secret']} secret{delay}"
        )
    await answer(interaction, "\n".join(lines))
