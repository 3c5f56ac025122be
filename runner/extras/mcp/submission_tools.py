"""Tools for a user's submissions. A model reads their docstrings and the descriptions of their arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote, urlsplit

import anyio
from mcp.server.mcpserver import Context, ListRoots, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ListRootsResult
from pydantic import Field

from runner.extras.mcp import reading
from runner.extras.mcp.answers import Cancelled, Comparison, Result, Submissions, Text
from runner.extras.mcp.board_tools import GpuType, Leaderboard, Offset
from runner.extras.mcp.gateway import AwayError, Gateway

Mode = Annotated[
    Literal["test", "benchmark", "leaderboard", "profile"],
    Field(
        description="test: is it right; benchmark: how fast, too; leaderboard: ranked; profile: where the time goes."
    ),
]
SubmissionId = Annotated[int, Field(ge=1, description="From submit or my_submissions.")]
#: By default less than a minute, after which many clients give up a call.
WaitS = Annotated[float, Field(ge=0, le=3600, description="Answer after this many seconds even if it is not over.")]

_MOST_BYTES: Final = 1_000_000
_ENDINGS: Final = (".py", ".cu", ".cuh", ".cpp")
#: Characters of a file's name.
_NAME: Final = 255
#: Lines of a page of the gateway, and pages that a search for the best submission reads.
_PAGE: Final = 50
_PAGES: Final = 20


async def client_roots(context: Context[Any, Any], path: str | None) -> ListRoots | ListRootsResult:
    """The client's folders; none where it names none, or where no file is to be read."""
    capabilities = context.client_capabilities
    if path is None or capabilities is None or capabilities.roots is None:
        return ListRootsResult(roots=[])
    return ListRoots()


@dataclass(frozen=True, kw_only=True)
class SubmissionTools:
    """What a user can do with submissions."""

    gateway: Gateway
    #: Where files may be read from, for a client that names no roots.
    folders: Sequence[Path]

    async def submit(  # noqa: PLR0917 - a tool's arguments have names
        self,
        context: Context[Any, Any],
        roots: Annotated[ListRootsResult, Resolve(client_roots)],
        leaderboard: Leaderboard,
        gpu_type: GpuType,
        mode: Mode,
        source: Annotated[str | None, Field(description="The whole file. Give this or path.")] = None,
        path: Annotated[str | None, Field(description="A file in your workspace.")] = None,
        file_name: Annotated[str, Field(description="Of source: ends in .py or .cu.")] = "submission.py",
        wait_s: WaitS = 50,
        *,
        stop_with_call: Annotated[
            bool, Field(description="Cancelling this call stops the submission, too; else it goes on.")
        ] = False,
    ) -> Result:
        """Submit a kernel, wait, and read what came of it: verdict, what differs, times, what to do next."""
        name, code = _code(source, path, file_name, folders=_folders(roots) or self.folders)
        submission_id = await self._send((leaderboard, gpu_type, mode), name, code)
        try:
            return await self._wait(context, submission_id, wait_s)
        except asyncio.CancelledError:
            if stop_with_call:
                with anyio.CancelScope(shield=True):
                    await self.cancel(submission_id)
            raise

    async def get_result(self, context: Context[Any, Any], submission_id: SubmissionId, wait_s: WaitS = 50) -> Result:
        """Wait until a submission is over and read what came of it. wait_s=0 only looks."""
        return await self._wait(context, submission_id, wait_s)

    async def cancel(self, submission_id: SubmissionId) -> Cancelled:
        """Stop a submission that waits or runs."""
        await self.gateway.change("user", "submissions", submission_id, "cancel")
        progress = (await self._view(submission_id))["progress"]
        return Cancelled(
            submission_id=submission_id,
            state=progress["text"] if progress["done"] else "stopping",
            next="" if progress["done"] else "A run takes some seconds to stop; get_result says when it has.",
        )

    async def compare(
        self,
        submission_id: SubmissionId,
        with_submission_id: Annotated[
            int | None, Field(ge=1, description="By default your fastest other ranked one.")
        ] = None,
        gpu_type: str | None = None,
    ) -> Comparison:
        """Compare the times of two of your submissions case by case: faster, slower, or cannot be told."""
        page = await self._view(submission_id)
        this = reading.timed_cases(page, gpu_type)
        if this is None:
            where = "" if gpu_type is None else f" on {gpu_type}"
            raise ToolError(
                f"Submission {submission_id} has no times{where}: submit it in mode benchmark or leaderboard."
            )
        gpu, board = this.gpu_type, page["submission"]["leaderboard_name"]
        other_id = with_submission_id
        if other_id is None:
            other_id = await self._best(board, gpu, submission_id)
        other_page = await self._view(other_id)
        other_board = other_page["submission"]["leaderboard_name"]
        if other_board != board:
            raise ToolError(f"Submission {other_id} is to {other_board}, not to {board}: name one to {board}.")
        other = reading.timed_cases(other_page, gpu)
        if other is None:
            raise ToolError(f"Submission {other_id} has no times on {gpu}: name one in mode benchmark or leaderboard.")
        return reading.comparison(this, other)

    async def my_submissions(
        self,
        leaderboard: Annotated[str | None, Field(description="Only those to this one.")] = None,
        offset: Offset = 0,
    ) -> Submissions:
        """List your submissions, the newest first."""
        page = await self._mine(leaderboard, None, offset)
        return Submissions(
            submissions=[reading.mine(row, page["states"].get(str(row["id"]))) for row in page["lines"]],
            next_offset=offset + page["size"] if page["more"] else None,
        )

    async def read_submission_file(
        self,
        submission_id: SubmissionId,
        name: Annotated[str, Field(description="One of `files` of get_result.")],
        offset: Offset = 0,
    ) -> Text:
        """Read more of a submission: its source, what it printed, or a profile."""
        page = await self._view(submission_id)
        names = reading.submission_files(page)
        if name not in names:
            raise ToolError(f"Submission {submission_id} has no file {name!r}; it has: {', '.join(names)}.")
        return reading.part(await self._content(submission_id, page, name), offset)

    async def _send(self, place: tuple[str, str, str], name: str, code: bytes) -> int:
        """Store a submission for `place`: leaderboard, GPU type, mode; its id."""
        try:
            answer = await self.gateway.change("submission", *place, file=(name, code))
        except AwayError as error:
            if error.unsent:
                raise
            raise ToolError(
                f"{_sentence(error)} It may be stored: look at my_submissions before you submit again."
            ) from error
        return int(answer["details"]["id"])

    async def _wait(self, context: Context[Any, Any], submission_id: int, wait_s: float) -> Result:
        """Wait and read, with notifications of progress."""
        count = 0

        async def tell(text: str) -> None:
            nonlocal count
            count += 1
            await context.report_progress(count, None, f"submission {submission_id}: {text}")

        await self.gateway.follow(submission_id, wait_s=wait_s, tell=tell)
        try:
            return reading.result(await self._view(submission_id), url=self.gateway.url or "")
        except AwayError as error:
            raise ToolError(f"{_sentence(error)} Submission {submission_id} goes on: call get_result later.") from error

    async def _view(self, submission_id: int) -> reading.Json:
        page: reading.Json = await self.gateway.read("view", submission_id, login=True, format="json")
        return page

    async def _mine(self, leaderboard: str | None, gpu_type: str | None, offset: int) -> reading.Json:
        page: reading.Json = await self.gateway.read(
            "mine", login=True, format="json", leaderboard=leaderboard, gpu_type=gpu_type, offset=offset
        )
        return page

    async def _best(self, board: str, gpu_type: str, submission_id: int) -> int:
        """The user's fastest other ranked submission.

        Raises:
            ToolError: there is none.
        """
        scores: dict[int, float] = {}
        for number_of in range(_PAGES):
            page = await self._mine(board, gpu_type, number_of * _PAGE)
            scores |= reading.scores(page["lines"], gpu_type)
            if not page["more"]:
                break
        scores.pop(submission_id, None)
        if not scores:
            raise ToolError(
                f"You have no other ranked submission to {board} on {gpu_type}: name one in mode benchmark as "
                "with_submission_id; my_submissions lists them."
            )
        return min(scores, key=lambda each: scores[each])

    async def _content(self, submission_id: int, page: reading.Json, name: str) -> str:
        """One of the files that `reading.submission_files` names."""
        if name == reading.SOURCE:
            return await self.gateway.text("view", submission_id, "code", login=True)
        if name.startswith(reading.PROFILE):
            _, gpu_type, file = name.split("/", 2)
            return await self.gateway.text("view", submission_id, "profile", gpu_type, file, login=True)
        # The page has the end of what was printed; the record for programs has all of it.
        detail = await self.gateway.read("user", "submissions", submission_id, login=True)
        return reading.printed(page, detail, name)


def _sentence(error: AwayError) -> str:
    return f"{str(error).rstrip('.')}."


def _folders(roots: ListRootsResult) -> list[Path]:
    urls = [urlsplit(str(root.uri)) for root in roots.roots]
    return [Path(unquote(url.path)) for url in urls if url.scheme == "file"]


def _code(source: str | None, path: str | None, file_name: str, *, folders: Sequence[Path]) -> tuple[str, bytes]:
    """Name and bytes of what is submitted.

    Raises:
        ToolError: it is not given once, or may not be read.
    """
    if path is None:
        if source is None:
            raise ToolError("Nothing to submit: give source, the whole text of the file, or path.")
        return _kernel_name(file_name), source.encode("utf-8", "replace")
    if source is not None:
        raise ToolError("Give source or path, not both.")
    try:
        names = ", ".join(str(folder.absolute()) for folder in folders)
        places = [(folder / path).resolve() for folder in folders]
        inside = [each for each in places if any(each.is_relative_to(folder.resolve()) for folder in folders)]
        if not inside:
            raise ToolError(f"{path!r} is outside of {names}: move it there, or give the text as source.")
        file = next((each for each in inside if each.is_file()), None)
        if file is None:
            raise ToolError(f"There is no file {path!r} in {names}: check the path, or give the text as source.")
        name = _kernel_name(file.name)
        size_bytes = file.stat().st_size
        if size_bytes > _MOST_BYTES:
            raise ToolError(f"{path!r} has {size_bytes:,} bytes, expected at most {_MOST_BYTES:,}.")
        return name, file.read_bytes()
    except OSError as error:
        raise ToolError(f"{path!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ToolError(f"{path!r} is no path: {error}.") from error


def _kernel_name(name: str) -> str:
    """A name that a submission may have: no other file of the user's leaves the machine.

    Raises:
        ToolError: it is none.
    """
    if not name.endswith(_ENDINGS) or len(name) > _NAME:
        raise ToolError(f"{name[:_NAME]!r} is no file of a kernel: its name ends in {', '.join(_ENDINGS)}.")
    return name
