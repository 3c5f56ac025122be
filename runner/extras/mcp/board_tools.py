"""Tools that read leaderboards. A model reads their docstrings and the descriptions of their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from runner.extras.mcp import reading
from runner.extras.mcp.answers import BoardDetails, Boards, Ranking, Text
from runner.extras.mcp.gateway import Gateway

Leaderboard = Annotated[str, Field(description="Its name, from list_leaderboards.")]
GpuType = Annotated[str, Field(description="One of the leaderboard's GPU types.")]
Offset = Annotated[int, Field(ge=0, description="next_offset of the answer before.")]


@dataclass(frozen=True, kw_only=True)
class BoardTools:
    """What can be asked about leaderboards."""

    gateway: Gateway

    async def list_leaderboards(self, *, include_ended: bool = False, offset: Offset = 0) -> Boards:
        """List the open leaderboards: deadline, GPU types, best times. Those by invitation are not listed."""
        page = await self.gateway.read(format="json", offset=offset)
        rows = [row for row in page["boards"] if include_ended or not row["over"]]
        cards = page["cards"]
        # Those that have ended come last.
        more = page["more"] and len(rows) == len(page["boards"])
        return Boards(
            leaderboards=[reading.board(row, cards.get(str(row["id"]), page["no_card"])["standings"]) for row in rows],
            next_offset=offset + page["size"] if more else None,
        )

    async def read_leaderboard(self, leaderboard: Leaderboard, gpu_type: str | None = None) -> BoardDetails:
        """Read a task: description, cases, a template, its files, and the leaders on one GPU type."""
        page = await self.gateway.read("board", leaderboard, format="json", gpu=gpu_type)
        _check_gpu_type(page["board"], gpu_type)
        return reading.board_details(page, await self._task(page["board"]["name"]))

    async def read_leaderboard_file(
        self,
        leaderboard: Leaderboard,
        name: Annotated[str, Field(description="One of `files` of read_leaderboard.")],
        offset: Offset = 0,
    ) -> Text:
        """Read a file of a task: the reference, a template, or a module that a submission may import."""
        page = await self.gateway.read("board", leaderboard, format="json")
        board = page["board"]["name"]
        titles = [title for title, _ in page["sources"]]
        if name in titles:
            return reading.part(await self.gateway.text("board", board, "code", name), offset)
        texts = reading.task_texts(await self._task(board))
        if name not in texts:
            raise ToolError(f"{board} has no file {name!r}; it has: {', '.join([*titles, *texts])}.")
        return reading.part(texts[name], offset)

    async def ranking(self, leaderboard: Leaderboard, gpu_type: GpuType, offset: Offset = 0) -> Ranking:
        """Read the ranking, the fastest first."""
        page = await self.gateway.read("board", leaderboard, format="json", gpu=gpu_type, offset=offset)
        _check_gpu_type(page["board"], gpu_type)
        return Ranking(
            leaderboard=page["board"]["name"],
            gpu_type=page["gpu"],
            places=[reading.place(row) for row in page["places"]],
            next_offset=offset + page["size"] if page["more"] else None,
        )

    async def _task(self, board: str) -> reading.Json:
        """The whole task of a public leaderboard; empty for one by invitation."""
        rows = await self.gateway.read("leaderboards", name=board)
        return next((row["task"] for row in rows), {})


def _check_gpu_type(board: reading.Json, gpu_type: str | None) -> None:
    """The gateway shows another GPU type in place of one that a leaderboard has not.

    Raises:
        ToolError: the leaderboard has not this one.
    """
    names = board["gpus"]
    if gpu_type is not None and gpu_type.lower() not in {name.lower() for name in names}:
        raise ToolError(f"{board['name']} has no GPU type {gpu_type!r}; choose one of: {', '.join(names)}.")
