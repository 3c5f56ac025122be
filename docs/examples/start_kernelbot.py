"""KernelBot on kernel-runner's queue: starts the Discord bot and the API of an unmodified checkout.

    PYTHONPATH=KERNELBOT/src:KERNELBOT/src/kernelbot python start_kernelbot.py

It takes KernelBot's environment variables and arguments (`--api-only`, `--debug`). Submissions go to `runner.submit`;
daemons evaluate them and write their rows; this program follows `runner.status` and lets KernelBot report
`runner.result`. Stop it at any time: what waits or runs goes on.
"""

import asyncio
import base64
import dataclasses
import importlib
import io
import logging
import os
import sys
import zipfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from enum import Enum
from types import ModuleType
from typing import Any

import discord
import psycopg
from kernelbot import discord_utils
from kernelbot.discord_reporter import MultiProgressReporterDiscord
from kernelbot.env import env
from kernelbot_manager import QueueManager
from libkernelbot import consts, submission
from libkernelbot.backend import KernelBackend
from libkernelbot.launchers import Launcher, RunnerQueueStatus
from libkernelbot.run_eval import CompileResult, EvalResult, FullResult, ProfileResult, RunResult, SystemInfo
from libkernelbot.utils import KernelBotError, limit_length
from psycopg.rows import dict_row

NAME = "kernel-runner"
ENDED = ("done", "cancelled")
#: Between two looks at a submission.
POLL_S = 2.0
#: Discord refuses longer messages and larger files.
MESSAGE_CHARS = 1990
FILES_BYTES = 8_000_000
#: Discord takes an answer to a command for fifteen minutes, by its own clock.
ANSWER_TIME = timedelta(minutes=14)

JOB = """
SELECT s.position, s.no_host_since, s.paused, s.retry_reason, s.error AS submission_error, j.*
FROM runner.status AS s, jsonb_to_recordset(s.jobs) AS j (
    id bigint, gpu_type text, secret boolean, state text, phase text, verdict text, attempt integer, error text)
WHERE s.submission_id = %s AND j.gpu_type = %s AND j.secret = %s ORDER BY j.id DESC LIMIT 1"""
RUNS = """
SELECT mode, passed, start_time, end_time, result, compilation, meta, system_info FROM runner.result
WHERE submission_id = %s AND job_id = %s ORDER BY run_id"""
FILES = "SELECT name, data FROM runner.public_profile WHERE submission_id = %s AND gpu_type = %s ORDER BY name"
QUEUE = """
SELECT count(*) FILTER (WHERE j.state = 'queued') AS queued_jobs,
       count(*) FILTER (WHERE j.state = 'running') AS running_jobs,
       (SELECT count(*) FROM runner.host AS h
        WHERE %s = ANY (h.gpu_types) AND h.stopped_at IS NULL AND NOT h.draining
          AND h.last_seen > now() - interval '60 seconds') AS available_runners
FROM runner.job AS j WHERE j.gpu_type = %s AND j.state IN ('queued', 'running')"""
UNRANKED = "SELECT coalesce(unranked, 'its time does not count') FROM runner.status WHERE submission_id = %s"
GPU_TYPES = "SELECT name FROM runner.gpu_type UNION SELECT gpu_type FROM leaderboard.gpu_type ORDER BY 1"

#: The submission that this task follows: KernelBot hands no id to its launchers.
followed: ContextVar[int] = ContextVar("followed")
log = logging.getLogger(NAME)


async def ask(statement: str, *parameters: Any) -> list[dict[str, Any]]:
    """The rows of a statement."""

    def rows() -> list[dict[str, Any]]:
        with psycopg.connect(env.DATABASE_URL, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(statement, parameters).fetchall()

    return await asyncio.to_thread(rows)


@contextmanager
def refusals() -> Iterator[None]:
    """Let KernelBot show what the queue refuses, in the queue's words."""
    try:
        yield
    except psycopg.Error as error:
        if not (error.sqlstate or "").startswith("KR"):
            raise
        code = 429 if error.sqlstate in ("KR013", "KR030") else 400
        raise KernelBotError(f"{error.diag.message_primary}. {error.diag.message_hint or ''}", code=code) from error


class QueueBackend(KernelBackend):
    """KernelBot's backend, but daemons evaluate and write the rows."""

    async def submit_full(self, req: Any, mode: Any, reporter: Any) -> tuple[int, list[FullResult]]:
        """Store a submission, follow it until it is over, report it."""
        code = req.code.encode()
        with refusals():
            (stored,) = await ask(
                "SELECT runner.submit(%s, %s, %s, %s, %s, %s, %s) AS id",
                *(req.leaderboard, str(req.user_id), req.file_name, code, mode.value, req.gpus, req.user_name),
            )
        followed.set(stored["id"])
        modes = {mode: ""}
        if mode == consts.SubmissionMode.LEADERBOARD:
            modes[consts.SubmissionMode.PRIVATE] = " (secret)"
        jobs = [
            self.handle_submission(
                consts.GPU(name=gpu_type, value=gpu_type, runner=NAME),
                reporter.add_run(f"{gpu_type} on {NAME}{suffix}"),
                code=req.code,
                name=req.file_name,
                task=req.task,
                mode=each,
                submission_id=stored["id"],
            )
            for each, suffix in modes.items()
            for gpu_type in req.gpus
        ]
        # A leaderboard may have a type that is newer than this process.
        self.launcher_map |= dict.fromkeys(req.gpus, Queue())
        await reporter.show(f"Submission **{stored['id']}**: `{req.file_name}` for `{req.leaderboard}`")
        return stored["id"], await asyncio.gather(*jobs)

    def _get_arch(self, _gpu_type: Any) -> None:
        """Hosts know their devices."""


class Queue(Launcher):
    """A launcher that launches nothing: it follows a job of the queue."""

    def __init__(self) -> None:
        super().__init__(NAME, consts.ModalGPU)

    async def run_submission(self, config: dict[str, Any], gpu_type: Any, status: Any) -> FullResult:
        """Show a job's progress until it is over; its runs."""
        is_secret = config["mode"] == consts.SubmissionMode.PRIVATE.value
        line = "queued"
        await status.push(line)
        while True:
            try:
                jobs = await ask(JOB, followed.get(), gpu_type.name, is_secret)
                new_line = progress(jobs[0]) if jobs else "deleted"
                result = await result_of(jobs[0] if jobs else None)
            except psycopg.OperationalError:
                new_line, result = "the database does not answer; the submission is kept", None
            if new_line != line:
                line = new_line
                await status.update(line)
            if result is not None:
                return result
            await asyncio.sleep(POLL_S)

    async def get_queue_status(self, gpu_type: Any, _config: Any = None) -> RunnerQueueStatus:
        """How many jobs wait and run, and how many hosts serve them."""
        (counts,) = await ask(QUEUE, gpu_type.name, gpu_type.name)
        if not counts["available_runners"]:
            error = f"no host serves {gpu_type.name} now; submissions wait for one"
            counts |= {"status": "unavailable", "error": error}
        return RunnerQueueStatus(NAME, gpu_type.name, **counts)


def progress(job: dict[str, Any]) -> str:
    """A line about a job, for its user."""
    if job["state"] in ENDED:
        return limit_length(": ".join(filter(None, (job["verdict"] or job["state"], job["error"]))), 300)
    parts = [job["phase"] or job["state"]]
    if job["state"] == "queued" and not job["secret"]:
        parts += [f"position {job['position']}"] if job["position"] else []
        if job["no_host_since"]:
            parts.append(f"no host has served {job['gpu_type']} since <t:{int(job['no_host_since'].timestamp())}:f>")
        parts += [f"paused: {job['paused']}"] if job["paused"] else []
    parts += [f"tried again after {job['retry_reason']}"] if job["retry_reason"] else []
    return limit_length("; ".join(parts), 300)


async def result_of(job: dict[str, Any] | None) -> FullResult | None:
    """The runs of a job that is over, or why there are none; None while it waits or runs."""
    if job is None:
        return FullResult(success=False, error="an administrator has deleted the submission", system=SystemInfo())
    if job["state"] not in ENDED:
        return None
    if job["secret"] and job["attempt"] == 0:
        return FullResult(success=False, error="not run, since the public run was not accepted", system=SystemInfo())
    runs = await ask(RUNS, followed.get(), job["id"])
    if not runs or job["verdict"] == "internal_error":
        error = job["error"] or job["submission_error"] or "there is no result"
        return FullResult(success=False, error=limit_length(error, 300), system=SystemInfo())
    files = await ask(FILES, followed.get(), job["gpu_type"])
    system = record(SystemInfo, runs[0]["system_info"] or {})
    return FullResult(success=True, error="", system=system, runs={run["mode"]: evaluation(run, files) for run in runs})


def evaluation(run: dict[str, Any], files: list[dict[str, Any]]) -> EvalResult:
    """One run; of a secret one there is only whether it has passed."""
    exit_code = consts.ExitCode.SUCCESS if run["passed"] else consts.ExitCode.VALIDATE_FAIL
    hidden = {"success": True, "command": "", "stdout": "", "stderr": "", "exit_code": exit_code, "duration": 0.0}
    return EvalResult(
        start=run["start_time"],
        end=run["end_time"],
        compilation=run["compilation"] and record(CompileResult, run["compilation"]),
        run=record(RunResult, hidden | (run["meta"] or {}), passed=run["passed"], result=run["result"] or {}),
        profile=profile(run, files) if run["mode"].startswith("profile") else None,
    )


def profile(run: dict[str, Any], files: list[dict[str, Any]]) -> ProfileResult:
    """The report of a benchmark, and its files as far as Discord takes them."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("report.txt", base64.b64decode((run["result"] or {}).get("benchmark.0.report", "")))
        for file in files:
            if file["name"].startswith(f"{run['mode']}.") and content.tell() + len(file["data"]) < FILES_BYTES:
                archive.writestr(file["name"], file["data"])
    return ProfileResult(NAME, base64.b64encode(content.getvalue()).decode(), None)


def record(kind: Any, values: dict[str, Any], **more: Any) -> Any:
    """A record of KernelBot's, from those values that it has a field for."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names}, **more)


class Manager(QueueManager):
    """The manager of the API's submissions."""

    async def enqueue(self, req: Any, mode: Any, sub_id: int) -> tuple[int, int]:
        """Add the jobs of a submission that the API has stored."""
        with refusals():
            return await super().enqueue(req, mode, sub_id)


async def reply(
    interaction: Any, by_token: Callable[[], Awaitable[Any]], in_thread: Callable[[dict[str, Any]], Awaitable[Any]]
) -> Any:
    """Answer a command; when its time is over, in a thread with its user."""
    if discord.utils.utcnow() < interaction.created_at + ANSWER_TIME:
        return await by_token()
    async with interaction.extras.setdefault("lock", asyncio.Lock()):
        if "thread" not in interaction.extras:
            thread = await interaction.channel.create_thread(
                name=f"{interaction.user.name}'s submission", type=discord.ChannelType.private_thread
            )
            await thread.add_user(interaction.user)
            interaction.extras["thread"] = thread
        return await in_thread(interaction.extras)


async def show_progress(reporter: Any) -> None:
    """In place of `MultiProgressReporterDiscord._update_message`."""
    text = limit_length(reporter.make_message(), MESSAGE_CHARS)

    async def in_thread(extras: dict[str, Any]) -> None:
        if "message" in extras:
            await extras["message"].edit(content=text)
        else:
            # It may hold words of the submission.
            extras["message"] = await extras["thread"].send(text, allowed_mentions=discord.AllowedMentions.none())

    edit = reporter.interaction.edit_original_response
    try:
        await reply(reporter.interaction, lambda: edit(content=text, view=None), in_thread)
    except discord.HTTPException as error:
        # What follows the queue goes on to the report.
        log.warning("Discord refused progress for %s: %s", reporter.interaction.user, error)


def kernelbot() -> ModuleType:
    """KernelBot's main module, on the queue."""
    if not env.DISABLE_SSL:
        # As KernelBot's own connections have it.
        os.environ.setdefault("PGSSLMODE", "require")
    with psycopg.connect(env.DATABASE_URL) as connection:
        names = [name for (name,) in connection.execute(GPU_TYPES)]
    # A command offers at most 25 choices.
    consts.ModalGPU = Enum("ModalGPU", {name: name for name in names[:25]})
    consts.GitHubGPU = Enum("GitHubGPU", {})
    consts._GPU_LOOKUP = {name.lower(): consts.GPU(name, name, NAME) for name in names}  # noqa: SLF001 - no other way

    send, verdict_of = discord_utils.send_discord_message, submission.generate_run_verdict

    async def send_discord_message(interaction: Any, msg: str, *, ephemeral: bool = False, **more: Any) -> None:
        by_token = lambda: send(interaction, msg, ephemeral=ephemeral, **more)  # noqa: E731 - as its neighbour
        await reply(interaction, by_token, lambda extras: extras["thread"].send(msg, **more))

    def generate_run_verdict(backend: Any, run: Any, sub_data: Any) -> str:
        if run["score"] is not None:
            return str(verdict_of(backend, run, sub_data))
        with psycopg.connect(env.DATABASE_URL) as connection:
            (reason,) = connection.execute(UNRANKED, [sub_data["submission_id"]]).fetchone()
        return f"> Not ranked on {run['runner']}: {reason}"

    # Before the modules of commands are imported, which take these names over.
    discord_utils.send_discord_message = send_discord_message
    submission.generate_run_verdict = generate_run_verdict
    MultiProgressReporterDiscord._update_message = show_progress  # noqa: SLF001 - no other way

    def create_backend(debug_mode: bool = False) -> QueueBackend:  # noqa: FBT001, FBT002 - as KernelBot calls it
        backend = QueueBackend(env=env, debug_mode=debug_mode)
        backend.launcher_map = dict.fromkeys(names, Queue())
        return backend

    main = importlib.import_module("main")
    main.create_backend = create_backend
    main.BackgroundSubmissionManager = lambda _backend: Manager(env.DATABASE_URL)
    return main


if __name__ == "__main__":
    # KernelBot asks for them at its start.
    for variable in ("GITHUB_TOKEN", "GITHUB_REPO"):
        os.environ.setdefault(variable, "unused")
    if not env.DATABASE_URL:
        sys.exit(
            "start_kernelbot.py: DATABASE_URL is not set: name the database that KernelBot and kernel-runner share"
        )
    try:
        main_module = kernelbot()
    except psycopg.Error as error:
        reason = str(error).splitlines()[0]
        sys.exit(f"start_kernelbot.py: {reason}; `kernel-runner migrate --roles` makes the queue and its rights")
    main_module.main()
