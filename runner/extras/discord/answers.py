"""Answers to an interaction: private, and in whichever way Discord still takes one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import discord

from runner.extras.discord.text import MESSAGE_CHARS, beginning, file


async def answer(
    interaction: discord.Interaction[Any],
    text: str,
    *,
    files: Sequence[discord.File] = (),
    view: discord.ui.View | None = None,
) -> None:
    """Answer the user alone; a text that is too long for a message goes as a file, too."""
    sent = list(files)
    if len(text) > MESSAGE_CHARS:
        sent.append(file("answer.md", text))
        text = beginning(text, "The rest is in answer.md.")
    options: dict[str, Any] = {} if view is None else {"view": view}
    if interaction.response.is_done():
        await interaction.edit_original_response(content=text, attachments=sent, view=view)
    else:
        await interaction.response.send_message(text, files=sent, ephemeral=True, **options)


async def defer(interaction: discord.Interaction[Any]) -> None:
    """Tell Discord, which waits for three seconds, that an answer to the user alone follows within 15 minutes."""
    await interaction.response.defer(ephemeral=True, thinking=True)
