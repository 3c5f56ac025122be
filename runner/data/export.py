"""Writes an export: all files from one snapshot of the database, beside the old export, then in its place.

Metadata is read and written anew each time; of the code, only what no older export in the folder has. The result is
that of an export into an empty folder, byte for byte but for the times in the manifest.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from runner import __version__
from runner.data import Progress, card, manifest
from runner.data import code as code_files
from runner.data.code import Codes
from runner.data.folder import MANIFEST, carry_over, files_of, replace, sha256_of, staging
from runner.data.manifest import Manifest
from runner.data.people import Exclusions, Identity, Namer
from runner.data.tables import (
    CODE,
    FLAT,
    GROUP_BYTES,
    GROUP_ROWS,
    LEADERBOARDS,
    RUNS,
    SUBMISSIONS,
    Digest,
    Grouped,
    Writer,
    content_sha256,
    shown,
    table,
)
from runner.errors import DataError
from runner.store.dataset import (
    RUN_COLUMNS,
    SUBMISSION_COLUMNS,
    DataBoard,
    Moment,
    People,
    Scope,
    Snapshot,
    queries_sha256,
    snapshot,
)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Rows that are read, and held, at once.
_AT_ONCE: Final = 2000
_COLUMN: Final = {name: number for number, name in enumerate(SUBMISSION_COLUMNS)}
_HOST: Final = RUN_COLUMNS.index("host")
#: What the database says of a row, before the code was read.
_ROUGH: Final = pa.schema(
    [SUBMISSIONS.field(name).with_nullable(True) for name in SUBMISSION_COLUMNS]  # the check comes with the first row
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is to be exported, where to, and how."""

    target: Path
    #: Names of leaderboards; none: all of them.
    boards: tuple[str, ...] = ()
    #: Open and closed leaderboards too, and no licence.
    private: bool = False
    licence: str | None = None
    identity: Identity = Identity.NAME
    key: bytes | None = None
    exclusions: Exclusions = field(default_factory=Exclusions)
    without_banned: bool = False
    #: The flat file is NAME_submissions.parquet; None: the name of the only leaderboard, else `kernels`.
    name: str | None = None
    #: Leaderboard -> what a reader should know before trusting its scores.
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What was exported."""

    target: Path
    rows: int
    ranked: int
    codes: int
    #: How many of them were read from the database.
    fetched: int
    bytes: int
    manifest: Manifest


def export(dsn: str, options: Options, progress: Progress) -> Summary:
    """Export. `progress` is told a stage, how much of it is done, and how much there is.

    Raises:
        DataError: the target is no folder for it, a leaderboard is unknown or may not be published, a licence or a key
            is missing, or the database's rows are not sound; the target is untouched.
        DatabaseUnavailableError: the database cannot be reached, went away, or refuses this user; likewise.
    """
    target = options.target.resolve()
    old = _older(target)
    namer = Namer(options.identity, options.key)
    with staging(target) as folder:
        with snapshot(dsn) as database:
            made = _Making(database, options, namer, folder, progress)
            made.write(target, old)
        if old is not None or target.exists():
            carry_over(target, folder, {MANIFEST, *(() if old is None else manifest.paths(old))})
        replace(target, folder)
    return made.summary(target)


def _older(target: Path) -> Manifest | None:
    """The manifest of the export that is in the target; None if the target is empty or not there."""
    if not target.exists():
        return None
    if not target.is_dir():
        raise DataError(f"{target} is no folder")
    if (target / MANIFEST).exists():
        return manifest.read(target)
    strange = sorted(entry.name for entry in target.iterdir() if not entry.name.startswith("."))
    if strange:
        raise DataError(f"{target} holds {strange[0]!r} and no export; name a new folder, an empty one, or an export")
    return None


class _Making:
    """One export in the making."""

    def __init__(self, database: Snapshot, options: Options, namer: Namer, folder: Path, progress: Progress) -> None:
        self._database = database
        self._options = options
        self._namer = namer
        self._folder = folder
        self._progress = progress
        self._submissions, self._runs, self._leaderboards = Digest(), Digest(), Digest()
        self._rows: dict[str, int] = {}
        self._per_board: dict[int, list[int]] = {}
        self._fetched = 0
        self._codes = 0
        self._manifest: Manifest = {}

    def write(self, target: Path, old: Manifest | None) -> None:
        """Write every file of the export into the folder."""
        moment = self._database.moment()
        boards = _chosen(self._database.boards(), self._options)
        scope, people = self._scope(boards)
        _refuse_addresses(people, self._options)
        flat = f"{_flat_name(boards, self._options)}_submissions.parquet"
        with closing(Codes(self._folder)) as codes, tempfile.TemporaryFile(dir=self._folder) as rough:
            self._read_submissions(scope, codes, rough)
            self._take_code(codes, target, old)
            with ThreadPoolExecutor(1) as other:
                # One thread compresses code while this one reads runs.
                written = other.submit(self._write_code, flat, codes, rough, target, old)
                self._write_runs(scope)
                written.result()
            self._codes = len(codes)
        self._write_leaderboards(boards)
        _copy_shipped(self._folder)
        self._finish(flat, moment, boards, people)

    def summary(self, target: Path) -> Summary:
        """What was written."""
        return Summary(
            target=target,
            rows=sum(rows for rows, _ in self._per_board.values()),
            ranked=sum(ranked for _, ranked in self._per_board.values()),
            codes=self._codes,
            fetched=self._fetched,
            bytes=sum(entry["bytes"] for entry in self._manifest["files"]),
            manifest=self._manifest,
        )

    def _scope(self, boards: Sequence[DataBoard]) -> tuple[Scope, Sequence[People]]:
        exclusions = self._options.exclusions
        scope = Scope(
            boards=tuple(board.id for board in boards), users=exclusions.users, submissions=exclusions.submissions
        )
        people = self._database.people(scope)
        if not self._options.without_banned:
            return scope, people
        banned = {user for line in people for user in line.banned}
        return Scope(boards=scope.boards, users=scope.users | banned, submissions=scope.submissions), people

    def _read_submissions(self, scope: Scope, codes: Codes, rough: Any) -> None:  # noqa: ANN401 - any binary stream
        """Put the rows aside, and note which code they need."""
        user_id, user_name = _COLUMN["user_id"], _COLUMN["user_name"]
        sha256, code_id, size = _COLUMN["code_sha256"], _COLUMN["code_id"], _COLUMN["code_bytes"]
        leaderboard_id, score = _COLUMN["leaderboard_id"], _COLUMN["score"]
        done = 0
        with pa.ipc.new_stream(rough, _ROUGH) as stream:
            for rows in self._database.submissions(scope, at_once=_AT_ONCE):
                shown_rows = []
                for row in rows:
                    if row[sha256] is None:
                        raise DataError(f"code {row[code_id]} of submission {row[0]} is missing; nothing was exported")
                    codes.want(row[sha256], row[code_id], row[size])
                    counts = self._per_board.setdefault(row[leaderboard_id], [0, 0])
                    counts[0] += 1
                    counts[1] += row[score] is not None
                    names = self._namer.user(row[user_id], row[user_name])
                    shown_rows.append((*row[:user_id], *names, *row[user_name + 1 :]))
                stream.write_table(table(_ROUGH, shown_rows))
                done += len(rows)
                self._progress("submissions", done, 0)
        rough.flush()

    def _take_code(self, codes: Codes, target: Path, old: Manifest | None) -> None:
        codes.take_from([] if old is None else [path for path, _ in _sound_parts(target, old)], self._progress)
        self._fetched = codes.fetch(self._database.code, self._progress)
        codes.flush()

    def _write_code(
        self,
        flat: str,
        codes: Codes,
        rough: Any,  # noqa: ANN401 - any binary stream
        target: Path,
        old: Manifest | None,
    ) -> None:
        self._write_parts(codes, target, old)
        self._write_submissions(codes, rough)
        self._write_flat(flat, codes, rough)

    def _write_parts(self, codes: Codes, target: Path, old: Manifest | None) -> None:
        reusable = (
            {name: path for path, name in _sound_parts(target, old)}
            if old is not None and old["software"].get("pyarrow") == pa.__version__
            else {}
        )
        done = 0
        for number, hashes in enumerate(codes.parts()):
            name = code_files.part_name(number)
            if name in reusable and code_files.same_codes(reusable[name], hashes):
                code_files.link(reusable[name], self._folder / name)
                self._rows[name] = len(hashes)
            else:
                self._rows[name] = code_files.write_part(self._folder / name, codes, hashes)
            done += len(hashes)
            self._progress("code written", done, len(codes))

    def _write_submissions(self, codes: Codes, rough: Any) -> None:  # noqa: ANN401 - any binary stream
        rough.seek(0)
        with (
            Writer(self._folder / "submissions.parquet", SUBMISSIONS) as writer,
            pa.ipc.open_stream(rough) as stream,
        ):
            rows = Grouped(writer)
            for batch in stream:
                full = _complete(pa.Table.from_batches([batch]), codes)
                self._submissions.add(full)
                rows.add(full)
            rows.finish()
        self._rows["submissions.parquet"] = writer.rows
        _refuse_double_keys(self._folder / "submissions.parquet")

    def _write_flat(self, flat: str, codes: Codes, rough: Any) -> None:  # noqa: ANN401 - any binary stream
        # After submissions.parquet, not beside it: each open column of a file costs a compressor's memory.
        total = sum(rows for rows, _ in self._per_board.values())
        done = 0
        rough.seek(0)
        with Writer(self._folder / flat, FLAT) as writer, pa.ipc.open_stream(rough) as stream:
            rows = _Flat(writer, codes)
            for batch in stream:
                rows.add(pa.Table.from_batches([batch]), batch.column("code_sha256").to_pylist())
                done += batch.num_rows
                self._progress("files written", done, total)
            rows.finish()
        self._rows[flat] = writer.rows

    def _write_runs(self, scope: Scope) -> None:
        with Writer(self._folder / "runs.parquet", RUNS) as writer:
            grouped = Grouped(writer)
            done = 0
            for rows in self._database.runs(scope, at_once=_AT_ONCE):
                shown_rows = [(*row[:_HOST], self._namer.host(row[_HOST]), *row[_HOST + 1 :]) for row in rows]
                some = table(RUNS, shown_rows)
                self._runs.add(some)
                grouped.add(some)
                done += len(rows)
                self._progress("runs", done, 0)
            grouped.finish()
        self._rows["runs.parquet"] = writer.rows

    def _write_leaderboards(self, boards: Sequence[DataBoard]) -> None:
        rows = [
            (
                board.id,
                board.name,
                board.deadline_us,
                board.lang,
                board.ranking_by,
                board.description,
                list(board.gpu_types),
                board.visibility,
                board.demanded_timing,
                self._options.notes.get(board.name),
            )
            for board in boards
        ]
        with Writer(self._folder / "leaderboards.parquet", LEADERBOARDS) as writer:
            whole = table(LEADERBOARDS, rows)
            self._leaderboards.add(whole)
            writer.group(whole)
        self._rows["leaderboards.parquet"] = writer.rows

    def _finish(self, flat: str, moment: Moment, boards: Sequence[DataBoard], people: Sequence[People]) -> None:
        """Write the card and, last, the manifest."""
        options = self._options
        by_board = {line.leaderboard_id: line for line in people}
        found: Manifest = {
            "format": manifest.FORMAT,
            "exported_at": manifest.moment(moment.at_us),
            "private": options.private,
            "licence": options.licence,
            "identity": options.identity.value,
            "software": {"kernel-runner": __version__, "pyarrow": pa.__version__, "postgresql": moment.server},
            "replica": moment.replica,
            "queries_sha256": queries_sha256(),
            "content_sha256": content_sha256(self._submissions, self._runs, self._leaderboards),
            "flat": flat,
            "boards": [
                _board(board, by_board.get(board.id), self._per_board.get(board.id, [0, 0]), options)
                for board in boards
            ],
            "excluded": {
                "by_user": sum(line.by_user for line in people),
                "by_submission": sum(line.by_submission for line in people),
                "of_banned_users": sum(line.of_banned for line in people) if options.without_banned else 0,
            },
        }
        (self._folder / "README.md").write_text(card.render(found, self._rows), encoding="utf-8")
        schemas = {
            flat: FLAT,
            "submissions.parquet": SUBMISSIONS,
            "runs.parquet": RUNS,
            "leaderboards.parquet": LEADERBOARDS,
        }
        files: list[dict[str, Any]] = []
        for path in files_of(self._folder):
            entry: dict[str, Any] = {"path": path}
            if path in self._rows:
                entry["rows"] = self._rows[path]
                entry["schema"] = shown(schemas.get(path, CODE))
            entry["bytes"] = (self._folder / path).stat().st_size
            entry["sha256"] = sha256_of(self._folder / path)
            files.append(entry)
        found["files"] = files
        manifest.write(self._folder, found)
        self._manifest = found


def _complete(rows: pa.Table, codes: Codes) -> pa.Table:
    """Rows of submissions.parquet: what the database says, and what the code itself says."""
    hashes = rows.column("code_sha256").to_pylist()
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    if any(codes.flags(sha256) for sha256 in hashes):
        merged = [
            sorted({*some, *codes.flags(sha256)})
            for some, sha256 in zip(columns["flags"].to_pylist(), hashes, strict=True)
        ]
        columns["flags"] = pa.chunked_array([pa.array(merged, SUBMISSIONS.field("flags").type)])
    encodings = pa.array([codes.encoding(sha256) for sha256 in hashes], pa.large_string())
    columns["code_encoding"] = pa.chunked_array([encodings])
    return pa.Table.from_arrays([columns[name] for name in SUBMISSIONS.names], schema=SUBMISSIONS)


class _Flat:
    """Collects rows of the flat file and writes them with their code, in groups of `GROUP_BYTES` at most."""

    def __init__(self, writer: Writer, codes: Codes) -> None:
        self._writer = writer
        self._codes = codes
        self._tables: list[pa.Table] = []
        self._hashes: list[str] = []
        self._bytes = 0

    def add(self, rows: pa.Table, hashes: Sequence[str]) -> None:
        """Take rows, with the hash of the code of each."""
        rows = rows.select([name for name in FLAT.names if name != "code"])
        first = 0
        for number, sha256 in enumerate(hashes):
            size = self._codes.size(sha256)
            if self._hashes and (self._bytes + size > GROUP_BYTES or len(self._hashes) >= GROUP_ROWS):
                self._tables.append(rows.slice(first, number - first))
                self.finish()
                first = number
            self._hashes.append(sha256)
            self._bytes += size
        self._tables.append(rows.slice(first))

    def finish(self) -> None:
        """Write what was collected."""
        if self._hashes:
            codes = self._codes
            texts = [code_files.as_text(codes.read(sha256), codes.encoding(sha256)) for sha256 in self._hashes]
            column = pa.array(texts, pa.large_binary()).view(pa.large_string())
            rows = pa.concat_tables(self._tables).combine_chunks()
            self._writer.group(pa.Table.from_arrays([*rows.columns, pa.chunked_array([column])], schema=FLAT))
        self._tables, self._hashes, self._bytes = [], [], 0


def _chosen(boards: Sequence[DataBoard], options: Options) -> Sequence[DataBoard]:
    """The leaderboards to export, if they may be."""
    by_name = {board.name: board for board in boards}
    unknown = [name for name in (*options.boards, *options.notes) if name not in by_name]
    if unknown:
        raise DataError(
            f"there is no leaderboard {unknown[0]!r}; `kernel-runner leaderboard list` shows those that are"
        )
    chosen = [board for board in boards if not options.boards or board.name in options.boards]
    if options.private:
        return chosen
    kept_back = [
        f"{board.name} ({'open until ' + manifest.moment(board.deadline_us) if board.open else board.visibility})"
        for board in chosen
        if board.open or board.visibility != "public"
    ]
    if kept_back:
        raise DataError(
            f"a public export may not have leaderboards that are open or not public: {', '.join(kept_back)}. Choose "
            "others with --leaderboard, or export for yourself with --private"
        )
    if not options.licence:
        raise DataError("a public export needs a licence, e.g. --licence cc-by-4.0; --private does without")
    return chosen


def _refuse_addresses(people: Sequence[People], options: Options) -> None:
    addresses = sum(line.addresses for line in people)
    if addresses and not options.private and options.identity is not Identity.PSEUDONYM:
        raise DataError(
            f"{addresses} users have an address of electronic mail for an id, which a public export may not show; use "
            "--identity pseudonym"
        )


def _flat_name(boards: Sequence[DataBoard], options: Options) -> str:
    name = options.name or (re.sub(r"[^A-Za-z0-9._-]", "_", boards[0].name) if len(boards) == 1 else "kernels")
    if not _NAME.fullmatch(name):
        raise DataError(
            f"{name!r} cannot be the name of a data set: use letters, digits, dot, dash and underscore (--name)"
        )
    return name


def _board(board: DataBoard, people: People | None, counts: Sequence[int], options: Options) -> dict[str, Any]:
    return {
        "id": board.id,
        "name": board.name,
        "deadline": manifest.moment(board.deadline_us),
        "open": board.open,
        "visibility": board.visibility,
        "gpu_types": list(board.gpu_types),
        "submissions": 0 if people is None else people.submissions,
        "users": 0 if people is None else people.users,
        "rows": counts[0],
        "ranked": counts[1],
        "trust_note": options.notes.get(board.name),
    }


def _sound_parts(target: Path, old: Manifest) -> Iterator[tuple[Path, str]]:
    """The parts of an older export that are as its manifest says."""
    for name, entry in sorted(manifest.paths(old).items()):
        path = target / name
        if re.fullmatch(r"code/part-\d{5}\.parquet", name) and path.is_file() and sha256_of(path) == entry["sha256"]:
            yield path, name


def _refuse_double_keys(path: Path) -> None:
    keys = pq.read_table(path, columns=["submission_id", "runner"])
    if keys.group_by(["submission_id", "runner"]).aggregate([]).num_rows != keys.num_rows:
        raise DataError("two rows have the same submission and runner; nothing was exported")


def _copy_shipped(folder: Path) -> None:
    """Put the queries and scripts of every export into it."""
    _copy(resources.files("runner.data").joinpath("shipped"), folder)


def _copy(source: Traversable, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir():
            if entry.name != "__pycache__":
                _copy(entry, folder / entry.name)
        else:
            (folder / entry.name).write_bytes(entry.read_bytes())
