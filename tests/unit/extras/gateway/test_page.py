"""docs/gateway.md names every route, and every one that is not built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.extras.gateway.app import NOT_BUILT, routes

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "gateway.md").read_text(encoding="utf-8")
BUILT, _, MISSING = PAGE[PAGE.index("## Routes") :].partition("**Not built**")


def named(part: str) -> set[str]:
    """The paths in code of a part of the page."""
    return {path for code in re.findall(r"`([^`]+)`", part) for path in re.findall(r"/[\w{}/-]*", code)}


@pytest.mark.parametrize("path", sorted({route.path for route in routes()}))
def test_every_route_stands_in_the_page(path: str) -> None:
    """As built, or as not built."""
    unbuilt = {missing for _, missing, _ in NOT_BUILT}
    assert path in named(MISSING if path in unbuilt else BUILT)


def test_the_page_names_no_other_route() -> None:
    """Of those that look like one."""
    assert named(BUILT) == {route.path for route in routes()} - {missing for _, missing, _ in NOT_BUILT}
