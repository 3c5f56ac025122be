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
from tests.integration.daemon.rig import MakeRig, Rig


@pytest.fixture
def make_rig(database_url: str) -> Iterator[MakeRig]:
    """Makes rigs on the test's database, or on another one; the first of a database publishes the board."""
    made: list[Rig] = []

    def make(*, database: str = database_url, board: bool = True, **settings: Any) -> Rig:  # noqa: ANN401 - any setting
        rig = Rig(database, **settings)
        if board and all(other.url != database for other in made):
            rig.board()
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """A rig that is not started yet."""
    return make_rig()


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
    """Makes daemon processes on the test's database or through a proxy, with any settings; killed when it ends."""
    made: list[Process] = []

    def make(*, url: str = database_url, **settings: object) -> Process:
        made.append(Process(url, json.dumps(settings)))
        return made[-1]

    yield make
    for process in made:
        process.close()
