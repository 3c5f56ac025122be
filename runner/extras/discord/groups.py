"""The groups of slash commands. Modules with commands register theirs here; `serve` imports those modules."""

from __future__ import annotations

from typing import Final

from discord import app_commands

LEADERBOARD: Final = app_commands.Group(
    name="leaderboard", description="Submit kernels and look at leaderboards", guild_only=True
)
SUBMIT: Final = app_commands.Group(name="submit", description="Submit a kernel", parent=LEADERBOARD)
ADMIN: Final = app_commands.Group(name="admin", description="Operate the leaderboards", guild_only=True)
