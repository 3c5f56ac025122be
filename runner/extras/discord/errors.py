"""What failed, as one sentence for the user who gave a command. Pure."""

from __future__ import annotations

import discord
from discord import app_commands

from runner.base.errors import DatabaseUnavailableError, KernelRunnerError
from runner.extras.discord.text import plain


class Refusal(KernelRunnerError):
    """A command that cannot be done; the message, in Discord's Markdown, is for who gave it."""


def sentence(error: BaseException) -> tuple[str, bool]:
    """What to answer, and whether it is a defect of ours that belongs into the log."""
    if isinstance(error, Refusal):
        return str(error), False
    if isinstance(error, DatabaseUnavailableError):
        return "The database is away. Nothing was changed; try again in a minute.", False
    if isinstance(error, KernelRunnerError):
        return plain(str(error)), False
    if isinstance(error, app_commands.NoPrivateMessage):
        return "This command works only in a server.", False
    if isinstance(error, discord.Forbidden):
        return "Discord forbids the bot to do that here: it lacks a permission that its invitation asks for.", False
    return "This command met a defect of the bot, which is in its log.", True
