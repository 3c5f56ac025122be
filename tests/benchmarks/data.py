"""The data export beside the libraries with which the same rows can be exported.

    make bench ARGS="data --mb 300 --users 20000"

Makes a leaderboard with so much code in a database of its own, and exports it with each way in a process of its own.
`--database` takes a database that is empty or was filled by this program, and keeps it.

All other ways write the flat file alone, from a plain query with KernelBot's rule: without unusable scores taken out,
verdicts, flags, runs, code by hash, manifest and hashes. A library that is not installed is left out
(`pip install adbc-driver-postgresql polars psycopg2-binary`).

CPU: seconds of the process and of the server together, which other work on the machine changes less than the time.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psycopg

_CODE_BYTES: Final = 11_000
#: What the others run: KernelBot's rule, with the code as bytes or as text.
_ROWS: Final = """
SELECT e.submission_id::bigint AS submission_id, e.leaderboard_id::bigint AS leaderboard_id, e.problem_name, e.user_id,
       e.user_name, e.code_id::bigint AS code_id, e.file_name, e.submission_time, e.status, e.score, e.passed, e.mode,
       e.runner, {code} AS code
FROM (
    SELECT DISTINCT ON (s.leaderboard_id, s.user_id, s.code_id, r.runner)
           s.id AS submission_id, s.leaderboard_id, l.name AS problem_name, s.user_id,
           coalesce(u.user_name, '') AS user_name, s.code_id, s.file_name, s.submission_time,
           CASE WHEN s.done AND r.passed AND r.score IS NOT NULL THEN 'succeeded'
                WHEN s.done AND t.status = 'succeeded' THEN 'failed'
                ELSE coalesce(t.status::text, s.status) END AS status,
           r.score::float8 AS score, r.passed, r.mode, r.runner
    FROM leaderboard.submission s
    JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
    LEFT JOIN leaderboard.user_info u ON u.id = s.user_id
    LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
    LEFT JOIN (
        leaderboard.runs r
        JOIN (
            SELECT k.submission_id, k.runner FROM leaderboard.runs k WHERE k.secret GROUP BY k.submission_id, k.runner
            HAVING bool_and(k.passed) AND bool_or(k.mode = 'leaderboard')
        ) AS k ON k.submission_id = r.submission_id AND k.runner = r.runner
    ) ON r.submission_id = s.id AND NOT r.secret AND r.mode = 'leaderboard'
    WHERE s.leaderboard_id = 1
    ORDER BY s.leaderboard_id, s.user_id, s.code_id, r.runner, r.score, s.submission_time
) AS e
JOIN leaderboard.code_files c ON c.id = e.code_id
ORDER BY e.problem_name, e.score
"""
_AS_BYTES: Final = _ROWS.format(code="c.code")
_AS_TEXT: Final = _ROWS.format(code="convert_from(c.code, 'UTF8')")


def ours(url: str, target: Path) -> None:
    """The command's own functions."""
    from runner.extras.data.choice import Options
    from runner.extras.data.export import export

    export(url, Options(target=target, private=True), lambda _stage, _done, _total: None)


def polars(url: str, target: Path) -> None:
    """polars.read_database_uri, write_parquet."""
    import polars as pl

    pl.read_database_uri(_AS_BYTES, url, engine="adbc").write_parquet(target, compression="zstd")


def read_sql(url: str, target: Path) -> None:
    """pandas.read_sql and to_parquet, as the data set's instructions say."""
    import pandas as pd

    warnings.simplefilter("ignore")
    with psycopg.connect(url) as connection:
        rows = pd.read_sql(_AS_TEXT, connection)
    rows.to_parquet(target, index=False)


def kernelbot(url: str, target: Path) -> None:
    """KernelBot's way: psycopg2, all rows as dictionaries, one Arrow table, one write."""
    import psycopg2
    import psycopg2.extras
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (
        psycopg2.connect(url) as connection,
        connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor,
    ):
        cursor.execute(_AS_TEXT)
        rows = [dict(line) for line in cursor.fetchall()]
    pq.write_table(pa.Table.from_pylist(rows), target, compression="snappy")


def streamed(url: str, target: Path) -> None:
    """A server-side binary cursor of psycopg into a ParquetWriter."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with psycopg.connect(url) as connection, connection.cursor("rows") as cursor:
        cursor.execute(_AS_BYTES.encode(), binary=True)
        writer = None
        while rows := cursor.fetchmany(1000):
            columns = [description.name for description in cursor.description or ()]
            table = pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))
            writer = writer or pq.ParquetWriter(target, table.schema, compression="zstd", use_dictionary=columns[:-1])
            writer.write_table(table.cast(writer.schema))
        if writer is not None:
            writer.close()


_OURS: Final = "kernel-runner data export"
#: Name -> how, and what must be installed.
WAYS: Final = {
    "psycopg cursor, ParquetWriter": (streamed, "psycopg"),
    "polars": (polars, "polars"),
    "pandas.read_sql": (read_sql, "pandas"),
    "KernelBot's way": (kernelbot, "psycopg2"),
    _OURS: (ours, "pyarrow"),
}


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


def server_cpu_s(url: str) -> float:
    """CPU seconds of all connections to the server that were closed. 0 where it runs elsewhere."""
    with psycopg.connect(url) as db:
        found = db.execute("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)").fetchone()
    stat = Path(f"/proc/{found[0] if found else ''}/stat")
    if not stat.is_file():
        return 0.0
    fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / 100


def measured(way: str, url: str, target: Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak MiB of a process that exports."""
    server_s, spent = server_cpu_s(url), resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "tests.benchmarks.data", "--way", way, "--database", url, "--to", str(target)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    took_s = time.perf_counter() - began_s
    spent_now = resource.getrusage(resource.RUSAGE_CHILDREN)
    time.sleep(0.3)  # until the server has seen its processes end
    cpu_s = spent_now.ru_utime + spent_now.ru_stime - spent.ru_utime - spent.ru_stime + server_cpu_s(url) - server_s
    return took_s, cpu_s, int(done.stdout) / 1024


def peak_kib() -> int:
    """The peak of this process's resident memory. getrusage would count what its parent had when it was started."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel does not say how much memory was resident")


def filled(url: str, *, mb: int, users: int) -> int:
    """Fill a database, unless it is; returns its submissions."""
    # Not above: the ways are measured in processes of this module.
    from runner.store import migrate

    migrate(url)
    with psycopg.connect(url) as db:
        found = db.execute("SELECT max(id) FROM leaderboard.submission").fetchone()
    return found[0] if found and found[0] else fill(url, mb=mb, users=users)


def main(options: Sequence[str] = ()) -> None:
    """Measure and print, or go one way, in a process of its own."""
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=100, help="megabytes of code")
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where the exports are written; default: the temporary folder")
    parser.add_argument("--database", help="the address of a database that is kept; it needs a superuser")
    parser.add_argument("--only", action="append", default=[], choices=WAYS, help="one of the ways; several times")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(options)
    if given.way:
        WAYS[given.way][0](given.database, given.to)
        print(peak_kib())
    else:
        _compare(mb=given.mb, users=given.users, folder=given.folder, database=given.database, only=given.only)


def _compare(*, mb: int, users: int, folder: Path | None, database: str | None, only: list[str]) -> None:
    """Print a line per way."""
    from tests.plugins.postgres import embedded_server

    with ExitStack() as stack:
        url = database or stack.enter_context(embedded_server({}))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        count = filled(url, mb=mb, users=users)
        print(f"{count} submissions of {users} users, about {mb} MB of code")
        print(f"{'way':30} {'s':>8} {'of fastest':>11} {'CPU s':>8} {'peak MiB':>9}", flush=True)
        fastest_s = math.inf
        for way, (_, module) in WAYS.items():
            if only and way not in only:
                continue
            if find_spec(module) is None:
                print(f"{way:30} {module} is not installed")
                continue
            took_s, cpu_s, peak_mib = measured(way, url, scratch / ("ours" if way == _OURS else "file"))
            fastest_s = min(fastest_s, took_s)
            print(f"{way:30} {took_s:8.2f} {took_s / fastest_s:11.2f} {cpu_s:8.2f} {peak_mib:9.0f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
