"""Runs tests in random order: files among each other, and the tests of each file. For `tests.stress` alone.

Loaded by `-p tests.plugins.shuffle`; the order is that of `--shuffle SEED`, the same in every process of a run.
"""

from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in this random order"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files stay whole, as they share what they set up."""
    seed = config.getoption("shuffle")
    if seed is None:
        return
    rng = random.Random(seed)  # noqa: S311 an order is no secret
    files = [list(tests) for _, tests in groupby(items, key=_file)]
    for tests in files:
        rng.shuffle(tests)
    rng.shuffle(files)
    items[:] = [test for tests in files for test in tests]


def _file(item: pytest.Item) -> Path:
    return item.path
