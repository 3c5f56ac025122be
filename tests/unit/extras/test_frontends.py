"""The table of docs/frontends.md names what there is in the code of each frontend, and leaves none of it out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from discord.app_commands import Group

from runner.extras.discord import serve as _commands_of_the_groups  # noqa: F401 - it gives them their commands
from runner.extras.discord.groups import ADMIN, LEADERBOARD
from runner.extras.gateway import app, pages
from runner.extras.mcp.gateway import Gateway
from runner.extras.mcp.server import build
from runner.extras.trainers.client import Client
from runner.store import schema
from tests.unit.cli import reference

ROOT: Final = Path(__file__).resolve().parents[3]
SKILL: Final = ROOT / "runner/extras/mcp/SKILL.md"
_CODE: Final = re.compile(r"`([^`]+)`")
_CANNOT: Final = "\u2013"
#: Neither submits nor reads: for monitoring, and for the pages' own files.
_ROUTES_OF_OPERATORS: Final = ("/admin/", "/health", "/readyz", "/metrics")


def section(title: str) -> str:
    """A section of the page."""
    page = (ROOT / "docs/frontends.md").read_text(encoding="utf-8")
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def column(place: int) -> set[str]:
    """What the table names of a frontend."""
    rows = [
        line.strip("| ").split(" | ")
        for line in section("What each frontend can do").splitlines()
        if line.startswith("|")
    ][2:]
    assert len(rows) > 10
    assert {len(row) for row in rows} == {6}
    assert all(cell == _CANNOT or _CODE.search(cell) for row in rows for cell in row[1:])
    return {name for row in rows for name in _CODE.findall(row[place])}


def tools() -> Mapping[str, Any]:
    """The tools of the MCP server."""
    server = build(Gateway(url=None, token=None), [])
    return {tool.name: tool for tool in asyncio.run(server.list_tools())}


def command_line() -> tuple[set[str], set[str]]:
    """All commands, and those that the table may not leave out."""
    return set(reference.commands()), set(reference.GROUPS["For participants"]) - {"mcp"}


def routes() -> tuple[set[str], set[str]]:
    """The routes of the HTTP API."""
    of_pages = {route.path for route in pages.routes()}
    paths = {route.path for route in app.routes()} - of_pages
    return paths, {path for path in paths if not path.startswith(_ROUTES_OF_OPERATORS)}


def commands_of_discord() -> tuple[set[str], set[str]]:
    """The commands of the bot."""
    names = {
        command.qualified_name
        for group in (LEADERBOARD, ADMIN)
        for command in group.walk_commands()
        if not isinstance(command, Group)
    }
    return names, names


def sql() -> Iterator[str]:
    """Functions, views and tables."""
    yield from (f"runner.{path.stem}" for path in schema.paths("functions", "views"))
    for path in (ROOT / "runner/store/schema/leaderboard.sql", *schema.paths("tables")):
        yield from re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+\.\w+)", path.read_text(encoding="utf-8"))


FRONTENDS: Final[Mapping[int, Callable[[], tuple[set[str], set[str]]]]] = {
    1: command_line,
    2: lambda: ({route.path for route in pages.routes()}, set[str]()),
    3: routes,
    4: commands_of_discord,
    5: lambda: (set(tools()), set(tools())),
}


@pytest.mark.parametrize("place", FRONTENDS)
def test_a_column_names_what_there_is_and_leaves_nothing_out(place: int) -> None:
    """A name that is gone, and a command, route or tool that no row has, are both wrong."""
    there, needed = FRONTENDS[place]()
    named = column(place)
    assert named - there == set(), "in the table, not in the code"
    assert needed - named == set(), "in the code, in no row of the table"


def test_the_overview_names_what_the_schema_has() -> None:
    """No function, view or table of it is gone."""
    there = {name.rpartition(".")[2] for name in sql()} | {"runner_events"}
    named = {name.removesuffix("(…)").rpartition(".")[2] for name in _CODE.findall(section("Overview"))}
    assert len(named) > 30
    assert named - there == {"runner_frontend", "LISTEN"}


def test_the_methods_of_the_python_client_are_named() -> None:
    """Every one of them, beside the table."""
    names = {name for name, value in vars(Client).items() if callable(value) and not name.startswith("_")}
    sentence = section("What each frontend can do").partition("Python client")[2].partition("|")[0]
    assert set(_CODE.findall(sentence)) == names - {"close"}


def test_the_skill_names_tools_and_commands_that_there_are() -> None:
    """All tools; its table's commands with options that they have. Clients find it by its front matter."""
    text = SKILL.read_text(encoding="utf-8")
    assert re.match(r"---\nname: kernel-runner\ndescription: .{40,1000}\n---\n", text)
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| ")]
    assert {name for row in rows for name in _CODE.findall(row[1])} == set(tools())
    there = reference.commands()
    for use in (name for row in rows[1:] for name in _CODE.findall(row[2])):
        words = use.split()
        name = next(" ".join(words[:length]) for length in (2, 1) if " ".join(words[:length]) in there)
        options = {option for parameter in there[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, use


def test_tools_tell_a_model_all_it_has_to_know() -> None:
    """Each has a sentence, an output schema, and a description of each required argument; together they are short."""
    for name, tool in tools().items():
        assert tool.description.endswith("."), name
        assert tool.output_schema["type"] == "object", name
        properties = tool.input_schema["properties"]
        assert all("description" in properties[each] for each in tool.input_schema.get("required", ())), name
    assert sum(len(tool.description) + len(str(tool.input_schema)) for tool in tools().values()) < 7000
