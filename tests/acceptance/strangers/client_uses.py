"""Unusual uses of a client: `python -m tests.acceptance.strangers.client_uses URL USE...`.

Each runs in a process of its own, to its end. Prints for each its name, and `works` or the sentence of the error.
Where a call is to wait, it is for an H100, which no daemon serves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

from runner.extras.trainers.client import AsyncClient, Client, ClientHomeError, Item
from runner.extras.trainers.client.adapters import trl_reward

_ITEM = Item(reference="class Model: pass", candidate="class ModelNew: pass")
_RIGHT = [2.0]


def _check(rewards: list[float | None]) -> str:
    return "works" if rewards == _RIGHT else f"found {rewards}"


def _said(function: Callable[[], object]) -> str:
    """What a use comes to."""
    try:
        found = function()
    except ClientHomeError as error:
        return str(error)
    return found if isinstance(found, str) else f"found {found!r}"


def _in_child(function: Callable[[], object]) -> str:
    """What a use comes to in a fork of this process."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writes, _said(function).encode())
        except Exception:  # noqa: BLE001 - the fork ends here
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def _sync(url: str, use: Callable[[Client], object]) -> str:
    with Client(url, gpu_type="CPU") as client:
        said = _said(lambda: use(client))
        # Whatever was done to it, the client works where it lives.
        assert _check(client.rewards([_ITEM], "kernelbook@1")) == "works"
    return said


def _rewards(client: Client) -> str:
    return _check(client.rewards([_ITEM], "kernelbook@1"))


async def _rewards_async(client: AsyncClient) -> str:
    return _check(await client.rewards([_ITEM], "kernelbook@1"))


def fork(url: str) -> str:
    """A data loader's worker."""
    return _sync(url, lambda client: _in_child(lambda: _rewards(client)))


def fork_inside_with(url: str) -> str:
    """A child that leaves the block: the parent's connections stay."""

    def leave(client: Client) -> str:
        client.close()
        return "works"

    return _sync(url, lambda client: _in_child(lambda: leave(client)))


def after_block(url: str) -> str:
    """A reward function that outlives the block."""
    with Client(url, gpu_type="CPU") as client:
        reward = trl_reward(client, "kernelbook@1")
    client.close()
    return _said(lambda: reward(completions=["x"], reference=["y"]))


def signal_handler(url: str) -> str:
    """A call in a handler, while another call waits."""
    said = []
    client = Client(url, gpu_type="H100")

    def handle(*_: object) -> None:
        with Client(url, gpu_type="CPU") as other:
            said.append(_said(lambda: _rewards(other)))
        assert client.evaluate([]) == []
        client.close()

    signal.signal(signal.SIGUSR1, handle)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    _said(lambda: client.evaluate([_ITEM]))
    return said[0]


def interrupted(url: str) -> str:
    """Ctrl-C while a call waits; the client still works."""

    def use(client: Client) -> str:
        try:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with Client(url, gpu_type="H100") as other:
                other.evaluate([_ITEM])
        except KeyboardInterrupt:
            return _rewards(client)
        return "no interrupt"

    return _sync(url, use)


def threads(url: str) -> str:
    """Any number of threads."""

    def use(client: Client) -> str:
        said: list[str] = []
        running = [threading.Thread(target=lambda: said.append(_rewards(client))) for _ in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return "works" if said == ["works"] * 8 else str(said)

    return _sync(url, use)


def from_on_progress(url: str) -> str:
    """A call from the client's own thread."""

    def use(client: Client) -> object:
        return client.evaluate([_ITEM], on_progress=lambda *_: client.progress())

    return _sync(url, use)


def second_run_async(url: str) -> str:
    """A second asyncio.run."""
    client = AsyncClient(url, gpu_type="CPU")

    async def begin() -> None:
        await client.__aenter__()
        assert await _rewards_async(client) == "works"

    asyncio.run(begin())
    said = _said(lambda: asyncio.run(_rewards_async(client)))
    asyncio.run(client.close())
    return said


def _beside(url: str, use: Callable[[AsyncClient], str]) -> str:
    """A use in a thread beside the client's running loop."""

    async def main() -> str:
        async with AsyncClient(url, gpu_type="CPU") as client:
            said = await asyncio.to_thread(use, client)
            assert await _rewards_async(client) == "works"
            return said

    return asyncio.run(main())


def other_loop_async(url: str) -> str:
    """A second loop, in a thread."""
    return _beside(url, lambda client: _said(lambda: asyncio.run(_rewards_async(client))))


def fork_async(url: str) -> str:
    """A fork of the loop's process."""
    return _beside(url, lambda client: _in_child(lambda: asyncio.run(_rewards_async(client))))


if __name__ == "__main__":
    for name in sys.argv[2:]:
        sys.stdout.write(f"\n{name}: ")
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            sys.stdout.write(globals()[name](sys.argv[1]))
            sys.exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"{name} failed")
