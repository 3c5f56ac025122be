"""What a host costs the database while it has nothing to do: statements per second and open connections."""

from __future__ import annotations

import time
from typing import Final

from tests.benchmarks.queue.contenders import contender, peers
from tests.benchmarks.queue.figures import Figure
from tests.benchmarks.queue.pickup import PEER_OPTIONS, SLOTS
from tests.benchmarks.queue.server import Server
from tests.benchmarks.queue.worker import Worker

SETTLE_S: Final = 10.0
WATCH_S: Final = 60.0


def measure(server: Server) -> list[Figure]:
    """One idle worker of each, all at the same time, told apart by their databases' connections."""
    sides = [contender("ours", slots=SLOTS), *(contender(name, **PEER_OPTIONS[name]) for name in peers())]
    workers = []
    urls: dict[str, str] = {}
    statements_s: dict[str, float] = {}
    connections: dict[str, float] = {}
    try:
        for side in sides:
            urls[side.name] = server.database(side.name)
            side.side.install(urls[side.name])
            workers.append(Worker(side.module, url=urls[side.name], **side.options))
            workers[-1].wait_ready()
        time.sleep(SETTLE_S)
        with server.statements() as seen:
            time.sleep(WATCH_S / 2)
            for name, url in urls.items():
                connections[name] = server.connections(url)
            time.sleep(WATCH_S / 2)
    finally:
        for worker in workers:
            worker.__exit__()
    for name, url in urls.items():
        statements_s[name] = seen.to(url) / seen.seconds
        print(f"  {name}: {dict(seen.texts(url))}")
    return [
        Figure(name="idle host, statements", unit="1/s", ours=statements_s.pop("ours"), peers=statements_s, target=0.6),
        Figure(name="idle host, connections", unit="", ours=connections.pop("ours"), peers=connections, target=1),
    ]
