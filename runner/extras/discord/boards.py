"""Commands for everybody that look at leaderboards: list, show, show-personal, task, template."""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import discord
from discord import app_commands

from runner.base import units
from runner.base.errors import DatabaseUnavailableError
from runner.extras.boards.directive import with_directive
from runner.extras.discord import choices
from runner.extras.discord.answers import answer, defer
from runner.extras.discord.errors import Refusal
from runner.extras.discord.groups import LEADERBOARD
from runner.extras.discord.text import FILE_BYTES, FILES, OPTIONS, code, cut, file, plain
from runner.extras.shown import words
from runner.store.connection import Row
from runner.task_format.model import HARNESS, SUBMISSION, Lang

if TYPE_CHECKING:
    from runner.extras.discord.client import Client

#: Places and submissions that a message shows, of all GPU types together; a file has more.
_LINES: Final = 20
_PLACES: Final = 1000
#: As long as the longest words for how a time was measured.
_CELL_CHARS: Final = 33
_DESCRIPTION_CHARS: Final = 1000
#: What stands in a task in place of a file.
_PLACEHOLDERS: Final = (SUBMISSION, HARNESS)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


@LEADERBOARD.command(name="list", description="List the open leaderboards")
async def list_boards(interaction: discord.Interaction[Client]) -> None:
    """Those that are public and open, with GPU types and deadline."""
    await defer(interaction)
    boards = await interaction.client.store.all("board_list")
    lines = [
        f"**{plain(board['name'])}** on {', '.join(map(plain, board['gpus']))} until "
        f"{discord.utils.format_dt(board['deadline'], 'f')}"
        for board in boards
        if board["visibility"] == "public" and not board["over"]
    ]
    await answer(interaction, "\n".join(lines) or "No leaderboard is open.")


@LEADERBOARD.command(name="show", description="Show the ranking of a leaderboard")
@app_commands.describe(leaderboard_name="The leaderboard", gpu="GPU types; without them you select")
@app_commands.autocomplete(leaderboard_name=choices.board_names)
async def show(interaction: discord.Interaction[Client], leaderboard_name: str, gpu: str | None = None) -> None:
    """The best time of every user, and how each was measured."""
    await defer(interaction)
    board = await choices.board(interaction, leaderboard_name)
    gpus = await choices.chosen_gpus(interaction, board["gpus"], gpu, ask="Which rankings?")
    store = interaction.client.store
    rankings = {
        name: await store.all("places", leaderboard=board["name"], gpu_type=name, limit=_PLACES, offset=0)
        for name in gpus
    }
    most = max(3, _LINES // len(gpus))
    whole = "\n\n".join(
        f"{name}{f', the first {_PLACES}' if len(places) == _PLACES else ''}\n{_ranking(places)}"
        for name, places in rankings.items()
    )
    files = [file("ranking.txt", whole)] if any(len(places) > most for places in rankings.values()) else []
    shown = [
        f"{plain(board['name'])} on {plain(name)}:\n{code(_ranking(places[:most]))}" if places
        else f"{plain(board['name'])} on {plain(name)}: nobody ranks yet."
        for name, places in rankings.items()
    ]  # fmt: skip
    await answer(interaction, "\n".join(shown), files=files)


def _ranking(places: Sequence[Row]) -> str:
    return _table(
        ("", "user", "time", "measured", "submission"),
        [
            (
                str(place["rank"]),
                place["user_name"] or place["user_id"],
                units.score(float(place["score"])),
                _measured(place["timing"]),
                f"{place['submission_id']}{' (late)' if place['late'] else ''}",
            )
            for place in places
        ],
    )


@LEADERBOARD.command(name="show-personal", description="Show your places and submissions on a leaderboard")
@app_commands.describe(leaderboard_name="The leaderboard", gpu="GPU types; without them you select")
@app_commands.autocomplete(leaderboard_name=choices.board_names)
async def show_personal(
    interaction: discord.Interaction[Client], leaderboard_name: str, gpu: str | None = None
) -> None:
    """The user's places, and the newest submissions."""
    await defer(interaction)
    board = await choices.board(interaction, leaderboard_name)
    gpus = await choices.chosen_gpus(interaction, board["gpus"], gpu, ask="Which of your places?")
    whose: Mapping[str, Any] = {"user_id": str(interaction.user.id), "gpu_types": gpus}
    store = interaction.client.store
    places = {row["gpu_type"]: row for row in await store.all("own_places", leaderboard=board["name"], **whose)}
    newest = await store.all("own_submissions", board_id=board["id"], limit=_LINES, **whose)
    lines = [_own_place(name, places.get(name)) for name in gpus]
    if newest:
        lines += ["Your newest submissions:", code(_submissions(newest))]
    await answer(interaction, "\n".join(lines))


def _own_place(gpu: str, place: Row | None) -> str:
    if place is None:
        return f"{plain(gpu)}: you do not rank yet."
    time = units.score(float(place["score"]))
    return (
        f"{plain(gpu)}: place {place['rank']} of {place['entries']} with {time} ({_measured(place['timing'])}), "
        f"submission {place['submission_id']}"
    )


def _measured(timing: str | None) -> str:
    """How a time was measured, in words."""
    return words.TIMINGS[timing][0] if timing in words.TIMINGS else ""


def _submissions(newest: Sequence[Row]) -> str:
    return _table(
        ("", "submitted (UTC)", "file", "mode", "GPU types", "outcome"),
        [
            (
                str(row["submission_id"]),
                units.moment(row["submission_time"]),
                row["file_name"],
                ", ".join(row["modes"]),
                ", ".join(row["gpu_types"]),
                words.verdict(row["verdict"]) or row["state"]
                if row["score"] is None
                else units.score(float(row["score"])),
            )
            for row in newest
        ],
    )


@LEADERBOARD.command(name="task", description="Get the files of a leaderboard's task")
@app_commands.describe(leaderboard_name="The leaderboard")
@app_commands.autocomplete(leaderboard_name=choices.board_names)
async def task(interaction: discord.Interaction[Client], leaderboard_name: str) -> None:
    """The description and all files; the secret seed is in none."""
    await defer(interaction)
    board = await choices.board(interaction, leaderboard_name)
    row = await interaction.client.store.one("task_files", board_id=board["id"])
    sources = {} if row is None else {name: text for name, text in row["files"].items() if text not in _PLACEHOLDERS}
    if not sources:
        raise Refusal(f"The task of {plain(board['name'])} has no files.")
    text = f"**{plain(board['name'])}**\n{plain(cut(board['description'], _DESCRIPTION_CHARS))}"
    if len(sources) <= FILES and sum(len(str(source)) for source in sources.values()) <= FILE_BYTES // 4:
        files = [file(_file_name(name), str(source)) for name, source in sources.items()]
    else:
        archive = _archive(sources)
        if len(archive) > FILE_BYTES:
            raise Refusal(
                f"The task of {plain(board['name'])} is too large for Discord: ask who made it for its files."
            )
        files = [file("task.zip", archive)]
    await answer(interaction, cut(text), files=files)


def _archive(sources: Mapping[str, object]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sources.items():
            archive.writestr(name, str(text))
    return packed.getvalue()


async def _languages(interaction: discord.Interaction[Client], typed: str) -> list[app_commands.Choice[str]]:
    named = str(getattr(interaction.namespace, "leaderboard_name", None) or "")
    try:
        async with asyncio.timeout(choices.TYPING_S):
            templates = await _templates(interaction, await choices.board(interaction, named))
    except (Refusal, DatabaseUnavailableError, TimeoutError):
        return []
    fitting = [language for language in templates if typed.lower() in language.lower()]
    return [app_commands.Choice(name=language, value=language) for language in fitting[:OPTIONS]]


@LEADERBOARD.command(name="template", description="Get a file to begin with")
@app_commands.describe(leaderboard_name="The leaderboard", lang="The language; without it, the only one")
@app_commands.autocomplete(leaderboard_name=choices.board_names, lang=_languages)
async def template(interaction: discord.Interaction[Client], leaderboard_name: str, lang: str | None = None) -> None:
    """A template whose first line names the leaderboard."""
    await defer(interaction)
    board = await choices.board(interaction, leaderboard_name)
    templates = await _templates(interaction, board)
    by_name = {language.lower(): language for language in templates}
    if lang is None and len(templates) == 1:
        lang = next(iter(templates))
    language = by_name.get((lang or "").strip().lower())
    if language is None:
        offered = ", ".join(map(plain, sorted(templates)))
        raise Refusal(
            f"{plain(board['name'])} has templates for {offered}: choose one of them as `lang`."
            if templates
            else f"{plain(board['name'])} has no template; /leaderboard task has its files."
        )
    text, task_language = templates[language]
    suffix = "cu" if task_language == Lang.CU else "py"
    sent = file(_file_name(f"{board['name']}.{suffix}"), with_directive(text, board["name"], lang=task_language))
    await answer(interaction, f"{plain(language)} for {plain(board['name'])}:", files=[sent])


async def _templates(interaction: discord.Interaction[Client], board: Row) -> dict[str, tuple[str, str]]:
    """Each template of a leaderboard with the language of its task."""
    row = await interaction.client.store.one("board_reference", board_id=board["id"])
    return {} if row is None else {lang: (text, str(row["lang"] or Lang.PY)) for lang, text in row["templates"]}


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; a name of strangers is cut."""
    cells = [heads, *([cut(" ".join(cell.split()), _CELL_CHARS) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _file_name(name: str) -> str:
    return _UNSAFE.sub("_", name)
