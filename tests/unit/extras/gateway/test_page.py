"""docs/gateway.md names every route."""

from __future__ import annotations

import re
from pathlib import Path

from runner.extras.gateway.app import routes

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "gateway.md").read_text(encoding="utf-8")
ROUTES = PAGE.partition("\n## Routes\n")[2].partition("\n## ")[0]


def named(part: str) -> set[str]:
    """The paths in code of a part of the page."""
    return {path for code in re.findall(r"`([^`]+)`", part) for path in re.findall(r"/[\w{}/-]*", code)}


def test_the_page_names_each_route_and_no_other() -> None:
    """In its table of routes."""
    assert named(ROUTES) == {route.path for route in routes()}
