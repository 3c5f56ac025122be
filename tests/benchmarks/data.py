"""The data export beside the ways in which the same rows were exported before.

    python -m tests.benchmarks.data --mb 300 --users 2000

Makes a leaderboard with so much code in a database of its own, and exports it with each way in a process of its own.
Our export writes more than the others: rows without code, runs, code by hash, and the manifest. Prints seconds, the
ratio to the fastest other way, and the peak of resident memory, for the export that follows one new submission too.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg

_CODE_BYTES: Final = 11_000
#: What the others run: the flat rows with code as text.
_ROWS: Final = """
SELECT d.submission_id, d.leaderboard_id, d.problem_name, d.user_id, d.user_name, d.code_id, d.file_name,
       d.submission_time, d.status, d.score, d.passed, d.mode, d.runner, {code} AS code
FROM runner.dataset_submissions d JOIN leaderboard.code_files c ON c.id = d.code_id
ORDER BY d.problem_name, d.score, d.submission_time, d.submission_id, d.runner
"""


def ours(url: str, target: Path) -> None:
    """The command's own function."""
    from runner.data.export import Options, export

    export(url, Options(target=target, private=True), lambda _stage, _done, _total: None)


def read_sql(url: str, target: Path) -> None:
    """pandas.read_sql and to_parquet."""
    import warnings

    import pandas as pd

    warnings.simplefilter("ignore")
    with psycopg.connect(url) as connection:
        rows = pd.read_sql(_ROWS.format(code="convert_from(c.code, 'UTF8')"), connection)
    rows.to_parquet(target, index=False, compression="zstd")


def from_pylist(url: str, target: Path) -> None:
    """All rows as dictionaries, one Arrow table, one write."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from psycopg.rows import dict_row

    with psycopg.connect(url, row_factory=dict_row) as connection:
        rows = connection.execute(_ROWS.format(code="convert_from(c.code, 'UTF8')").encode()).fetchall()
    pq.write_table(pa.Table.from_pylist(rows), target, compression="snappy")


def streamed(url: str, target: Path) -> None:
    """A server-side binary cursor into a ParquetWriter: the flat file alone, without checks, hashes or decoding."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with psycopg.connect(url) as connection, connection.cursor("rows") as cursor:
        cursor.execute(_ROWS.format(code="c.code").encode(), binary=True)
        writer = None
        while rows := cursor.fetchmany(1000):
            columns = [description.name for description in cursor.description or ()]
            table = pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))
            writer = writer or pq.ParquetWriter(target, table.schema, compression="zstd", use_dictionary=columns[:-1])
            writer.write_table(table.cast(writer.schema))
        if writer is not None:
            writer.close()


WAYS: Final = {"ours": ours, "pandas.read_sql": read_sql, "psycopg from_pylist": from_pylist, "streamed": streamed}


def programs(count: int, size: int, chance: random.Random) -> Iterator[bytes]:
    """Different texts that compress about as well as programs do."""
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz_", k=chance.randint(2, 12))) for _ in range(4000)]
    lines = [
        "    " * chance.randint(0, 4) + " ".join(chance.choices(words, k=chance.randint(2, 9))) + "\n"
        for _ in range(6000)
    ]
    mean = sum(map(len, lines)) / len(lines)
    for number in range(count):
        length = max(1, int(chance.expovariate(1 / size) / mean) + 1)
        yield (f"# {number}\n" + "".join(chance.choices(lines, k=length))).encode()[:1_000_000]


def fill(url: str, *, mb: int, users: int) -> int:
    """Make a leaderboard with so many megabytes of code; every second submission ranks. Returns the submissions."""
    chance = random.Random(1)  # noqa: S311 - the same data each time
    count = max(1, mb * 1_000_000 // _CODE_BYTES)
    with psycopg.connect(url) as db:
        db.execute(
            "INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, description) VALUES"
            """ ('bench', '2025-12-01Z', '{"lang": "py", "ranking_by": "geom"}', 0, '')"""
        )
        db.execute(
            "INSERT INTO leaderboard.user_info (id, user_name)"
            " SELECT n::text, 'user ' || n FROM generate_series(1, %s) n",
            (users,),
        )
        with db.cursor().copy("COPY leaderboard.code_files (code) FROM STDIN") as copy:
            for code in programs(count, _CODE_BYTES, chance):
                copy.write_row((code,))
        add(db, 1, count, users)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM ANALYZE")
    return count


def add(db: psycopg.Connection[Any], first: int, last: int, users: int) -> None:
    """A submission for each of these codes, with runs."""
    db.execute(
        "INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done,"
        " mode_category) SELECT 1, 'submission.py', 1 + n * 7919 %% %(users)s::int, n, '2025-06-01Z'::timestamptz"
        " + n * interval '1 minute', true, 'leaderboard' FROM generate_series(%(first)s::int, %(last)s::int) n",
        {"users": users, "first": first, "last": last},
    )
    db.execute(
        "INSERT INTO leaderboard.submission_job_status (submission_id, status) SELECT id, 'succeeded'"
        " FROM leaderboard.submission WHERE code_id BETWEEN %s AND %s",
        (first, last),
    )
    result = json.dumps(
        {
            "benchmark-count": "2",
            **{
                f"benchmark.{case}.{key}": value
                for case in range(2)
                for key, value in {
                    "spec": "m: 4096; n: 7168; seed: 1111",
                    "runs": "100",
                    "mean": "25000.5",
                    "std": "12.25",
                    "best": "24900",
                    "worst": "26000",
                    "err": "1.2",
                }.items()
            },
        }
    )
    db.execute(
        "INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, meta,"
        " result, system_info) SELECT s.id, s.submission_time + interval '5 s', s.submission_time + interval '25 s',"
        " r.mode, r.secret, 'B200', CASE WHEN r.mode = 'leaderboard' THEN 0.0000250005 END, true,"
        """ '{"duration": 12.5, "stdout": "", "stderr": ""}', %s,"""
        """ '{"gpu": "NVIDIA B200", "torch": "2.9", "runtime": "CUDA", "hostname": "node"}'"""
        " FROM leaderboard.submission s, (VALUES ('test', false), ('benchmark', false), ('leaderboard', false),"
        " ('leaderboard', true)) AS r (mode, secret) WHERE s.code_id BETWEEN %s AND %s"
        " AND (s.code_id %% 2 = 0 OR r.mode = 'test')",
        (result, first, last),
    )


def measured(way: str, url: str, target: Path) -> tuple[float, float]:
    """Seconds and peak MiB of a process that exports."""
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "tests.benchmarks.data", "--way", way, "--url", url, "--to", str(target)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - began_s, int(done.stdout) / 1024


def peak_kib() -> int:
    """The peak of this process's resident memory. getrusage would count what its parent had when it was started."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel does not say how much memory was resident")


def main(*, mb: int = 100, users: int = 2000, folder: Path | None = None) -> None:
    """Print a line per way."""
    # Not above: the ways are measured in processes of this module.
    from runner.store import migrate
    from tests.plugins.postgres import embedded_server

    with embedded_server({}) as server, tempfile.TemporaryDirectory(dir=folder) as scratch:
        migrate(server)
        count = fill(server, mb=mb, users=users)
        print(f"{count} submissions of {users} users, about {mb} MB of code")
        found: dict[str, tuple[float, float]] = {}
        for way in WAYS:
            found[way] = measured(way, server, Path(scratch) / way.replace(" ", "_"))
        with psycopg.connect(server) as db:
            db.execute("INSERT INTO leaderboard.code_files (code) VALUES ('# one more')")
            add(db, count + 1, count + 1, users)
        found["ours, one new submission"] = measured("ours", server, Path(scratch) / "ours")
        fastest_s = min(took_s for way, (took_s, _) in found.items() if not way.startswith("ours"))
        print(f"{'way':28} {'s':>8} {'of fastest other':>17} {'of ours':>8} {'peak MiB':>9}")
        for way, (took_s, peak_mib) in found.items():
            print(
                f"{way:28} {took_s:8.2f} {took_s / fastest_s:17.2f} {took_s / found['ours'][0]:8.2f} {peak_mib:9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=100, help="megabytes of code")
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where the exports are written; default: the temporary folder")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--url")
    parser.add_argument("--to", type=Path)
    given = parser.parse_args()
    if given.way:
        WAYS[given.way](given.url, given.to)
        print(peak_kib())
    else:
        main(mb=given.mb, users=given.users, folder=given.folder)
