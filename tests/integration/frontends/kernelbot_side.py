"""What runs in KernelBot's environment: `python -m tests.integration.frontends.kernelbot_side COMMAND`.

`board` makes a database by KernelBot's migrations, and the leaderboard `rows` by its code. `tasks FOLDER` prints what
KernelBot stores of each task folder below a folder. `users` plays users of a simulated Discord, whose bot is that of
`docs/examples/start_kernelbot.py`, and prints a JSON object: what they read after each of their commands.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import sys
import zipfile
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg

from tests.support.waiting import PATIENCE_S, wait_until

#: The database as its owner; KernelBot has DATABASE_URL.
URL = os.environ["KERNEL_RUNNER_TEST_OWNER_URL"]
GUILD = int(os.environ["DISCORD_CLUSTER_STAGING_ID"])
TASK = Path(__file__).parents[2] / "fixtures" / "kernelbot_task"
SUM = (TASK / "solutions" / "correct" / "row_sums.py").read_bytes()
WRONG = (TASK / "solutions" / "wrong" / "skips_last_column.py").read_bytes()
HANGS = b"def custom_kernel(data):\n    while True:\n        pass\n"
ADD = b"def custom_kernel(data):\n    a, b = data\n    return a + b\n"
DONE = "SELECT done FROM leaderboard.submission ORDER BY id DESC LIMIT 1"
#: What an administrator does, and the user then hears.
REFUSALS = {
    "limited": "INSERT INTO leaderboard.rate_limit (leaderboard_id, mode_category, max_submissions_per_hour)"
    " SELECT id, 'test', 0 FROM leaderboard.leaderboard WHERE name = 'nowhere'",
    "closed": "UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = 'nowhere'",
    "banned": "UPDATE leaderboard.user_info SET is_banned = true WHERE user_name = 'eve'",
}


def make_board() -> None:
    """A database of KernelBot's, with a leaderboard."""
    yoyo, database, task = (
        import_module(name) for name in ("yoyo", "libkernelbot.leaderboard_db", "libkernelbot.task")
    )
    parts = psycopg.conninfo.conninfo_to_dict(URL)
    backend = yoyo.get_backend(f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}")
    migrations = Path(str(database.__file__)).parents[1] / "migrations"
    backend.apply_migrations(backend.to_apply(yoyo.read_migrations(str(migrations))))
    definition = task.make_task_definition(TASK)
    definition.task.test_timeout = 30
    with database.LeaderboardDB(URL, ssl_mode="disable") as db:
        db.create_leaderboard(
            name="rows",
            deadline=datetime.now(UTC) + timedelta(days=1),
            definition=definition,
            creator_id=1,
            forum_id=1,
            gpu_types=["CPU", "CPU-2"],
        )


def stored_tasks(problems: Path) -> dict[str, Any]:
    """What KernelBot would store of each task folder."""
    task = import_module("libkernelbot.task")
    definitions = {path.parent: task.make_task_definition(path) for path in sorted(problems.rglob("task.yml"))}
    return {
        str(folder): {
            "task": each.task.to_dict(),
            "description": each.description,
            "templates": each.templates,
            "gpus": each.gpus,
        }
        for folder, each in definitions.items()
    }


class Discord:
    """The channel for submissions, as one user sees it."""

    def __init__(self, channel: Any, user: Any) -> None:  # noqa: ANN401 - another environment's types
        self._channel = channel
        self._user = user

    async def command(self, name: str, *, choice: Sequence[str] = (), **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Everything that the user reads after a command; `choice` is selected in the menu that it shows."""
        result: Any = None

        async def act() -> None:
            nonlocal result
            result = await self._user.slash(self._channel, name, **options)
            if choice:
                await self._user.select(next(each for each in replies(result) if each.components), list(choice))

        threads = await self.new_texts(act())
        return {
            "replies": [each.content for each in replies(result)],
            "tables": [embed.description for each in replies(result) for embed in each.embeds],
            "files": [file.filename for each in replies(result) for file in each.attachments],
            "threads": threads,
        }

    async def submit(self, mode: str, code: bytes, board: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
        """Submit a file."""
        options |= {"script": ("mine.py", code), "leaderboard_name": board}
        return await self.command(f"leaderboard submit {mode}", **options)

    async def new_texts(self, act: Awaitable[None]) -> list[str]:
        """The threads that something begins or changes, as texts."""
        before = await self._texts()
        await act
        return [text for text in await self._texts() if text not in before]

    async def _texts(self) -> list[str]:
        """Of each thread: name, messages, what is in its files."""
        texts = []
        for thread in self._channel.threads:
            lines = [thread.name]
            for message in thread.history():
                lines.append(message.content)
                for file in message.attachments:
                    with zipfile.ZipFile(io.BytesIO(await file.read())) as archive:
                        lines += archive.namelist()
            texts.append("\n".join(lines))
        return texts


def replies(result: Any) -> list[Any]:  # noqa: ANN401
    """The messages that answer a command."""
    return [each for each in (result.response, *result.followups) if each is not None]


async def play_users() -> dict[str, Any]:
    """All that users do."""
    simcord = import_module("simcord")
    start: Any = import_module("start_kernelbot")
    simulation = simcord.run(start.kernelbot().ClusterBot(), settle_timeout=PATIENCE_S)
    # The bot asks for its guild while it starts.
    guild = simulation._env.create_guild(id=GUILD)
    admin = guild.create_role("Leaderboard Admin")
    seen: dict[str, Any] = {}
    async with simulation as env:
        channel = guild.channels["submissions"]
        ada, eve = (Discord(channel, guild.add_member(env.create_user(name), roles=[admin])) for name in ("ada", "eve"))
        start.POLL_S = 0.2
        seen["task"] = await ada.command("leaderboard task", leaderboard_name="vectoradd")
        seen["template"] = await ada.command("leaderboard template", leaderboard_name="vectoradd", lang="Python")
        seen["test"] = await ada.submit("test", ADD, "vectoradd")
        seen["benchmark"] = await ada.submit("benchmark", ADD, "vectoradd", gpu="CPU")
        seen["profile"] = await ada.submit("profile", ADD, "vectoradd", gpu="CPU")
        seen["ranked"] = await ada.submit("ranked", SUM, "rows", choice=("CPU", "CPU-2"))
        seen["wrong"] = await eve.submit("ranked", WRONG, "rows", gpu="CPU")
        # Discord does not take the first message.
        env.inject_error("PATCH", "/webhooks/*/messages/@original", status=403)
        seen["hangs"] = await eve.submit("test", HANGS, "rows", gpu="CPU-2")
        seen["edits"] = [
            str(each.json.get("content")) for each in env.http_requests if each.method == "PATCH" and each.json
        ]
        seen["get-submission"] = await ada.command("leaderboard get-submission", submission_id=4)
        seen["list"] = await ada.command("leaderboard list")
        seen["show"] = await ada.command("leaderboard show", leaderboard_name="rows", choice=("CPU", "CPU-2"))
        seen["show-personal"] = await ada.command("leaderboard show-personal", leaderboard_name="rows", choice=("CPU",))
        seen["twice"] = await eve.submit("test", SUM, "rows", gpu="CPU,CPU")
        await ada.command("admin stop")
        seen["stopped"] = await eve.submit("test", SUM, "rows", gpu="CPU")
        await ada.command("admin start")
        with psycopg.connect(URL, autocommit=True) as connection:
            connection.execute("SELECT runner.set_demand('rows', 'measured')")
            seen["unranked"] = await ada.submit("ranked", SUM, "rows", gpu="CPU")
            connection.execute("SELECT runner.set_demand('rows', 'claimed')")
            # The bot looks once and again when the clock is moved: after the fifteen minutes of a command's token.
            start.POLL_S = 2 * PATIENCE_S
            seen["no host"] = await eve.submit("ranked", ADD, "nowhere")
            start.env.DATABASE_URL, url = "host=/nowhere", start.env.DATABASE_URL
            seen["outage"] = await eve.new_texts(env.advance_time(start.POLL_S))
            start.env.DATABASE_URL = url
            connection.execute("SELECT runner.cancel(max(id)) FROM leaderboard.submission")
            seen["late"] = await eve.submit("ranked", ADD, "vectoradd")
            wait_until(lambda: connection.execute(DONE).fetchone() == (True,), "the ranked run is over")
            seen["late"] |= {"threads": await eve.new_texts(env.advance_time(start.POLL_S))}
            (seen["submissions"],) = connection.execute("SELECT max(id) FROM leaderboard.submission").fetchone() or (0,)
            for name, statement in REFUSALS.items():
                connection.execute(statement)
                seen[name] = await eve.submit("test", ADD, "nowhere")
        seen["queue"] = dataclasses.asdict(await env.bot.backend.get_runner_queue_status("cpu-2"))
        seen["errors"] = [repr(each) for each in env.errors]
    return seen


if __name__ == "__main__":
    if sys.argv[1] == "board":
        make_board()
    elif sys.argv[1] == "tasks":
        sys.stdout.write(json.dumps(stored_tasks(Path(sys.argv[2]))) + "\n")
    else:
        sys.stdout.write(json.dumps(asyncio.run(play_users())) + "\n")
