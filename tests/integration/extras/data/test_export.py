"""What an export holds, and of which moment."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from runner.base.errors import DataError
from runner.extras.data import manifest
from runner.extras.data.choice import Options
from runner.extras.data.export import export
from runner.extras.data.people import Exclusions, Identity
from runner.extras.data.verify import verify
from tests.integration.extras.data.conftest import (
    CANARIES,
    MAILERS,
    SECRET_SEED,
    Filler,
    Oddities,
    exported,
    may_read_code,
    no_progress,
)

FLAT_COLUMNS = [
    "submission_id: int64 not null",
    "leaderboard_id: int64 not null",
    "problem_name: large_string not null",
    "user_id: large_string not null",
    "user_name: large_string not null",
    "code_id: int64 not null",
    "file_name: large_string not null",
    "submission_time: timestamp[us, tz=UTC] not null",
    "status: large_string not null",
    "score: double",
    "passed: bool",
    "mode: large_string",
    "runner: large_string",
    "code: large_string not null",
]


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a parquet file."""
    return list(pq.read_table(path).to_pylist())


def of(found: list[dict[str, Any]], submission_id: int) -> list[dict[str, Any]]:
    """The rows of a submission."""
    return [row for row in found if row["submission_id"] == submission_id]


def content(folder: Path) -> dict[str, bytes]:
    """Every file of an export, without what tells when it was made."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    told = json.loads(found.pop("manifest.json"))
    del told["exported_at"]
    return {**found, "manifest": json.dumps(told).encode()}


def test_what_an_export_holds(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """Every row, in the published form and as the view has it, and its code; of unusable scores the reason alone."""
    fast = {"benchmark-count": "2", "check": "pass"}
    for case, sol in enumerate(("1.5", "0.5")):
        fast |= {f"benchmark.{case}.mean": "20000", f"benchmark.{case}.sol": sol, f"benchmark.{case}.spec": "n: 1"}
    oddities.filler.ranked(oddities.board, "user0", b"# light", "0.00002", result=fast)
    oddities.filler.ranked(oddities.board, "user0", b"# differs", "0.00003", result={**fast, "benchmark.1.sol": "0.9"})
    done = exported(database_url, tmp_path / "out", notes={"gemv": "Hardware was unreliable."}, licence="mit")
    assert verify(tmp_path / "out", no_progress) == []
    flat, more = (rows(tmp_path / "out" / f"{name}.parquet") for name in ("gemv_submissions", "submissions"))
    _is_as_published(tmp_path / "out" / "gemv_submissions.parquet", flat, oddities)
    (board,) = done["boards"]
    assert (board["rows"], board["ranked"]) == (len(flat), sum(row["score"] is not None for row in flat))
    _has_no_unusable_score(more, oddities)
    _has_the_rows_of_the_view(more, oddities)
    _has_all_code(tmp_path / "out", flat, more, oddities)
    _is_explained(tmp_path / "out", done, oddities)
    _has_no_secret(tmp_path / "out")


def _is_as_published(path: Path, flat: list[dict[str, Any]], oddities: Oddities) -> None:
    """Column for column, type for type; a page index, zstd; the published order."""
    assert str(pq.read_schema(path).remove_metadata()).splitlines() == FLAT_COLUMNS
    details = pq.ParquetFile(path).metadata
    for column in range(details.num_columns):
        assert details.row_group(0).column(column).compression == "ZSTD"
        assert details.row_group(0).column(column).has_offset_index
    scores = [row["score"] for row in flat]
    ranked = [score for score in scores if score is not None]
    assert scores == sorted(ranked) + [None] * (len(scores) - len(ranked))
    assert {row["submission_id"] for row in flat} == set(oddities.filler.codes)


def _has_no_unusable_score(more: list[dict[str, Any]], oddities: Oddities) -> None:
    """Unusable ones are null with the raw value and the reason beside; hacked ones say so."""
    for reason, submission_id in oddities.unusable.items():
        (row,) = of(more, submission_id)
        said = {"score_invalid_reason": reason, "status": "hacked" if reason == "hacked" else "failed"}
        assert {**dict.fromkeys(("score", "passed", "mode", "runner")), **said}.items() <= row.items(), reason
        assert row["score_raw"] is not None
    ((nan,), (infinite,)) = (of(more, oddities.unusable[reason]) for reason in ("nan", "infinite"))
    assert (math.isnan(nan["score_raw"]), infinite["score_raw"]) == (True, math.inf)
    (good,) = of(more, oddities.good)
    counts = {"score": 2.5e-05, "passed": True, "mode": "leaderboard", "runner": "B200", "status": "succeeded"}
    assert {**counts, "score_invalid_reason": None, "assurance_timing": None}.items() <= good.items()
    assert [row["runner"] for row in of(more, oddities.two_runners)] == ["B200", "H100"]
    (orphan,) = of(more, oddities.orphan)
    assert (orphan["user_id"], orphan["user_name"]) == ("deleted", "")


def _has_the_rows_of_the_view(more: list[dict[str, Any]], oddities: Oddities) -> None:
    """But for the flags of code, which the database does not read."""
    names = ("submission_id", "runner", "score", "run_id", "verdict", "sol")
    found = [
        (*(row[name] for name in names), sorted({*row["flags"]} - {"code_blank", "code_encoding"})) for row in more
    ]
    expected = [
        (*(row[name] for name in names), sorted(row["flags"]))
        for row in oddities.filler.db.execute("SELECT * FROM runner.dataset_submissions").fetchall()
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    flags = {flag for row in found for flag in row[-1]}
    assert {"faster_than_light", "score_differs", "code_shared", "user_missing"} <= flags


def _has_all_code(folder: Path, flat: list[dict[str, Any]], more: list[dict[str, Any]], oddities: Oddities) -> None:
    """Bytes that are not UTF-8 are U+FFFD in the flat file and themselves by hash; a NUL stays."""
    code = {row["code_sha256"]: row for row in rows(folder / "code" / "part-00000.parquet")}
    (bad,), (nul,) = of(flat, oddities.bad_bytes), of(flat, oddities.with_nul)
    assert (bad["code"], nul["code"]) == ("x = '\ufffd\ufffd'\n", "x = '\0'\n")
    for submission_id, stored in oddities.filler.codes.items():
        (row, *_) = of(more, submission_id)
        assert row["code_sha256"] == hashlib.sha256(stored).hexdigest()
        assert code[row["code_sha256"]]["code"] == stored
        assert row["code_bytes"] == len(stored)
    encodings = {row["submission_id"]: row["code_encoding"] for row in more}
    expected = {oddities.bad_bytes: "invalid", oddities.with_nul: "utf-8 with NUL", oddities.good: "utf-8"}
    assert expected.items() <= encodings.items()
    assert "code_encoding" in of(more, oddities.bad_bytes)[0]["flags"]
    assert "code_blank" in of(more, oddities.blank)[0]["flags"]
    assert len(code) == len(set(oddities.filler.codes.values()))


def _is_explained(folder: Path, done: manifest.Manifest, oddities: Oddities) -> None:
    """By the manifest: files with rows and schema, leaderboards with counts; by the card: notes and every column."""
    told = manifest.read(folder)
    assert told == done
    files = manifest.paths(told)
    tables = ("gemv_submissions", "submissions", "runs", "leaderboards", "finals")
    assert {*(f"{name}.parquet" for name in tables), "README.md", "queries.sql"} <= set(files)
    assert files["runs.parquet"]["rows"] == len(rows(folder / "runs.parquet"))
    first = {"name": "submission_id", "type": "int64", "nullable": False}
    assert files["gemv_submissions.parquet"]["schema"][0] == first
    (board,) = told["boards"]
    assert board["submissions"] == len(oddities.filler.codes)
    assert board["deadline"] == "2025-07-01T00:00:00Z"
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n")
    assert "Hardware was unreliable." in card
    assert told["content_sha256"] in card
    explained = card.split("## Columns")[1].split("## Reading it")[0]
    columns = {column["name"] for file in files.values() for column in file.get("schema", [])}
    first_cells = re.findall(r"^\| (`[a-z].*?) \|", explained, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == columns
    (row,) = rows(folder / "leaderboards.parquet")
    assert (row["name"], row["gpu_types"], row["lang"]) == ("gemv", ["B200", "H100"], "py")
    assert row["trust_note"] == "Hardware was unreliable."


def _has_no_secret(folder: Path) -> None:
    """Canaries in secret runs, seeds, tokens, addresses and host names; searched for in bytes and in values."""
    told = ""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            told += path.read_bytes().decode("latin-1")
        if path.suffix == ".parquet":
            told += repr(rows(path))
    assert len(told) > 10_000
    assert "n: 8" in told
    for name, canary in CANARIES.items():
        assert canary not in told, name
    assert str(SECRET_SEED) not in told
    assert hashlib.sha256(CANARIES["host"].encode()).hexdigest() not in told


def test_exclusions_are_left_out_and_counted(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """Their code goes too, another's equal code stays. A mistyped id is refused: whom it means would be published."""
    left_out = Exclusions(users=frozenset({"user2"}), submissions=frozenset({oddities.good}))
    done = exported(database_url, tmp_path / "out", exclusions=left_out)
    assert done["excluded"] == {"by_user": 1, "by_submission": 1}
    found = rows(tmp_path / "out" / "submissions.parquet")
    assert "user2" not in {row["user_id"] for row in found}
    assert of(found, oddities.good) == of(rows(tmp_path / "out" / "runs.parquet"), oddities.good) == []
    codes = rows(tmp_path / "out" / "code" / "part-00000.parquet")
    assert len(codes) == len(set(oddities.filler.codes.values())) - 1
    assert verify(tmp_path / "out", no_progress) == []
    for wrong, words in (({"users": {"user"}}, "user user;"), ({"submissions": {1 << 30}}, f"submission {1 << 30};")):
        with pytest.raises(DataError, match=f"not in the database: {words}"):
            exported(database_url, tmp_path / "new", exclusions=replace(left_out, **wrong))
    assert not (tmp_path / "new").exists()


def test_the_last_final_is_there_under_the_names_of_the_export(
    oddities: Oddities, database_url: str, tmp_path: Path
) -> None:
    """Shared ranks, an interval, who is out; no address, and nobody who is left out."""
    entries = (oddities.good, oddities.two_runners, oddities.bad_bytes)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO runner.final_sweep (leaderboard_id, gpu_type, rounds, hosts, status, ended_at) "
            "VALUES (%s, 'B200', 12, '{h}', 'completed', '2026-01-02Z')",
            [oddities.board],
        )
        for number, entry in enumerate((entries[0], *entries)):
            fault = "wrong_answer in round 1" if number == 3 else None
            connection.execute("INSERT INTO runner.finalist VALUES (1, %s, %s, %s)", [number, entry, fault])
            connection.execute(
                "INSERT INTO runner.final_score (final_id, number, round, host, score, p25) "
                "SELECT 1, %s, n, 'h', 0.00003, 0.00002 FROM generate_series(1, 12) AS n",
                [number],
            )
    exported(database_url, tmp_path / "out")
    found = rows(tmp_path / "out" / "finals.parquet")
    shown = ("submission_id", "rank", "user_name", "score_low", "fault", "spread_rounds")
    assert [tuple(row[name] for name in shown) for row in found] == [
        (oddities.good, 1, "User0", 2e-05, None, 1.0),
        (oddities.two_runners, 1, "User2", 2e-05, None, 1.0),
        (oddities.bad_bytes, None, "User0", 2e-05, "wrong_answer in round 1", 1.0),
    ]
    assert verify(tmp_path / "out", no_progress) == []
    exported(database_url, tmp_path / "out", exclusions=Exclusions(users=frozenset({"user2"})))
    assert {row["user_id"] for row in rows(tmp_path / "out" / "finals.parquet")} == {"user0"}


def test_rows_are_deduplicated(filler: Filler, database_url: str, tmp_path: Path) -> None:
    """Per user, code and runner, the lowest score; an attempt that never ranked is a row of its own."""
    board = filler.board("twice")
    filler.user("ada")
    filler.user("bob")
    filler.ranked(board, "ada", b"same", "0.002")
    best = filler.ranked(board, "ada", b"same", "0.001")
    other = filler.ranked(board, "bob", b"same", "0.003")
    test = filler.submission(board, "ada", b"same")
    filler.submission(board, "ada", b"same")
    failed = filler.submission(board, "bob", b"other")
    filler.run(failed, "0.0001")
    filler.run(failed, None, secret=True, passed=False)
    exported(database_url, tmp_path / "out")
    found = rows(tmp_path / "out" / "submissions.parquet")
    assert [(row["submission_id"], row["score"], row["status"]) for row in found] == [
        (best, 0.001, "succeeded"),
        (other, 0.003, "succeeded"),
        (test, None, "failed"),
        (failed, None, "failed"),
    ]
    assert (found[3]["score_invalid_reason"], found[3]["score_raw"]) == ("secret_failed", 0.0001)


def test_a_write_during_the_export_changes_nothing_in_it(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """At every stage rows come, change and go; the export is that of its moment."""
    exported(database_url, tmp_path / "before")
    stages: set[str] = set()

    def write(stage: str, done: int, total: int) -> None:
        if stage in stages:
            return
        stages.add(stage)
        oddities.filler.ranked(oddities.board, "user0", f"# during {stage}".encode(), "0.0000001")
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("UPDATE leaderboard.runs SET score = score * 2 WHERE NOT secret AND score > 0 AND score < 1")
            other.execute("DELETE FROM leaderboard.gpu_type")

    export(database_url, Options(target=tmp_path / "during", private=True), write)
    assert stages == {"code", "submissions", "runs"}
    assert content(tmp_path / "during") == content(tmp_path / "before")
    exported(database_url, tmp_path / "after")
    assert content(tmp_path / "after") != content(tmp_path / "before")


def test_a_public_export_refuses_what_may_not_be_public(filler: Filler, database_url: str, tmp_path: Path) -> None:
    """Open and closed leaderboards by name, and a missing licence; private exports have them."""
    filler.board("over")
    filler.board("running", running=True)
    filler.board("invited", visibility="closed")
    with pytest.raises(DataError, match=r"running \(open until .*invited \(closed\).*--private") as caught:
        exported(database_url, tmp_path / "out", private=False, licence="cc-by-4.0")
    assert "over" not in str(caught.value).split(": ", 1)[1].split(". ")[0]
    for licence in (None, "", " "):
        with pytest.raises(DataError, match="needs a licence"):
            exported(database_url, tmp_path / "out", private=False, boards=("over",), licence=licence)
    with pytest.raises(DataError, match="no leaderboard 'nothing'"):
        exported(database_url, tmp_path / "out", boards=("nothing",))
    assert not (tmp_path / "out").exists()
    public = exported(database_url, tmp_path / "out", private=False, boards=("over",), licence="cc-by-4.0")
    assert [board["name"] for board in public["boards"]] == ["over"]
    everything = exported(database_url, tmp_path / "all")
    assert [board["name"] for board in everything["boards"]] == ["over", "running", "invited"]
    assert verify(tmp_path / "all", no_progress) == []


def test_identities(oddities: Oddities, database_url: str, tmp_path: Path) -> None:
    """Names and ids, ids alone, or pseudonyms that stay the same with the key and tell nothing without it."""

    def people(name: str, **options: Any) -> set[tuple[str, str]]:  # noqa: ANN401
        exported(database_url, tmp_path / name, **options)
        found = rows(tmp_path / name / "gemv_submissions.parquet")
        assert verify(tmp_path / name, no_progress) == []
        return {(row["user_id"], row["user_name"]) for row in found}

    assert people("named") >= {("user0", "User0"), ("nameless", ""), ("deleted", "")} | {
        (user_id, "") for user_id in MAILERS
    }
    assert people("ids", identity=Identity.ID) >= {("user0", ""), ("deleted", "")}
    one = people("one", identity=Identity.PSEUDONYM, key=b"k" * 16)
    assert one == people("again", identity=Identity.PSEUDONYM, key=b"k" * 16)
    assert one.isdisjoint(people("other", identity=Identity.PSEUDONYM, key=b"l" * 16))
    assert len(one) == 11
    assert all(len(user_id) == 16 and name == "" and "user" not in user_id for user_id, name in one)
    assert "host-1" not in {row["host"] for row in rows(tmp_path / "one" / "runs.parquet")}
    with pytest.raises(DataError, match="need a key"):
        exported(database_url, tmp_path / "out", identity=Identity.PSEUDONYM)


@pytest.mark.parametrize("user_id", ["ada@example.com", "Ada <ada@example.com>"])
def test_an_address_in_an_id_is_not_published(filler: Filler, database_url: str, tmp_path: Path, user_id: str) -> None:
    """A public export refuses it, unless users get pseudonyms."""
    board = filler.board("mails")
    filler.user(user_id, "Ada")
    filler.ranked(board, user_id, b"x", "0.001")
    with pytest.raises(DataError, match="--identity pseudonym"):
        exported(database_url, tmp_path / "out", private=False, licence="mit")
    exported(database_url, tmp_path / "out", private=False, licence="mit", identity=Identity.PSEUDONYM, key=b"k" * 16)
    assert b"example.com" not in b"".join(content(tmp_path / "out").values())


def test_a_folder_with_something_else_is_refused(filler: Filler, database_url: str, tmp_path: Path) -> None:
    """Beside nothing or an export, hidden or below: it is replaced as a whole."""
    filler.board("gemv")
    out = tmp_path / "out"
    (out / "plots").mkdir(parents=True)
    for name in ("plots/race.svg", ".hidden"):
        (out / name).write_text("years of work")
        with pytest.raises(DataError, match=rf"holds '{re.escape(name)}', which no export wrote"):
            exported(database_url, out)
        (out / name).unlink()
        exported(database_url, out)
        (out / "plots").mkdir(exist_ok=True)
    assert verify(out, no_progress) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_read_only_login_exports(oddities: Oddities, database_url: str, tmp_path: Path, login: str) -> None:
    """Role runner_readonly and the right to read code are enough; equal input gives equal bytes, but for the moment."""
    exported(database_url, tmp_path / "owner")
    with pytest.raises(Exception, match="code_files"):
        exported(login, tmp_path / "out")
    may_read_code(oddities.filler.db, login)
    exported(login, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "owner")


def test_two_exports_at_once(filler: Filler, database_url: str, tmp_path: Path) -> None:
    """The second is refused and the first goes on."""
    filler.ranked(filler.board("gemv"), filler.user("ada"), b"# one", "0.001")
    refused: list[str] = []

    def again(stage: str, done: int, total: int) -> None:
        if not refused:
            with pytest.raises(DataError, match="another export") as caught:
                exported(database_url, tmp_path / "out")
            refused.append(str(caught.value))

    export(database_url, Options(target=tmp_path / "out", private=True), again)
    assert refused
    assert verify(tmp_path / "out", no_progress) == []
    assert os.listdir(tmp_path) == ["out"]  # noqa: PTH208 - with hidden ones
