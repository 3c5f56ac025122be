"""What failed, as one sentence for the user who gave a command. Pure."""

from __future__ import annotations

from typing import Final

import aiohttp
import discord
from discord import app_commands

from runner.base.errors import DatabaseUnavailableError, KernelRunnerError
from runner.extras.discord.text import plain

#: What a request to Discord may raise; a network that takes packets and brings none back ends in a TimeoutError.
FAILURES: Final = (discord.HTTPException, aiohttp.ClientError, OSError)
#: The first that fits counts.
_SENTENCES: Final = (
    ((DatabaseUnavailableError,), "The database is away. Nothing was changed; try again in a minute."),
    ((app_commands.NoPrivateMessage,), "This command works only in a server."),
    (
        (app_commands.CommandNotFound, app_commands.CommandSignatureMismatch),
        "The bot no longer has this form of the command. Reload Discord, and give it again.",
    ),
    (
        (discord.Forbidden,),
        "Discord forbids the bot to do that here: it lacks a permission that its invitation asks for.",
    ),
    (FAILURES, "Discord did not do its part of this command. Give it again."),
)


class Refusal(KernelRunnerError):
    """A command that cannot be done; the message, in Discord's Markdown, is for who gave it."""


def sentence(error: BaseException) -> tuple[str, bool]:
    """What to answer, and whether it is a defect of ours that belongs into the log."""
    if isinstance(error, Refusal):
        return str(error), False
    for kinds, text in _SENTENCES:
        if isinstance(error, kinds):
            return text, False
    if isinstance(error, KernelRunnerError):
        return plain(str(error)), False
    return "This command met a defect of the bot, which is in its log.", True
