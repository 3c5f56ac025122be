"""What a claim costs in a deep queue: a hundred thousand jobs wait, of many users and GPU types.

Measured with nothing else running, each call from its client, commit included; then again while a snapshot is held that
is older than thousands of jobs that went through, so that their dead rows stay where the next claim looks.
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
CHURN: Final = 40_000
_CHURN: Final = f"""
DO $$
DECLARE
    v_ids bigint[];
BEGIN
    FOR number IN 1 .. {CHURN // 8} LOOP
        SELECT array_agg(c.id) INTO v_ids FROM runner.claim('churn', ARRAY['{ours.TYPES[0]}'], '{{8}}', 3600) AS c;
        COMMIT;
        UPDATE runner.job SET state = 'done', verdict = 'accepted', lease_owner = NULL, lease_expires_at = NULL,
            finished_at = now() WHERE id = ANY (v_ids);
        COMMIT;
    END LOOP;
END
$$
"""  # noqa: S608 - words of ours


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
        figures = _claims(store, f"claim with {JOBS} queued")
        with psycopg.connect(url) as snapshot:
            snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            snapshot.execute("SELECT count(*) FROM runner.job")
            _churn(url)
            figures += _claims(store, f"the same behind a snapshot {CHURN} jobs old", p99_ms=25)
            # As two minutes do it, twice.
            for _ in range(2):
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("UPDATE runner.sweep SET swept_at = '-infinity'")
                store.reclaim()
            figures += _claims(store, "the same four minutes later", p99_ms=25)
    finally:
        store.close()
    return figures


def _claims(store: Store, name: str, *, p99_ms: float = 10) -> list[Figure]:
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

        figures += latencies(f"{name}, {label}", timed_ms(claim, CLAIMS), p99_ms=p99_ms)
    return figures


def _register(store: Store, host: str, types: tuple[str, ...]) -> None:
    slots = [{"name": f"slot {name}", "gpu_type": name, "devices": [], "cpus": [0]} for name in types]
    store.register_host(host=HostRecord(name=host, version=__version__, slots=slots, instance=host, gpu_types=types))


def _churn(url: str) -> None:
    """Let hosts claim and end many jobs, eight at a time, each in its own transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(_CHURN.encode())
