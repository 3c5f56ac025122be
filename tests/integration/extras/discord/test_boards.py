"""Commands that look at leaderboards, and those of creators and administrators: right, wrong and forbidden inputs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from runner.base.errors import SubmissionError
from runner.extras.discord import boards
from tests.integration.extras.discord.conftest import ADMIN, CREATOR
from tests.integration.extras.discord.simulation import Member, Server
from tests.integration.extras.gateway.conftest import invite
from tests.integration.store.conftest import TASK, Bench

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[4]
#: A name that would be a mention, a link, bold, and the end of a code block.
EVIL = "@everyone <@1> **x** ```y"


def archive(**changes: bytes) -> bytes:
    """A task folder as a .zip; `changes` are files in place of its own."""
    folder, packed = ROOT / "tests/fixtures/kernelbot_task", io.BytesIO()
    with zipfile.ZipFile(packed, "w") as written:
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for name, content in {**files, **changes}.items():
            written.writestr(f"{folder.name}/{name}", content)
    return packed.getvalue()


async def test_everybody_looks_at_leaderboards(
    bench: Bench, server: Server, finish: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rankings per GPU type, own places, files and templates; a closed leaderboard is there only for the invited."""
    task = {**TASK, "files": {"task.py": "x = 1\n", "reference.py": "y = 2\n", "submission.py": "@SUBMISSION@"}}
    bench.board("sort", "CPU", "H100", task=task, templates={"Python": "p = 1\n", "CUDA": "c = 1\n"})
    bench.board("hidden")
    gpus = [f"G{number:02}" for number in range(70)]
    bench.board("wide", *gpus, task={**TASK, "files": {f"{name}.py": f"x = {name!r}\n" for name in gpus}})
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute("UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = 'hidden'")
    ranks = {"leaderboard": "sort", "mode": "leaderboard", "gpu_types": ["CPU"]}
    for number, name in enumerate(("Ada", EVIL)):
        bench.submit(**ranks, user_id=f"u{number}", user_name=name)
        finish(score_s=(number + 1) * 1e-6)

    ada = server.member("ada")
    text = await (await ada.command("leaderboard list")).reads("**sort** on CPU, H100 until <t:")
    assert "hidden" not in text
    assert await ada.completions("leaderboard show", "leaderboard_name", "OR") == ["sort"]
    assert await ada.completions("leaderboard show", "leaderboard_name", "hid") == []

    reply = await ada.command("leaderboard show", leaderboard_name="Sort")
    assert (reply.private, reply.options) == (True, ["CPU", "H100"])
    await reply.select("CPU", "H100")
    text = await reply.reads("1.00 µs", "2.00 µs", "sort on H100: nobody ranks yet")
    assert text.index("Ada") < text.index("everyone")
    assert text.count("```") == 2
    for gpu, words in (("h100", "nobody ranks yet"), ("T4", "no GPU type T4; it has CPU, H100")):
        await (await ada.command("leaderboard show", leaderboard_name="sort", gpu=gpu)).reads(words)
    for name in ("hidden", EVIL):
        for command in ("show", "show-personal", "task", "template"):
            text = (await ada.command(f"leaderboard {command}", leaderboard_name=name)).text
            assert "There is no leaderboard" in text, command

    bench.submit(**ranks, user_id=ada.id)
    reply = await ada.command("leaderboard show-personal", leaderboard_name="sort")
    await reply.select("CPU", "H100")
    await reply.reads("CPU: you do not rank yet.", "fast.py", "queued")
    finish(score_s=1.5e-6)
    reply = await ada.command("leaderboard show-personal", leaderboard_name="sort", gpu="CPU")
    assert "Your newest" in await reply.reads("CPU: place 2 of 3 with 1.50 µs (own clock, unchecked), submission 3")

    reply = await ada.command("leaderboard task", leaderboard_name="sort")
    assert await reply.files() == {"task.py": b"x = 1\n", "reference.py": b"y = 2\n"}
    assert await ada.completions("leaderboard template", "lang", "c", leaderboard_name="sort") == ["CUDA"]
    await (await ada.command("leaderboard template", leaderboard_name="sort")).reads("templates for CUDA, Python")
    reply = await ada.command("leaderboard template", leaderboard_name="sort", lang="python")
    assert await reply.files() == {"sort.py": b"#!POPCORN leaderboard sort\np = 1\n"}

    invite(bench.url, "hidden", ada.id)
    await (await ada.command("leaderboard show", leaderboard_name="hidden")).reads("nobody ranks yet")

    reply = await ada.command("leaderboard task", leaderboard_name="wide")
    with zipfile.ZipFile(io.BytesIO((await reply.files())["task.zip"])) as packed:
        assert packed.read("G69.py") == b"x = 'G69'\n"
    monkeypatch.setattr(boards, "FILE_BYTES", 100)
    await (await ada.command("leaderboard task", leaderboard_name="wide")).reads("too large for Discord")
    reply = await ada.command("leaderboard show", leaderboard_name="wide")
    assert reply.options == gpus[:25]
    assert f"Give {', '.join(gpus[25:])} as `gpu`" in reply.text
    reply = await ada.command("leaderboard show", leaderboard_name="wide", gpu=" ".join(gpus))
    assert len(reply.text) <= 2000
    assert reply.text.endswith("\nThe rest is in answer.md.")
    assert (await reply.files())["answer.md"].count(b"nobody ranks yet") == len(gpus)
    assert server.public() == []


async def test_creators_and_administrators(bench: Bench, server: Server) -> None:
    """What they create, delete, stop and ban is so for every frontend; without the role nothing happens."""
    bench.store.sync_gpu_types([(name, "none", (), "") for name in ("A", "B", "CPU")])
    bench.register("host-a", "CPU")
    bench.board("old")
    bench.submit(leaderboard="old", user_id="u1")

    def names() -> set[str]:
        return {line.name for line in bench.store.boards()}

    eve, ida, root = server.member("eve"), server.member("ida", CREATOR), server.member("root", ADMIN)
    new = {"leaderboard_name": "new", "deadline": "2100-01-01", "task_zip": ("task.zip", archive())}

    forbidden: tuple[tuple[Member, str, dict[str, Any]], ...] = (
        (eve, "leaderboard create", new),
        *((each, "leaderboard delete", {"leaderboard_name": "old"}) for each in (eve, ida)),
        *((each, f"admin {name}", {}) for each in (eve, ida) for name in ("stop", "start", "stats")),
        *((each, f"admin {name}", {"user": root.actor}) for each in (eve, ida) for name in ("ban", "unban")),
    )
    for member, command, options in forbidden:
        assert "needs the role" in (await member.command(command, **options)).text, command
    for wrong, sentence in (
        ({"deadline": "tomorrow"}, "expected a date like"),
        ({"deadline": "2020-01-01"}, "has passed"),
        ({"task_zip": ("task.zip", b"no archive")}, "zip"),
        ({"task_zip": ("task.zip", archive(**{"task.yml": b"files: 1"}))}, "task.yml"),
        ({"task_zip": ("task.zip", b"x" * (17 << 20))}, "at most 16.0 MiB"),
        ({"gpu": "nothing"}, "nothing"),
        ({"leaderboard_name": "white space", "gpu": "CPU"}, "white space"),
        ({"leaderboard_name": "old", "gpu": "CPU"}, "exists already"),
    ):
        text = (await ida.command("leaderboard create", **{**new, **wrong})).text
        assert sentence in text, (wrong.keys(), text)
        assert "/tmp" not in text
    assert names() == {"old"}

    reply = await ida.command("leaderboard create", **new)
    await reply.select("CPU")
    await reply.reads("**new** is open on CPU")
    board = bench.store.board("new")
    assert (board.gpus, board.creator_id) == (("CPU",), ida.actor.id)

    reply = await root.command("leaderboard delete", leaderboard_name="old")
    assert "**old** with 1 submissions" in reply.text
    assert names() == {"old", "new"}
    await reply.click("Delete")
    await reply.reads("**old** is deleted")
    assert names() == {"new"}

    await (await root.command("admin stop", reason="we move")).reads("until /admin start")
    with pytest.raises(SubmissionError, match="we move"):
        bench.submit(leaderboard="new")
    await (await root.command("admin start")).reads("Submissions are taken")
    await (await root.command("admin ban", user=eve.actor)).reads("has never submitted")
    bench.submit(leaderboard="new", user_id=eve.id)
    await (await root.command("admin ban", user=eve.actor)).reads("eve is banned")
    with pytest.raises(SubmissionError, match="banned"):
        bench.submit(leaderboard="new", user_id=eve.id)
    await (await root.command("admin unban", user=eve.actor)).reads("eve is no longer banned")
    bench.submit(leaderboard="new", user_id=eve.id)
    await (await root.command("admin stats", leaderboard_name="new")).reads("new: 2 submissions (2 not over)")
    await (await root.command("admin stats")).reads("All leaderboards", "of 1 users")
