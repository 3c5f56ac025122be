"""The client for coroutines, where several begin at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runner.extras.trainers.client import AsyncClient, Item


def test_a_late_answer_passes_over_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls begin together; the second learns of the batch when the first has results, which still come."""

    async def begin() -> int | None:
        client = AsyncClient("postgresql://nowhere", gpu_type="CPU")
        answers = {"first": asyncio.Event(), "second": asyncio.Event()}
        finished = {"first": 0, "second": 3}

        async def progress(*_: object, **__: object) -> list[dict[str, Any]]:
            name = asyncio.current_task().get_name()  # type: ignore[union-attr]  # a task of these
            await answers[name].wait()
            return [{"finished": finished[name], "items": 3, "batch_id": 1}]

        async def collect() -> None:
            """Look at no results."""

        monkeypatch.setattr(client, "_all", progress)
        monkeypatch.setattr(client, "_collect", collect)
        for name, task in [(name, asyncio.create_task(client._begin(), name=name)) for name in answers]:
            await asyncio.sleep(0)
            answers[name].set()
            await task
        return client._after

    assert asyncio.run(begin()) == 0


def test_a_stream_that_is_cancelled_leaves_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python warns of a task that nobody has ended."""

    async def left() -> int:
        client = AsyncClient("postgresql://nowhere", gpu_type="CPU")
        client.home.open()
        started = asyncio.Event()

        async def submit(*_: object) -> None:
            started.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(client, "_submit", submit)
        call = asyncio.create_task(client.evaluate([Item(reference="r", candidate="c")]))
        await started.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(0)
        return len(asyncio.all_tasks()) - 1

    assert asyncio.run(left()) == 0
