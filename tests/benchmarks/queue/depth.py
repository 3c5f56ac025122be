"""What a claim costs in a deep queue: a hundred thousand jobs wait, of many users and GPU types.

Measured with nothing else running, each call from its client, commit included.
"""

from __future__ import annotations

from typing import Final

import psycopg

from runner import __version__
from runner.store import HostRecord, Store
from tests.benchmarks.queue import ours
from tests.benchmarks.queue.figures import Figure, latencies, timed_ms
from tests.benchmarks.queue.server import OWN, Server
from tests.support.deep_queue import fill

JOBS: Final = 100_000
USERS: Final = 2000
CLAIMS: Final = 1000
#: Half of them are of the first type.
TYPES: Final = (*ours.TYPES[:1] * len(ours.TYPES), *ours.TYPES[1:])


def measure(server: Server) -> list[Figure]:
    """Claims."""
    url = server.database("depth")
    ours.install(url)
    with psycopg.connect(url, autocommit=True) as connection:
        ours.submit(connection, user="first")
        fill(connection, jobs=JOBS, users=USERS, gpu_types=TYPES)
        connection.execute("ANALYZE")
    server.checkpoint()
    store = Store(url, application_name=OWN)
    try:
        return _claims(store, f"claim with {JOBS} queued")
    finally:
        store.close()


def _claims(store: Store, name: str) -> list[Figure]:
    """One claim after the other, by a host of one GPU type and by one that serves all."""
    figures = []
    for label, types in (("one GPU type", ours.TYPES[:1]), (f"{len(ours.TYPES)} GPU types", ours.TYPES)):
        host = f"probe-{len(types)}"
        _register(store, host, types)
        slots = dict.fromkeys(types, 1)

        def claim(host: str = host, slots: dict[str, int] = slots) -> None:
            claims = store.claim(host=host, slots=slots, lease_s=3600)
            if len(claims.jobs) != 1:
                raise RuntimeError(f"one job of a full queue was to be claimed, not {claims}")

        figures += latencies(f"{name}, {label}", timed_ms(claim, CLAIMS), p99_ms=10)
    return figures


def _register(store: Store, host: str, types: tuple[str, ...]) -> None:
    slots = [{"name": f"slot {name}", "gpu_type": name, "devices": [], "cpus": [0]} for name in types]
    store.register_host(host=HostRecord(name=host, version=__version__, slots=slots, instance=host, gpu_types=types))
