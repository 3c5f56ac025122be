"""Submitting in Discord: progress, reports, verdicts, refusals, a kill at every step, and a real daemon."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zipfile import ZipFile

import psycopg
import pytest

from runner.base.model import Artifact, Verdict
from runner.extras.discord import following
from runner.extras.discord.client import Client
from runner.store.connection import Row
from tests.integration.extras.discord.simulation import Member, Server, ended, told, until
from tests.integration.store.conftest import CODE, Bench, ranked, result, run_record
from tests.plugins.live import ROOT, live_runner
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

ROWS = ROOT / "tests/fixtures/kernelbot_task"
SUMS = (ROWS / "solutions/correct/row_sums.py").read_bytes()
WRONG = (ROWS / "solutions/wrong/skips_last_column.py").read_bytes()
HANGS = b"def custom_kernel(data):\n    while True:\n        pass\n"
#: What a user of this name could do to a chat.
HOSTILE = "**eve** <@1> @everyone [x](http://x)"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for seconds."""
    monkeypatch.setattr(following, "LOOK_S", 0.05)


async def report(member: Member, submission_id: int) -> tuple[str, dict[str, bytes]]:
    """The message in the private thread of a submission, and its files."""
    (thread,) = [each for each in member.threads() if str(each.name).startswith(f"Submission {submission_id}: ")]
    (message,) = thread.history()
    return message.content, {file.filename: await file.read() for file in message.attachments}


async def test_two_users_follow_their_submissions_and_all_read_the_verdicts(bench: Bench, server: Server) -> None:
    """Two GPU types chosen in a drop-down beside a wrong submission: each user alone reads progress and report."""
    bench.board("sort", "CPU", "CPU-2")

    ada, eve = server.member("ada"), server.member(HOSTILE)
    mine = await ada.submit("ranked", b"#!POPCORN leaderboard sort\n" + CODE)
    assert mine.options == ["CPU", "CPU-2"]
    await mine.select("CPU", "CPU-2")
    await mine.reads("Submission 1", "CPU: queued", "CPU-2: queued")
    hers = await eve.submit("ranked", b"SECRET = 1\n" + CODE, "sort", gpu="cpu-2")
    await hers.reads("Submission 2", "queued")
    assert (mine.private, hers.private) == (True, True)
    first = bench.claim("CPU")
    await mine.reads("CPU: starting")
    bench.store.complete(first, ranked(first, 3e-6))
    for gpu in ("CPU-2", "CPU-2", "CPU", "CPU-2"):
        job = bench.claim(gpu)
        bench.store.complete(job, ranked(job, 2e-6, passed=job.submission_id == 1))
    await mine.reads("Accepted: 2.00 µs", "The full report: <#")
    await hers.reads("Wrong answer", "The full report: <#")
    (verdict,) = [text for text in server.public() if "**ada**" in text]
    assert verdict.splitlines()[1:] == [
        "CPU: **3.00 µs** (own clock, unchecked), place 1 of 1.",
        "CPU-2: **2.00 µs** (own clock, unchecked), place 1 of 1.",
    ]
    (verdict,) = [text for text in server.public() if "submission 2" in text]
    assert verdict.endswith(": Wrong answer.")
    assert (r"\*\*eve\*\* \<@" in verdict, "@everyone" in verdict) == (True, False)
    assert not [text for text in server.public() if "SECRET" in text]
    names = [[thread.name for thread in each.threads()] for each in (ada, eve)]
    assert names == [["Submission 1: sort"], ["Submission 2: sort"]]
    text, files = await report(ada, 1)
    assert ("✅ secret run" in text, files) == (True, {})
    shown = await eve.command("leaderboard get-submission", submission_id=2)
    assert "Wrong answer" in await shown.reads("Submission 2")
    assert list(await shown.files()) == ["mine.py"]
    shown = await eve.command("leaderboard get-submission", submission_id=1)
    assert await shown.reads("submission") == "You have no submission 1."


#: What of a command is refused, and words of the answer.
WRONG_COMMANDS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"board": "sorted"}, "'sorted' does not exist"),
    ({}, "no leaderboard named"),
    ({"code": b"#!POPCORN board sort\n"}, "unknown directive"),
    ({"board": "over"}, "Its deadline has passed"),
    ({"board": "sort", "gpu": "MI300"}, "no GPU type MI300; it has CPU, H100."),
    ({"board": "sort", "code": b""}, "0 bytes"),
    ({"board": "sort", "code": b"#" * 1_000_001}, "1000001 bytes, expected at most 1000000"),
    ({"board": "sort", "code": b"\x7fELF\x00"}, "NUL byte"),
    ({"board": "sort", "code": b"\xff\xfe"}, "not UTF-8"),
    ({"board": "sort", "gpu": "CPU", "name": "mine.zip"}, "ends in .py, .cu"),
)
#: What an administrator does, and the user then reads.
STOPS = (
    (
        "INSERT INTO leaderboard.rate_limit SELECT 1, id, 'test', 0 FROM leaderboard.leaderboard WHERE name = 'sort'",
        "0 of 0 test submissions an hour",
    ),
    ("UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = 'sort'", "is by invitation"),
    ("INSERT INTO leaderboard.user_info (id, is_banned) VALUES ('{user}', true)", "is banned. Ask an administrator"),
    ("INSERT INTO runner.intake_stop (reason) VALUES ('moving house')", "accepted now: moving house"),
)


async def test_what_cannot_be_submitted_is_refused_with_a_sentence(bench: Bench, server: Server) -> None:
    """To the user alone, with what was found and what to do; nothing is stored."""
    bench.board("sort", "CPU", "H100")
    bench.board("over", deadline=datetime.now(UTC) - timedelta(days=1))

    ada = server.member("ada")

    async def refused(
        words: str, *, code: bytes = CODE, name: str = "mine.py", board: str | None = None, gpu: str = ""
    ) -> None:
        options = {key: value for key, value in {"leaderboard_name": board, "gpu": gpu}.items() if value}
        reply = await ada.command("leaderboard submit test", script=(name, code), **options)
        await reply.reads(words)
        assert reply.private

    for options, words in WRONG_COMMANDS:
        await refused(words, **options)
    with psycopg.connect(bench.url, autocommit=True) as connection:
        for statement, words in STOPS:
            connection.execute(statement.format(user=ada.id).encode())
            await refused(words, board="sort", gpu="CPU")
    assert server.public() == []
    with psycopg.connect(bench.url) as connection:
        assert connection.execute("SELECT count(*) FROM leaderboard.submission").fetchone() == (0,)


async def test_a_kill_between_storing_and_answering_loses_nothing(
    bench: Bench, make_client: Callable[..., Client], finish: Callable[..., None]
) -> None:
    """What was stored is followed in a thread, as nobody can edit the private answer any more."""
    bench.board("sort")

    client = make_client()
    stored = asyncio.Event()
    send = client.store.row

    async def last_statement(name: str, /, **values: object) -> Row:
        row = await send(name, **values)
        if name == "submit_by_discord":
            stored.set()
            await asyncio.Event().wait()
        return row

    client.store.row = last_statement  # type: ignore[method-assign]  # the process ends there
    async with Server(client) as server:
        ada = server.member("ada")
        await ada.begin("leaderboard submit ranked", script=("mine.py", CODE), leaderboard_name="sort")
        await asyncio.wait_for(stored.wait(), PATIENCE_S)
        await server.restart(make_client())
        await until(lambda: [each for each in ada.threads() if each.history()], "progress goes on")
        finish()
        await ended(bench, 1)
        text, _ = await report(ada, 1)
        assert "Accepted: 2.50 µs" in text
        assert told(server, ada, 1) == (1, 1)


@pytest.mark.parametrize("refused", ["thread", "thread and message", "answer"])
async def test_where_discord_takes_no_thread_the_report_goes_elsewhere(
    bench: Bench, server: Server, finish: Callable[..., None], refused: str
) -> None:
    """By direct message; in the answer where that is refused, too. Who has dismissed the answer has a thread."""
    bench.board("sort")

    ada = server.member("ada")
    reply = await ada.submit("test", CODE, "sort")
    await reply.reads("queued")
    if refused.startswith("thread"):
        server.env.inject_error("POST", "/channels/*/threads", status=403, code=50013)
    if refused == "thread and message":
        server.env.inject_error("POST", "/users/@me/channels", status=403, code=50007)
    if refused == "answer":
        server.env.inject_error("PATCH", "/webhooks/*/messages/@original", status=404, code=10008, times=None)
    finish()
    await ended(bench, 1)
    if refused == "answer":
        text, _ = await report(ada, 1)
    elif refused == "thread":
        assert reply.text.endswith("Accepted. The full report: a direct message of this bot.")
        text = ada.actor.user.dm_channel.history()[-1].content
    else:
        text = reply.text
    assert "✅ test" in text


async def test_long_reports_and_profiles_are_files(bench: Bench, server: Server) -> None:
    """What is longer than a message, what a program printed, a profile's own files; without them where none may be."""
    bench.board("sort")
    cases: dict[str, str] = {"test-count": "100"}
    for index in range(100):
        cases |= {f"test.{index}.spec": f"size: {index}; seed: {index}", f"test.{index}.status": "pass"}

    ada = server.member("ada")
    reply = await ada.submit("test", CODE, "sort")
    job = bench.claim()
    meta = {"stdout": "printed ``` @everyone", "stderr": "", "success": True, "exit_code": 0}
    bench.store.complete(job, result(Verdict.ACCEPTED, run_record("test", result=cases, meta=meta)))
    await reply.reads("Accepted")
    text, files = await report(ada, 1)
    assert len(text) < 2000
    assert "size: 99;" in files["report-1.md"].decode()
    assert "printed ``` @everyone" in files["output-1.txt"].decode()
    reply = await ada.submit("profile", CODE, "sort")
    job = bench.claim()
    modes = [f"profile.{number}" for number in range(10)]
    kept = [Artifact(name=f"{mode}.ncu-rep", media_type="application/octet-stream", data=b"NVPR") for mode in modes]
    bench.store.complete(job, result(Verdict.ACCEPTED, *map(run_record, modes), artifacts=tuple(kept)))
    await reply.reads("Submission 2", "Accepted")
    _, files = await report(ada, 2)
    with ZipFile(io.BytesIO(files["profile.0-2-CPU.zip"])) as archive:
        assert archive.read("profile.ncu-rep") == b"NVPR"
    assert len(files) == 10
    shown = await ada.command("leaderboard get-submission", submission_id=2)
    await shown.reads("There is no room in a message for profile.9-2-CPU.zip.")
    assert list(await shown.files()) == ["mine.py", *list(files)[:9]]
    await ada.submit("test", CODE, "sort")
    job = bench.claim()
    server.env.inject_error("POST", "/channels/*/messages", status=403, code=50013)
    bench.store.complete(job, result(Verdict.ACCEPTED, run_record("test", result=cases, meta=meta)))
    await ended(bench, 3)
    text, files = await report(ada, 3)
    assert text.endswith("The bot may not attach files here: /leaderboard get-submission has them.")
    assert files == {}


async def test_a_real_daemon(make_client: Callable[..., Client], database_url: str) -> None:
    """Right, wrong and hanging submissions of two users on two GPU types at once, in every mode."""
    gpus = {name: f'extends = "CPU"\nname = "{name}"\n' for name in ("CPU", "CPU-2")}
    slots = [{"gpu_type": "CPU", "cpus": [0]}, {"gpu_type": "CPU-2", "cpus": [1]}]
    with live_runner(database_url, gpus, {"KERNEL_RUNNER_SLOTS": json.dumps(slots)}) as live:
        for board, timeout_s in (("rows", None), ("hasty", 5)):
            live.board(ROWS, name=board, timeout_s=timeout_s, timed_calls=3, gpus=("CPU", "CPU-2"))

        async with Server(make_client()) as server:
            ada, eve = server.member("ada"), server.member("eve")
            right = await ada.submit("test", SUMS, "rows", gpu="CPU, CPU-2")
            hangs = await eve.submit("test", HANGS, "hasty", gpu="CPU-2")
            wrong = await eve.submit("ranked", WRONG, "rows", gpu="CPU")
            await right.reads("Accepted")
            await hangs.reads("Time limit exceeded")
            await wrong.reads("Wrong answer")
            (verdict,) = [text for text in server.public() if "submission 3" in text]
            assert verdict == "**eve** on **rows**, submission 3:\nCPU: Wrong answer."
            best = await ada.submit("ranked", SUMS, "rows", gpu="CPU")
            times = await ada.submit("benchmark", SUMS, "rows", gpu="CPU-2")
            profile = await eve.submit("profile", SUMS, "rows", gpu="CPU-2")
            for each in (best, times, profile):
                await each.reads("Accepted", "The full report")
            (verdict,) = [text for text in server.public() if "submission 4" in text]
            assert verdict.endswith("place 1 of 1.")
            assert "1  ada" in (await eve.command("leaderboard show", leaderboard_name="rows", gpu="CPU")).text
