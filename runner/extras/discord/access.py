"""Who may do what: roles of the server, by the names in the configuration.

Anyone may add a public bot to a server of their own, and has any role there: roles count in one server alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import discord

from runner.extras.discord.errors import Refusal
from runner.extras.discord.text import plain

if TYPE_CHECKING:
    from runner.extras.discord.client import Client


def is_admin(interaction: discord.Interaction[Client]) -> bool:
    """Whether who gave the command has the role of administrators."""
    return interaction.client.config.discord_admin_role in _roles(interaction)


def only_admin(interaction: discord.Interaction[Client]) -> None:
    """Refuse whoever has not the role of administrators."""
    _need(interaction, interaction.client.config.discord_admin_role)


def only_creator(interaction: discord.Interaction[Client]) -> None:
    """Refuse whoever has neither the role of creators nor that of administrators."""
    config = interaction.client.config
    _need(interaction, config.discord_creator_role, config.discord_admin_role)


def _need(interaction: discord.Interaction[Client], *roles: str) -> None:
    if not _counts(interaction):
        raise Refusal(
            "Roles count in one server alone: that of discord\\_guild\\_id, or the only one that the bot is in."
        )
    if not _roles(interaction) & set(roles):
        raise Refusal(f"This command needs the role {' or '.join(map(plain, roles))}, which you do not have here.")


def _roles(interaction: discord.Interaction[Client]) -> set[str]:
    user = interaction.user
    if not (isinstance(user, discord.Member) and _counts(interaction)):
        return set()
    return {role.name for role in user.roles}


def _counts(interaction: discord.Interaction[Client]) -> bool:
    """Whether the roles of the server where the command was given count."""
    client = interaction.client
    server_id = client.config.discord_guild_id
    return len(client.guilds) == 1 if server_id is None else interaction.guild_id == server_id
