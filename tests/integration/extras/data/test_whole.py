"""An export is whole or not there: killed at many moments, damaged in many ways, read by many tools."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.extras.data import manifest
from runner.extras.data.folder import sha256_of
from runner.extras.data.verify import verify
from tests.integration.extras.data.conftest import Filler, Oddities, exported, no_progress
from tests.integration.extras.data.test_export import content
from tests.support import killed

_IMPORTS = """
import sys
from pathlib import Path

from runner.extras.data.choice import Options
from runner.extras.data.export import export
"""
#: Exports to argv[2] from argv[1] as the command does.
_EXPORT = "export(sys.argv[1], Options(target=Path(sys.argv[2]), private=True), lambda *_: None)\n"
#: The same, and prints the most memory that it held, in KiB.
_MEASURED = f"""{_IMPORTS}{_EXPORT}
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""


def test_memory_does_not_grow_with_the_code(filler: Filler, database_url: str, tmp_path: Path) -> None:
    """Three times the code needs as good as the same memory, and never more than the page says."""
    board, user = filler.board("gemv"), filler.user("ada")
    peaks: list[int] = []
    for first, last in ((1, 4_000), (4_001, 12_000)):
        filler.db.execute(
            "WITH made AS ("
            " INSERT INTO leaderboard.code_files (code)"
            " SELECT convert_to(repeat(md5(n::text), 320), 'UTF8') FROM generate_series(%s::int, %s) n RETURNING id"
            ") INSERT INTO leaderboard.submission"
            " (leaderboard_id, file_name, user_id, code_id, submission_time, done, status)"
            " SELECT %s, 'kernel.py', %s, id, '2025-06-02Z', true, 'active' FROM made",
            (first, last, board, user),
        )
        command = [sys.executable, "-c", _MEASURED, database_url, str(tmp_path / f"out{last}")]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) // 1024)
    few, many = peaks
    added = 8_000 * 320 * 32 >> 20
    assert many < few + added // 2, peaks
    assert many < 300, peaks


def test_a_kill_at_any_moment_leaves_the_old_export_or_the_new(
    oddities: Oddities, database_url: str, tmp_path: Path
) -> None:
    """Killed before each change of the file system in turn, until an export gets through; the last one cleans up."""
    target = tmp_path / "out"
    exported(database_url, target)
    old = content(target)
    oddities.filler.ranked(oddities.board, "user0", b"# new", "0.00001")
    exported(database_url, tmp_path / "full")
    new = content(tmp_path / "full")
    shutil.rmtree(tmp_path / "full")
    kills, found = 0, old
    for kills in killed.runs(_IMPORTS, f"{_IMPORTS}{_EXPORT}", database_url, target):
        found = content(target)
        assert found in (old, new), f"after kill {kills}"
    assert kills > 15
    assert found == new
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _cut(folder: Path) -> None:
    path = folder / "runs.parquet"
    path.write_bytes(path.read_bytes()[:-10])


def _without_part(folder: Path) -> None:
    (folder / "code" / "part-00000.parquet").unlink()


def _strange_part(folder: Path) -> None:
    shutil.copy(folder / "code" / "part-00000.parquet", folder / "code" / "part-00001.parquet")


def _told(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Changes the manifest."""

    def damage(folder: Path) -> None:
        told = manifest.read(folder)
        change(told)
        manifest.write(folder, told)

    return damage


def _forged(name: str, change: Callable[[bytes], bytes], **entry: int) -> Callable[[Path], None]:
    """Changes the bytes of a file, and gives the manifest their hash, as a careful hand would."""

    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes()))
        facts = {"sha256": sha256_of(path), "bytes": path.stat().st_size, **entry}
        _told(lambda told: manifest.paths(told)[name].update(facts))(folder)

    return damage


def _renewed(name: str, change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], None]:
    """Changes the rows of a file, and gives the manifest its hash."""

    def damage(folder: Path) -> None:
        table = change(pq.read_table(folder / name))
        pq.write_table(table, folder / name)
        _forged(name, lambda written: written, rows=table.num_rows)(folder)

    return damage


def _with_codes_exchanged(table: pa.Table) -> pa.Table:
    codes = table.column("code").take(list(range(table.num_rows))[::-1])
    return table.set_column(13, table.schema.field("code"), codes)


_DAMAGE = (
    (_cut, "runs.parquet is not the file that was exported"),
    (_without_part, "code/part-00000.parquet is missing"),
    (_strange_part, "code/part-00001.parquet is not of this export"),
    (_told(lambda told: told["boards"][0].update(rows=1)), "the manifest says"),
    (
        _told(lambda told: told["boards"][0].pop("rows")),
        "manifest.json is not as an export writes it (KeyError: 'rows')",
    ),
    (_forged("runs.parquet", lambda _: b"garbage"), "runs.parquet is not readable as parquet: "),
    (_forged("runs.parquet", lambda found: found[:4] + bytes(100) + found[104:]), "a file is damaged, though"),
    (_renewed("code/part-00000.parquet", lambda table: table.slice(1)), "is in no part"),
    (_renewed("runs.parquet", lambda table: table.slice(1)), "content_sha256"),
    (
        _told(lambda told: told["boards"][0].update(visibility="closed")),
        "differ in leaderboards, or in names or visibilities",
    ),
    (_renewed("gemv_submissions.parquet", lambda table: table.slice(1)), "rows, submissions.parquet"),
    (_renewed("gemv_submissions.parquet", lambda table: table.drop_columns("code")), "another schema"),
    (_renewed("gemv_submissions.parquet", _with_codes_exchanged), "does not have the code"),
    (
        _renewed("submissions.parquet", lambda table: pa.concat_tables([table, table.slice(0, 1)])),
        "the same submission and runner",
    ),
)


def test_damage_is_found(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """Changed bytes, files that are missing or too many, and files that no longer agree with one another."""
    exported(database_url, tmp_path / "out")
    assert verify(tmp_path / "out", no_progress) == []
    for damage, said in _DAMAGE:
        shutil.copytree(tmp_path / "out", tmp_path / "damaged")
        damage(tmp_path / "damaged")
        wrong = verify(tmp_path / "damaged", no_progress)
        assert any(said in line for line in wrong), (said, wrong)
        shutil.rmtree(tmp_path / "damaged")


def test_every_tool_reads_an_export(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """Pandas, DuckDB and Polars; the old lines work on it: sorting by score gives the best, not -1."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    folder = tmp_path / "out"
    exported(database_url, folder)
    flat = pd.read_parquet(folder / "gemv_submissions.parquet")
    best = flat[(flat["user_name"] == "User0") & (flat["problem_name"] == "gemv")].sort_values("score").head(1)
    assert best["code"].to_numpy()[0] == "# good"
    query = (
        f"SELECT count(*), count(score), sum(octet_length(c.code)) FROM '{folder}/submissions.parquet' "  # noqa: S608
        f"JOIN '{folder}/code/*.parquet' c USING (code_sha256)"
    )
    ((rows, ranked, code_bytes),) = duckdb.sql(query).fetchall()
    board = manifest.read(folder)["boards"][0]
    assert (rows, ranked) == (board["rows"], board["ranked"])
    assert code_bytes > 0
    codes = duckdb.sql(f"SELECT submission_id, code FROM '{folder}/gemv_submissions.parquet'").fetchall()  # noqa: S608
    assert dict(codes)[oddities.with_nul] == "x = '\0'\n"
    for name in ("gemv_submissions", "submissions", "runs", "leaderboards", "code/part-00000"):
        file = folder / f"{name}.parquet"
        assert polars.read_parquet(file).height == len(pd.read_parquet(file))


def test_datasets_reads_an_export(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """Every configuration that the card names, without a network."""
    pytest.importorskip("datasets")
    exported(database_url, tmp_path / "out")
    program = (
        "import json, sys, datasets\n"
        "found = {name: len(datasets.load_dataset(sys.argv[1], name, split='train')) for name in\n"
        "         datasets.get_dataset_config_names(sys.argv[1])}\n"
        "print(json.dumps(found))"
    )
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    found = json.loads(done.stdout.splitlines()[-1])
    files = manifest.paths(manifest.read(tmp_path / "out"))
    rows = {path: entry["rows"] for path, entry in files.items() if "rows" in entry}
    assert found == {
        "flat": rows["gemv_submissions.parquet"],
        "submissions": rows["submissions.parquet"],
        "runs": rows["runs.parquet"],
        "code": rows["code/part-00000.parquet"],
        "leaderboards": 1,
    }
