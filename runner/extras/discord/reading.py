"""`/leaderboard get-submission`: a submission that is stored, to its author."""

from __future__ import annotations

import discord
from discord import app_commands

from runner.extras.discord import report
from runner.extras.discord.access import is_admin
from runner.extras.discord.answers import answer, defer
from runner.extras.discord.client import Client
from runner.extras.discord.errors import Refusal
from runner.extras.discord.groups import LEADERBOARD
from runner.extras.discord.text import file, plain
from runner.extras.shown import reports


@LEADERBOARD.command(name="get-submission", description="One of your submissions: how it went, and its code")
@app_commands.describe(submission_id="The number of the submission")
async def get_submission(
    interaction: discord.Interaction[Client], submission_id: app_commands.Range[int, 1, 2**31 - 1]
) -> None:
    """Answer its author, or an administrator."""
    await defer(interaction)
    store = interaction.client.store
    submission = await store.one("submission", submission_id=submission_id, with_code=True, with_runs=False)
    if submission is None or not (submission["user_id"] == str(interaction.user.id) or is_admin(interaction)):
        raise Refusal(f"You have no submission {submission_id}.")
    ended = await report.load(store, submission_id)
    code = None if submission["code"] is None else bytes(submission["code"])
    files = [] if code is None else [file(submission["file_name"], code)]
    if ended is None:
        text = f"Submission {submission_id} was made by another program and has no job here."
    elif not submission["done"]:
        what = reports.progress(ended.status)
        text = f"Submission {submission_id} to **{plain(submission['leaderboard_name'])}**: {plain(what)}."
    else:
        text, files = report.full(ended, code)
    await answer(interaction, text, files=files)
