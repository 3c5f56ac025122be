"""What users choose from: names of leaderboards as they type, GPU types in a drop-down."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import discord
from discord import app_commands

from runner.base.errors import DatabaseUnavailableError
from runner.extras.discord.answers import answer
from runner.extras.discord.errors import Refusal
from runner.extras.discord.text import OPTIONS, cut, plain
from runner.store.connection import Row

if TYPE_CHECKING:
    from runner.extras.discord.client import Client

#: How long a drop-down or a button waits for its user: well within the 15 minutes of its interaction.
WAIT_S: Final = 300.0
#: Discord waits three seconds for what it shows to a user who types.
TYPING_S: Final = 2.0
_LABEL_CHARS: Final = 100


async def board(interaction: discord.Interaction[Client], name: str, *, everything: bool = False) -> Row:
    """A leaderboard by its name, as `board_by_name` of queries.sql describes it. `everything`: the user sees all.

    Raises:
        Refusal: there is none, or it is by invitation and this user has none.
    """
    row = await interaction.client.store.one("board_by_name", name=name.strip())
    if row is None or not (everything or await _may_see(interaction, row)):
        raise Refusal(f"There is no leaderboard {plain(cut(name, 100))}; /leaderboard list shows those that are open.")
    return row


async def _may_see(interaction: discord.Interaction[Client], row: Row) -> bool:
    if row["visibility"] == "public":
        return True
    invited = await interaction.client.store.row("may_see", user_id=str(interaction.user.id), board_id=row["id"])
    return bool(invited["invited"])


async def board_names(interaction: discord.Interaction[Client], typed: str) -> list[app_commands.Choice[str]]:
    """The public leaderboards whose names have what was typed, open ones first."""
    try:
        async with asyncio.timeout(TYPING_S):
            boards = await interaction.client.store.all("board_list")
    except (DatabaseUnavailableError, TimeoutError):
        return []
    fitting = [each for each in boards if each["visibility"] == "public" and typed.lower() in each["name"].lower()]
    fitting.sort(key=lambda each: (each["over"], each["name"]))
    names = [each["name"] for each in fitting if len(each["name"]) <= _LABEL_CHARS]
    return [app_commands.Choice(name=name, value=name) for name in names[:OPTIONS]]


def named_gpus(gpus: Sequence[str], text: str) -> list[str]:
    """The GPU types that a text names, as the leaderboard spells them, each once.

    Raises:
        Refusal: one that the leaderboard does not have.
    """
    spelled = {gpu.lower(): gpu for gpu in gpus}
    words = [word for word in text.replace(",", " ").split() if word]
    wrong = [word for word in words if word.lower() not in spelled]
    if wrong or not words:
        raise Refusal(
            f"This leaderboard has no GPU type {plain(cut(' '.join(wrong) or 'of that name', 100))}; it has "
            f"{', '.join(map(plain, gpus))}."
        )
    return list(dict.fromkeys(spelled[word.lower()] for word in words))


class _GpuSelect(discord.ui.Select[Any]):
    def __init__(self, gpus: Sequence[str]) -> None:
        shown = [gpu for gpu in gpus if len(gpu) <= _LABEL_CHARS][:OPTIONS]
        super().__init__(
            placeholder="GPU types",
            min_values=1,
            max_values=len(shown),
            options=[discord.SelectOption(label=gpu, value=gpu) for gpu in shown],
        )

    async def callback(self, interaction: discord.Interaction[Any], /) -> None:
        """Take what is selected."""
        await interaction.response.defer()
        if self.view is not None:
            self.view.stop()


async def chosen_gpus(
    interaction: discord.Interaction[Client], gpus: Sequence[str], named: str | None, *, ask: str
) -> list[str]:
    """The GPU types that the argument names, the only one, or those that the user selects in a drop-down.

    Raises:
        Refusal: one that the leaderboard does not have, or nothing was selected in five minutes.
    """
    if named is not None and named.strip():
        return named_gpus(gpus, named)
    if len(gpus) == 1:
        return list(gpus)
    if not gpus:
        raise Refusal("This leaderboard has no GPU type.")
    view: discord.ui.View = discord.ui.View(timeout=WAIT_S)
    select = _GpuSelect(gpus)
    view.add_item(select)
    left = [gpu for gpu in gpus if gpu not in {option.value for option in select.options}]
    if left:
        ask += f" Give {', '.join(map(plain, left))} as `gpu`: a drop-down has no room for them."
    await answer(interaction, ask, view=view)
    if await view.wait():
        raise Refusal("No GPU type was selected within five minutes. Give the command again.")
    return list(select.values)
