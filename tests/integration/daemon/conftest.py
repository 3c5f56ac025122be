"""Fixtures of the daemon's tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.integration.daemon.groups import known, looking
from tests.integration.daemon.process import Process
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import Rig


@pytest.fixture
def make_rig(lend_database: Callable[[str | None], str]) -> Iterator[Callable[..., Rig]]:
    """Makes rigs that are stopped when the test ends, while their databases are still there."""
    made: list[Rig] = []

    def make(database_url: str, daemon_url: str | None = None, **settings: Any) -> Rig:  # noqa: ANN401 - any setting
        made.append(Rig(database_url, daemon_url, **settings))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., Rig], database_url: str) -> Rig:
    """A rig with a board, not yet started."""
    made = make_rig(database_url)
    made.board()
    return made


@pytest.fixture
def long_pauses(database_url: str) -> None:
    """A job that failed waits for the test, however long that looks away; usually it waits for some seconds."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE runner.retry SET pause_s = 36000, pause_max_s = 72000")


@pytest.fixture
def served(rig: Rig) -> Rig:
    """A daemon that evaluates groups by looking at their text."""
    rig.evaluator.script = looking()
    rig.start()
    rig.wait_for(lambda: known(rig.url), "the GPU type is published")
    return rig


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A shut door before the test's database."""
    door = Proxy(database_url)
    yield door
    door.close()


@pytest.fixture
def make_process(database_url: str) -> Iterator[Callable[..., Process]]:
    """Makes daemon processes on the test's database, with any settings; killed when the test ends."""
    made: list[Process] = []

    def make(**settings: object) -> Process:
        made.append(Process(database_url, json.dumps(settings)))
        return made[-1]

    yield make
    for process in made:
        process.close()


@pytest.fixture
def process(rig: Rig, make_process: Callable[..., Process]) -> Process:
    """A daemon process on the rig's database."""
    assert rig.url
    return make_process()
