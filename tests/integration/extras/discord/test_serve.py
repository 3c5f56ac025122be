"""`kernel-runner discord` before it is connected: what is missing is said in one sentence."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import discord
import pytest
from discord.http import Route

from runner.base.errors import ConfigError, InfrastructureError
from runner.extras.config import SiteConfig
from runner.extras.discord.client import Client
from runner.extras.discord.serve import serve
from tests.support.ports import free_port
from tests.support.serving import serving


class Refusing(BaseHTTPRequestHandler):
    """Discord, for a token that it does not know."""

    def do_GET(self) -> None:
        """Refuse."""
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_what_keeps_the_bot_from_starting_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token, one that Discord refuses, no Discord; and what ends it later."""
    token = tmp_path / "token"
    token.write_text("made.up.token\n", encoding="utf-8")
    url = "host=/nowhere"
    with pytest.raises(ConfigError, match="no token: set discord_token_file"):
        serve(SiteConfig(database_url=url))
    config = SiteConfig(database_url=url, discord_token_file=token)
    monkeypatch.setattr(Route, "BASE", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(InfrastructureError, match="Discord cannot be reached"):
        serve(config)
    with serving(Refusing) as url:
        monkeypatch.setattr(Route, "BASE", url)
        with pytest.raises(ConfigError, match="Discord refuses the token"):
            serve(config)

    async def closed(*_: object) -> None:
        """The token is reset while the bot serves."""
        raise discord.ConnectionClosed(cast("Any", SimpleNamespace(close_code=4004)), shard_id=None)

    monkeypatch.setattr(Client, "start", closed)
    with pytest.raises(InfrastructureError, match="closed with 4004"):
        serve(config)
