"""`/leaderboard submit …`: a file is stored as a submission, then followed."""

from __future__ import annotations

from typing import Any, Final

import discord
from discord import app_commands

from runner.extras.discord.answers import answer, defer
from runner.extras.discord.choices import board_names, chosen_gpus
from runner.extras.discord.client import Client
from runner.extras.discord.errors import Refusal
from runner.extras.discord.groups import SUBMIT
from runner.extras.discord.text import plain
from runner.extras.store import RefusedError

#: The longest file that the queue takes.
SOURCE_BYTES: Final = 1_000_000
#: SQLSTATE of the hourly limit.
_LIMITED: Final = "KR013"
#: Command -> mode and description.
_MODES: Final = {
    "ranked": ("leaderboard", "Submit to be ranked"),
    "test": ("test", "Check for correctness alone"),
    "benchmark": ("benchmark", "Measure times without being ranked"),
    "profile": ("profile", "Profile each benchmark"),
}


def _command(name: str, mode: str, description: str) -> app_commands.Command[Any, ..., None]:
    @app_commands.describe(
        script="The source file, in Python, CUDA or C++",
        leaderboard_name="Where to; without it, the file's line #!POPCORN leaderboard NAME",
        gpu="GPU types, with spaces between; without it, you are asked",
    )
    @app_commands.autocomplete(leaderboard_name=board_names)
    async def submit(
        interaction: discord.Interaction[Client],
        script: discord.Attachment,
        leaderboard_name: str | None = None,
        gpu: str | None = None,
    ) -> None:
        await _submit(interaction, mode, script, leaderboard_name, gpu)

    return app_commands.Command(name=name, description=description, callback=submit)


for _name, (_mode, _description) in _MODES.items():
    SUBMIT.add_command(_command(_name, _mode, _description))


async def _submit(
    interaction: discord.Interaction[Client], mode: str, script: discord.Attachment, name: str | None, gpu: str | None
) -> None:
    await defer(interaction)
    client = interaction.client
    source = await _source(script)
    user_id = str(interaction.user.id)
    board = await client.store.row("before_submit", leaderboard=name, user_id=user_id, code=source)
    if interaction.channel_id is None:
        raise TypeError("the command came without a channel")
    gpu_types = None
    if gpu or not board["named"]:
        gpu_types = await chosen_gpus(interaction, board["offered"], gpu, ask="Which GPU types?")
    # Known before the submission is stored: what is stored and not known is followed in a thread.
    client.follower.expect(interaction)
    try:
        stored = await client.store.row(
            "submit_by_discord",
            leaderboard=board["name"],
            user_id=user_id,
            display_name=interaction.user.global_name,
            user_name=interaction.user.name,
            file_name=script.filename,
            code=source,
            mode=mode,
            gpu_types=gpu_types,
            interaction_id=interaction.id,
            channel_id=interaction.channel_id,
        )
    except BaseException as error:
        client.follower.forget(interaction.id)
        if isinstance(error, RefusedError) and error.code == _LIMITED:
            raise await _limited(client, error, board["name"], user_id, mode) from error
        raise
    await answer(interaction, f"Submission {stored['submission_id']} to **{plain(board['name'])}** is stored.")
    client.follower.repeat(stored["submission_id"])


async def _source(script: discord.Attachment) -> bytes:
    if script.size > SOURCE_BYTES:
        raise Refusal(
            f"The file has {script.size} bytes, expected at most {SOURCE_BYTES}: submit one source file without "
            "embedded data."
        )
    try:
        return await script.read()
    except discord.HTTPException as error:
        raise Refusal(f"Discord did not hand out the file ({error.status}). Try again.") from error


async def _limited(client: Client, error: RefusedError, board_name: str, user_id: str, mode: str) -> Refusal:
    """The hourly limit's refusal, with the time after which it admits the user again."""
    board = await client.store.one("board_by_name", name=board_name)
    category = "leaderboard" if mode == "leaderboard" else "test"
    wait = None
    if board is not None:
        wait = await client.store.one("limit_wait", board_id=board["id"], user_id=user_id, category=category)
    text = plain(error.message)
    if wait is None or wait["wait_s"] is None:
        return Refusal(f"{text}.")
    return Refusal(f"{text}. Try again in {max(1, -(-wait['wait_s'] // 60))} min.")
