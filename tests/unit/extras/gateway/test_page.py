"""docs/gateway.md names every route."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runner.extras.gateway.app import routes

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "gateway.md").read_text(encoding="utf-8")
ROUTES = PAGE[PAGE.index("## Routes") :].partition("\n\n## ")[0]


def named(part: str) -> set[str]:
    """The paths in code of a part of the page."""
    return {path for code in re.findall(r"`([^`]+)`", part) for path in re.findall(r"/[\w{}/-]*", code)}


@pytest.mark.parametrize("path", sorted({route.path for route in routes()}))
def test_every_route_stands_in_the_page(path: str) -> None:
    """In its table of routes."""
    assert path in named(ROUTES)


def test_the_page_names_no_other_route() -> None:
    """Of those that look like one."""
    assert named(ROUTES) == {route.path for route in routes()}
