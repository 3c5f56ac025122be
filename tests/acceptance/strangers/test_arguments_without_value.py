"""Every optional argument of every tool as null and as an empty text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from mcp import Client

from runner.extras.mcp.gateway import Gateway
from runner.extras.mcp.server import build
from tests.support.ports import free_port

pytestmark = pytest.mark.anyio

#: A value of each required argument.
GIVEN: Final[dict[str, Any]] = {
    "leaderboard": "vectoradd",
    "gpu_type": "CPU",
    "mode": "test",
    "name": "reference.py",
    "submission_id": 1,
}


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of coroutine tests."""
    return "asyncio"


async def test_an_argument_without_a_value_is_as_one_that_is_absent(tmp_path: Path) -> None:
    """A call comes as far as the gateway, which is not there."""
    (tmp_path / "fast.py").write_text("def custom_kernel(data):\n    return data\n", encoding="utf-8")
    server = build(Gateway(url=f"http://127.0.0.1:{free_port()}", token="x"), [tmp_path])
    tried = 0
    async with Client(server) as client:
        for tool in (await client.list_tools()).tools:
            schema = tool.input_schema
            given = {name: GIVEN[name] for name in schema.get("required", ())}
            # Of submit one of two is needed; get_result would wait for the gateway.
            ways: tuple[dict[str, object], ...] = ({},)
            if tool.name == "submit":
                ways = ({"source": "x = 1"}, {"path": "fast.py"})
            elif tool.name == "get_result":
                ways = ({"wait_s": 0},)
            for way in ways:
                optional = schema["properties"].keys() - given.keys() - way.keys()
                for empty in (None, ""):
                    answer = await client.call_tool(tool.name, {**given, **way, **dict.fromkeys(optional, empty)})
                    text = "".join(block.text for block in answer.content if block.type == "text")
                    assert "gives no answer" in text, (tool.name, empty)
                    tried += len(optional)
    assert tried > 20


async def test_a_required_argument_is_not_dropped(tmp_path: Path) -> None:
    """An empty name is an error of its own."""
    async with Client(build(Gateway(url="http://127.0.0.1", token=None), [tmp_path])) as client:
        answer = await client.call_tool("read_leaderboard", {"leaderboard": ""})
        assert "There is nothing of the name ''" in str(answer.content)
