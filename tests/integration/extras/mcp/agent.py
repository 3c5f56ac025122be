"""An agent that knows only what `tools/list` and earlier answers say, on the official client over stdio."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.types import ListRootsResult, Root, Tool
from pydantic import FileUrl

from tests.plugins.live import ROOT
from tests.support.waiting import PATIENCE_S


@dataclass(kw_only=True)
class Agent:
    """One session."""

    client: Client
    tools: dict[str, Tool]
    #: The newest value of each key of all answers: what a required argument is taken from.
    seen: dict[str, Any] = field(default_factory=dict)
    progress: list[str] = field(default_factory=list)
    #: Called at each notification of progress.
    on_progress: Callable[[], None] | None = None
    #: Characters of what a model would have read.
    read: int = 0

    async def call(self, tool: str, **given: object) -> Any:  # noqa: ANN401 - a tool's answer
        """A tool's structured answer; required arguments that are not given are known from earlier answers."""
        schema = self.tools[tool].input_schema
        lacking = [name for name in schema.get("required", ()) if name not in given]
        arguments = {**{name: self.seen[name] for name in lacking}, **given}
        assert arguments.keys() <= schema["properties"].keys()

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append(message or "")
            if self.on_progress is not None:
                self.on_progress()

        answer = await self.client.call_tool(tool, arguments, progress_callback=tell)
        text = "".join(block.text for block in answer.content if block.type == "text")
        self.read += len(text)
        assert not answer.is_error, text
        assert json.loads(text) == answer.structured_content
        self._learn(answer.structured_content)
        return answer.structured_content

    async def refusal(self, tool: str, **arguments: object) -> str:
        """The sentence of a call that fails."""
        answer = await self.client.call_tool(tool, arguments)
        text = "".join(block.text for block in answer.content if block.type == "text")
        assert answer.is_error, text
        return text

    async def result(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The end of a submission, as its answers say to ask for it."""
        while answer["state"] == "waiting":
            assert "get_result(" in answer["next"]
            answer = await self.call("get_result", submission_id=answer["submission_id"])
        return answer

    def _learn(self, value: object) -> None:
        if isinstance(value, dict):
            # The nearest to the top, and the first of a list, is what a reader takes.
            for each in reversed(value.values()):
                self._learn(each)
            self.seen |= value
        elif isinstance(value, list):
            for each in reversed(value):
                self._learn(each)


@asynccontextmanager
async def agent(
    *,
    url: str | None,
    token: str | None,
    home: Path,
    roots: Sequence[Path] | None = None,
    mode: str = "auto",
    arguments: Sequence[str] = (),
) -> AsyncIterator[Agent]:
    """A session with a server that is started as clients start it. `mode`: how the protocol's version is agreed on."""

    async def folders(context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl(folder.as_uri())) for folder in roots or ()])

    settings = {"POPCORN_API_URL": url, "POPCORN_CLI_ID": token, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "runner.cli", "mcp", *arguments],
        env={"PATH": os.environ["PATH"], **{key: value for key, value in settings.items() if value is not None}},
        cwd=home,
    )
    callback = None if roots is None else folders
    async with Client(server, list_roots_callback=callback, mode=mode, read_timeout_seconds=PATIENCE_S) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        yield Agent(client=client, tools=tools)
