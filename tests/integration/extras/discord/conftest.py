"""Frontends for a simulated Discord, each with a login of its role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runner.extras.config import SiteConfig
from runner.extras.discord.client import Client
from runner.extras.discord.queries import QUERIES
from runner.extras.discord.serve import build
from runner.extras.store import AsyncStore
from tests.integration.extras.discord.simulation import Server
from tests.integration.extras.gateway.conftest import login_of
from tests.integration.store.conftest import bench, db, finish, store
from tests.support.waiting import PATIENCE_S

__all__ = ["bench", "db", "finish", "store"]

ADMIN = "Leaderboard Admin"
CREATOR = "Leaderboard Creator"


@pytest.fixture
def make_client(database_url: str, tmp_path: Path) -> Callable[..., Client]:
    """Makes frontends for the test's database; `patience_s` is how long they wait for it."""
    secret = tmp_path / "publish_url"
    secret.write_text(database_url, encoding="utf-8")

    def make(*, patience_s: float = PATIENCE_S) -> Client:
        url = login_of(database_url, "runner_test_discord", "runner_discord")
        config = SiteConfig(database_url=url, state_dir=tmp_path, discord_publish_url_file=secret)
        # By default however long a busy machine takes to give the database back.
        return build(config, AsyncStore(url, queries=QUERIES, connections=4, name="test", patience_s=patience_s), 0.2)

    return make


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of coroutine tests."""
    return "asyncio"


@pytest.fixture
async def server(make_client: Callable[..., Client]) -> AsyncIterator[Server]:
    """A server with the bot."""
    async with Server(make_client()) as server:
        yield server
