"""What is said of a submission that is over: to its author in full, to everyone only verdict and times.

Called by `following` and `reading`. Nothing here is of another user or of a secret run's data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import discord

from runner.base import units
from runner.base.results import number
from runner.extras.discord.text import FILE_BYTES, FILES, MESSAGE_CHARS, cut, file, plain
from runner.extras.shown import figures, reports, words
from runner.extras.store import AsyncStore
from runner.store.connection import Row
from runner.store.session import load_json

#: For what is said of files.
_ROOM_CHARS: Final = 300


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A submission that is over, with its runs as its author may see them."""

    submission: Row
    status: Row
    ranking_by: str | None
    #: The verdict on each GPU type; empty: nobody but the author may read it.
    public_verdicts: Mapping[str, str]
    profiles: Sequence[Row]

    @property
    def headline(self) -> str:
        """What it came to, in one line."""
        headline = reports.headline(self.submission, self.status, self.ranking_by)
        what = "Cancelled" if headline is None else headline.text
        return f"Submission {self.submission['id']} to **{plain(self.submission['leaderboard_name'])}**: {what}."

    @property
    def is_public(self) -> bool:
        """Whether everyone may read the verdict: it was to be ranked, on a leaderboard that everyone sees."""
        return bool(self.public_verdicts)


async def load(store: AsyncStore, submission_id: int) -> Ended | None:
    """A submission with all that is said of it; None: it is gone.

    Raises:
        DatabaseUnavailableError: for longer than the store waits.
    """
    submission = await store.one("submission", submission_id=submission_id, with_code=False, with_runs=True)
    status = await store.one("submission_status", submission_id=submission_id)
    if submission is None or status is None:
        return None
    task = await store.one("board_reference", board_id=submission["leaderboard_id"])
    profiles: Sequence[Row] = ()
    if "profile" in status["modes"]:
        profiles = await store.all("profiles", submission_id=submission_id)
    verdicts = {}
    if "leaderboard" in status["modes"] and status["verdict"] is not None:
        rows = await store.all("public_verdicts", submission_id=submission_id)
        verdicts = {row["gpu_type"]: row["verdict"] for row in rows}
    runs = [] if submission["runs"] is None else load_json(submission["runs"])
    return Ended(
        submission={**submission, "runs": runs},
        status=status,
        ranking_by=None if task is None else task["ranking_by"],
        public_verdicts=verdicts,
        profiles=profiles,
    )


def full(ended: Ended, code: bytes | None = None) -> tuple[str, list[discord.File]]:
    """The report for the author: a message, and files: the code if given, a report that is longer, profiles."""
    submission_id, status = ended.submission["id"], ended.status
    headline = reports.headline(ended.submission, status, ended.ranking_by)
    lines = [ended.headline]
    if headline is not None and headline.advice:
        lines.append(headline.advice)
    if status["timing"] is not None and status["timing"] in words.TIMINGS:
        lines.append(f"Its time: {words.TIMINGS[status['timing']][1]}")
    if status["unranked"]:
        lines.append(f"It does not rank: {plain(status['unranked'])}.")
    text = "\n".join(lines)
    cases = "\n".join(reports.reports(ended.submission, status, plain=plain))
    contents = {} if code is None else {ended.submission["file_name"]: code}
    if len(text) + len(cases) + _ROOM_CHARS <= MESSAGE_CHARS:
        text += f"\n{cases}"
    else:
        contents[f"report-{submission_id}.md"] = cases.encode("utf-8", "replace")
    printed = _printed(ended)
    if printed:
        contents[f"output-{submission_id}.txt"] = printed.encode("utf-8", "replace")
    contents |= _profiles(ended)
    files: list[discord.File] = []
    left_out: list[str] = []
    left_bytes = FILE_BYTES
    for name, content in contents.items():
        if len(content) <= left_bytes and len(files) < FILES:
            left_bytes -= len(content)
            files.append(file(name, content))
        else:
            left_out.append(name)
    if left_out:
        text += f"\nThere is no room in a message for {', '.join(map(plain, left_out))}."
    return cut(text), files


async def verdict(store: AsyncStore, ended: Ended) -> str:
    """What everyone may know of a ranked submission: verdict, times, how they were measured, places."""
    name = plain(ended.status["user_name"] or ended.status["user_id"])
    board = ended.submission["leaderboard_name"]
    lines = [f"**{name}** on **{plain(board)}**, submission {ended.submission['id']}:"]
    runs = [run for run in ended.submission["runs"] if run["mode"] == "leaderboard" and not run["secret"]]
    ranked = {run["gpu_type"]: run for run in runs if run["passed"]}
    for gpu, value in ended.public_verdicts.items():
        run = ranked.get(gpu)
        if value != "accepted" or run is None:
            lines.append(f"{plain(gpu)}: {words.verdict(value)}.")
            continue
        score_s = number(run["score"])
        if score_s is None:
            lines.append(f"{plain(gpu)}: accepted, does not rank.")
            continue
        interval = figures.interval_of(run["result"], ended.ranking_by)
        time = units.score(score_s) + ("" if interval is None else f" ± {units.percent(interval)}")
        place = await store.one("place_of", leaderboard=board, gpu_type=gpu, submission_id=ended.submission["id"])
        where = "not the best of its author" if place is None else f"place {place['rank']} of {place['entries']}"
        lines.append(f"{plain(gpu)}: **{time}** ({words.TIMINGS[_timing(run)][0]}), {where}.")
    return cut("\n".join(lines))


def _timing(run: Row) -> str:
    """What the time of a run is worth, as `runner.status` reads it."""
    system: Any = run["system_info"]
    for key in ("runner", "assurance", "timing"):
        system = system.get(key) if isinstance(system, dict) else None
    return system if isinstance(system, str) and system in words.TIMINGS else "claimed"


def _printed(ended: Ended) -> str:
    """All that compiler and program wrote in public runs."""
    parts: list[str] = []
    for run in ended.submission["runs"]:
        if run["secret"]:
            continue
        compiled = reports.picked(run["compilation"], ("stdout", "stderr")) or {}
        meta = reports.picked(run["meta"], ("stdout", "stderr")) or {}
        for what, texts in (("compiler", compiled), ("program", meta)):
            parts += [
                f"==== {run['gpu_type']}, {run['mode']}: {key} of the {what}\n{value}"
                for key, value in texts.items()
                if value
            ]
    return "\n".join(parts)


def _profiles(ended: Ended) -> dict[str, bytes]:
    archives = {}
    for run in ended.submission["runs"]:
        if run["mode"].startswith("profile") and not run["secret"]:
            archive = reports.profile_archive(run, ended.profiles)
            if archive is not None:
                archives[f"{run['mode']}-{ended.submission['id']}-{run['gpu_type']}.zip"] = archive
    return archives
