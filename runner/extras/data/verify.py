"""Checks that an export is whole: its files are those of the manifest, and they agree with one another."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from runner.base.errors import ReceiptError
from runner.extras import receipts
from runner.extras.data import Progress, manifest, on_one_line
from runner.extras.data import code as code_files
from runner.extras.data.folder import MANIFEST, sha256_of
from runner.extras.data.manifest import Manifest
from runner.extras.data.tables import FLAT, RECEIPTS_FILE, TABLES, Digest, content_sha256, schema_of, shown
from runner.extras.receipts import HostKey

#: Columns that the flat file and submissions.parquet share.
_SHARED: Final = [name for name in FLAT.names if name != "code"]
_AT_ONCE: Final = 500


def verify(folder: Path, progress: Progress, keys: Sequence[HostKey] | None = None) -> Sequence[str]:
    """The faults of an export, a line each; none if it is whole. `keys`: of hosts; None: those in the manifest.

    Raises:
        DataError: the folder holds no export.
    """
    document = manifest.read(folder)
    files = manifest.paths(document)
    missing = [f"the manifest does not name {name}" for name in (*TABLES, document.get("flat")) if name not in files]
    # The contents of a damaged file mean nothing.
    return (
        [*missing, *wrong_files(folder, files, progress), *_strange_parts(folder, files)]
        or list(_schemas(folder, document))
        or list(_unreadable_last(_content(folder, document, progress)))
        or list(_unreadable_last(_receipts(folder, document, keys)))
    )


def signed(folder: Path) -> tuple[int, int]:
    """How many rows rank and have the receipts of both their runs, and how many rank."""
    ranked = _rows_by_place(folder)
    if not (folder / RECEIPTS_FILE).exists():
        return 0, len(ranked)
    lines = pq.read_table(folder / RECEIPTS_FILE, columns=["submission_id", "runner", "run", "retired_as"]).to_pylist()
    places = {(line["submission_id"], line["runner"], line["run"]) for line in lines if line["retired_as"] is None}
    return sum({(*place, "public"), (*place, "secret")} <= places for place in ranked), len(ranked)


def _unreadable_last(faults: Iterator[str]) -> Iterator[str]:
    """Yields the faults; an unreadable file is the last."""
    try:
        yield from faults
    except (pa.ArrowException, OSError) as error:
        yield f"a file is damaged, though its bytes are those of the manifest: {on_one_line(error)}"
    except (LookupError, TypeError) as error:
        yield f"{MANIFEST} is not as an export writes it ({type(error).__name__}: {error})"


def wrong_files(folder: Path, files: Mapping[str, Mapping[str, Any]], progress: Progress) -> Iterator[str]:
    """What differs from a manifest's entries: files that changed, are missing, or lie elsewhere."""
    for number, (name, entry) in enumerate(files.items(), 1):
        path, parts = folder / name, PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or name != "/".join(parts) or name in ("", MANIFEST):
            yield f"{MANIFEST} lists {name!r}, which is no path below the folder"
        elif any(folder.joinpath(*parts[: count + 1]).is_symlink() for count in range(len(parts))):
            yield f"{name} is a link"
        elif not path.is_file():
            yield f"{name} is missing"
        elif path.stat().st_size != entry.get("bytes") or sha256_of(path) != entry["sha256"]:
            yield f"{name} is not the file that was exported: its bytes have changed"
        progress("files", number, len(files))


def _strange_parts(folder: Path, files: Mapping[str, Any]) -> Iterator[str]:
    for path in sorted(folder.glob("code/*.parquet")):
        name = path.relative_to(folder).as_posix()
        if name not in files:
            yield f"{name} is not of this export"


def _schemas(folder: Path, document: Manifest) -> Iterator[str]:
    for name, entry in manifest.paths(document).items():
        if not name.endswith(".parquet"):
            continue
        expected = schema_of(name, flat=document["flat"])
        try:
            with pq.ParquetFile(folder / name) as file:
                schema, rows = file.schema_arrow, file.metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            yield f"{name} is not readable as parquet: {on_one_line(error)}"
            continue
        if not schema.equals(expected) or entry.get("schema") != shown(expected):
            yield f"{name} has another schema"
        if rows != entry.get("rows"):
            yield f"{name} has {rows} rows, the manifest says {entry.get('rows')}"


def _content(folder: Path, document: Manifest, progress: Progress) -> Iterator[str]:
    if content_sha256({name: _digest(folder / name) for name in TABLES}) != document.get("content_sha256"):
        yield "the rows are not those that the manifest's content_sha256 is of"
    submissions = pq.read_table(folder / "submissions.parquet")
    keys = submissions.select(["submission_id", "runner"])
    if keys.group_by(["submission_id", "runner"]).aggregate([]).num_rows != keys.num_rows:
        yield "submissions.parquet: two rows have the same submission and runner"
    yield from _counts(submissions, pq.read_table(folder / "leaderboards.parquet"), document)
    texts: dict[str, str] = {}
    yield from _code(folder, document, set(submissions.column("code_sha256").to_pylist()), texts, progress)
    yield from _flat(folder, document["flat"], submissions, texts, progress)


def _digest(path: Path) -> Digest:
    digest = Digest()
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches():
            digest.add(batch)
    return digest


def _rows_by_place(folder: Path) -> Mapping[tuple[int, str], Mapping[str, Any]]:
    """What submissions.parquet says of each score, under the names of a statement, by submission and runner."""
    names = ("user_id", "problem_name", "code_sha256", "score", "assurance_timing", "assurance_correctness")
    rows = pq.read_table(folder / "submissions.parquet", columns=["submission_id", "runner", *names]).to_pylist()
    return {
        (row["submission_id"], row["runner"]): {
            "user_id": row["user_id"],
            "leaderboard": row["problem_name"],
            "code_sha256": row["code_sha256"],
            "score_s": row["score"],
            # What is not known ranks as the least.
            "timing": row["assurance_timing"] or "claimed",
            "correctness": row["assurance_correctness"] or "in_process",
        }
        for row in rows
        if row["score"] is not None
    }


def _receipts(folder: Path, document: Manifest, keys: Sequence[HostKey] | None) -> Iterator[str]:
    """What is wrong with receipts, and where the rows say something else."""
    if RECEIPTS_FILE not in manifest.paths(document):
        return
    listed = receipts.read_keys(json.dumps(document["keys"])) if keys is None else keys
    rows = _rows_by_place(folder)
    for line in pq.read_table(folder / RECEIPTS_FILE).to_pylist():
        try:
            statement = receipts.check(receipts.read(line["receipt"]), listed)
        except ReceiptError as error:
            yield f"{RECEIPTS_FILE}: job {line['job_id']}: {error}"
            continue
        row = {name: line[name] for name in ("job_id", "submission_id", "run")} | {"gpu_type": line["runner"]}
        if line["retired_as"] is None:
            row |= rows.get((line["submission_id"], line["runner"]), {})
        for difference in receipts.differences(statement, row, where="the export"):
            yield f"{RECEIPTS_FILE}: job {line['job_id']}: {difference}"


def _counts(submissions: pa.Table, leaderboards: pa.Table, document: Manifest) -> Iterator[str]:
    rows = Counter(submissions.column("leaderboard_id").to_pylist())
    ranked = Counter(submissions.filter(submissions.column("score").is_valid()).column("leaderboard_id").to_pylist())
    for board in document["boards"]:
        counted = rows.pop(board["id"], 0), ranked[board["id"]]
        if counted != (board["rows"], board["ranked"]):
            yield (
                f"leaderboard {board['name']} has {counted[0]} rows and {counted[1]} scores, the manifest says "
                f"{board['rows']} and {board['ranked']}"
            )
    for leaderboard_id in sorted(rows):
        yield f"submissions.parquet has rows of leaderboard {leaderboard_id}, which the manifest does not name"
    shared = ["id", "name", "visibility"]
    if leaderboards.select(shared).to_pylist() != [
        {name: board[name] for name in shared} for board in document["boards"]
    ]:
        yield "leaderboards.parquet and the manifest differ in leaderboards, or in names or visibilities of them"


def _code(
    folder: Path, document: Manifest, referenced: set[str], texts: dict[str, str], progress: Progress
) -> Iterator[str]:
    """Check each code against its hash; `texts` gets the hash of what the flat file shows of it."""
    parts = [name for name in sorted(manifest.paths(document)) if name.startswith("code/")]
    for number, name in enumerate(parts, 1):
        with pq.ParquetFile(folder / name) as part:
            for batch in part.iter_batches(_AT_ONCE):
                for line in batch.to_pylist():
                    sha256, code, encoding = line["code_sha256"], line["code"], line["code_encoding"]
                    if hashlib.sha256(code).hexdigest() != sha256 or len(code) != line["code_bytes"]:
                        yield f"{name}: code {sha256} does not have that hash"
                    if code_files.encoding_of(code) != encoding:
                        yield f"{name}: code {sha256} is not {encoding}"
                    if sha256 in texts:
                        yield f"{name}: code {sha256} is there twice"
                    if sha256 not in referenced:
                        yield f"{name}: no row of submissions.parquet has code {sha256}"
                    shown_text = code_files.as_text(code, encoding)
                    texts[sha256] = sha256 if shown_text is code else hashlib.sha256(shown_text).hexdigest()
        progress("code", number, len(parts))
    for sha256 in sorted(referenced - texts.keys()):
        yield f"code {sha256} is in no part"


def _flat(folder: Path, name: str, submissions: pa.Table, texts: dict[str, str], progress: Progress) -> Iterator[str]:
    hashes = submissions.column("code_sha256").to_pylist()
    done = 0
    with pq.ParquetFile(folder / name) as flat:
        if flat.metadata.num_rows != submissions.num_rows:
            yield f"{name} has {flat.metadata.num_rows} rows, submissions.parquet {submissions.num_rows}"
            return
        for batch in flat.iter_batches(_AT_ONCE):
            rows = pa.Table.from_batches([batch])
            same = submissions.slice(done, rows.num_rows).select(_SHARED)
            if not rows.select(_SHARED).equals(same):
                yield f"{name}: rows {done} to {done + rows.num_rows - 1} are not those of submissions.parquet"
            for number, code in enumerate(rows.column("code").to_pylist(), done):
                if hashlib.sha256(code.encode()).hexdigest() != texts.get(hashes[number]):
                    yield f"{name}: row {number} does not have the code {hashes[number]}"
            done += rows.num_rows
            progress("flat file", done, submissions.num_rows)
