"""Writes an export: all files from one snapshot of the database, into a new folder that then takes the target's place.

Rows are read, completed and written a row group at a time, so memory does not grow with the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from runner import __version__
from runner.base.errors import DataError
from runner.extras import receipts
from runner.extras.data import Progress, card, listed, manifest
from runner.extras.data.choice import Options, chosen, flat_name, refuse_addresses
from runner.extras.data.code import PLAIN, Codes, as_text
from runner.extras.data.folder import MANIFEST, copy_shipped, files_of, replace, sha256_of, staging
from runner.extras.data.manifest import Manifest
from runner.extras.data.people import Namer
from runner.extras.data.snapshot import DataBoard, Moment, People, Scope, Snapshot, queries_sha256, snapshot
from runner.extras.data.tables import (
    FINALS,
    FLAT,
    GROUP_BYTES,
    LEADERBOARDS,
    RECEIPTS,
    RECEIPTS_FILE,
    RUNS,
    SUBMISSIONS,
    Digest,
    Writer,
    content_sha256,
    groups,
    schema_of,
    shown,
    table,
)

#: How many unknown lines of a list of exclusions a message names.
_UNKNOWN_SHOWN: Final = 5
#: What the database says of a row.
_FROM_DATABASE: Final = pa.schema([field for field in SUBMISSIONS if field.name != "code_encoding"])


def export(dsn: str, options: Options, progress: Progress) -> Manifest:
    """Export; returns the manifest. `progress` gets a stage, how much of it is done, and how much there is.

    Raises:
        DataError: the target is no folder for it, a leaderboard is unknown or may not be published, a licence or a key
            is missing, the list of exclusions names an unknown user or submission, or the database's rows are not
            sound; the target is untouched.
        DatabaseUnavailableError: the database cannot be reached, went away, refuses this user, or is a replica that had
            to cancel the export; likewise.
    """
    target = options.target.resolve()
    _require_no_other(target)
    namer = Namer(options.identity, options.key)
    with staging(target) as folder:
        with snapshot(dsn) as database:
            moment = database.moment()
            boards = chosen(database.boards(), options)
            scope, people = _scope(database, boards, options)
            writing = _Writing(database, scope, namer=namer, folder=folder, progress=progress)
            flat = f"{flat_name(boards, options)}_submissions.parquet"
            writing.write(flat, boards, options)
        _compare(folder, boards, people)
        copy_shipped(folder)
        document = writing.describe(flat, moment, boards, people, options)
        replace(target, folder)
    return document


def _require_no_other(target: Path) -> None:
    """Check that the target is new, empty, or an export alone: it is replaced as a whole.

    Raises:
        DataError: it holds something else.
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise DataError(f"{target} is no folder; name a new folder, an empty one, or an export")
    exported = {MANIFEST, *manifest.paths(manifest.read(target))} if (target / MANIFEST).exists() else set()
    others = [path for path in files_of(target) if path not in exported]
    if others:
        raise DataError(f"{target} holds {others[0]!r}, which no export wrote; move it away, or name another folder")


def _scope(database: Snapshot, boards: Sequence[DataBoard], options: Options) -> tuple[Scope, Sequence[People]]:
    """Which rows are exported, and whose they are.

    Raises:
        DataError: the list of exclusions names an unknown user or submission. An export would publish a mistyped one.
    """
    exclusions = options.exclusions
    scope = Scope(
        boards=tuple(board.id for board in boards), users=exclusions.users, submissions=exclusions.submissions
    )
    unknown = database.unknown(scope)
    if unknown:
        lines = listed(unknown, most=_UNKNOWN_SHOWN)
        raise DataError(f"the list of exclusions names what is not in the database: {lines}; correct these lines")
    people = database.people(scope)
    refuse_addresses(people, options)
    return scope, people


class _Writing:
    """An export that is being written."""

    def __init__(self, database: Snapshot, scope: Scope, *, namer: Namer, folder: Path, progress: Progress) -> None:
        self._database = database
        self._scope = scope
        self._namer = namer
        self._folder = folder
        self._progress = progress
        self._digests: dict[str, Digest] = {}
        self.codes = Codes(database)
        #: What the receipts are checked with.
        self._keys: Sequence[Mapping[str, Any]] = ()
        #: Path of each parquet file -> its rows.
        self._files: dict[str, int] = {}
        #: Leaderboard -> rows, and rows with a score.
        self.rows: Counter[int] = Counter()
        self.ranked: Counter[int] = Counter()

    def write(self, flat: str, boards: Sequence[DataBoard], options: Options) -> None:
        """Write all parquet files."""
        self._files.update(self.codes.write_parts(self._folder, self._scope, self._progress))
        with Writer(self._folder / flat, FLAT) as flat_file:
            self._write("submissions.parquet", SUBMISSIONS, self._completed(flat_file))
        self._files[flat] = flat_file.rows
        self._write("runs.parquet", RUNS, self._read_runs())
        lines = [
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
                options.note_of(board),
            )
            for board in boards
        ]
        self._write("leaderboards.parquet", LEADERBOARDS, iter([table(LEADERBOARDS, lines)]))
        finals = (self._named(FINALS, lines) for lines in self._database.stream("finals", self._scope))
        self._write("finals.parquet", FINALS, finals)
        if options.receipts:
            self._write(RECEIPTS_FILE, RECEIPTS, self._read_receipts())
            self._keys = receipts.listed(self._database.host_keys())

    def _write(self, name: str, schema: pa.Schema, pieces: Iterator[pa.Table]) -> None:
        digest = self._digests[name] = Digest()
        with Writer(self._folder / name, schema) as writer:
            for group in groups(pieces):
                digest.add(group)
                writer.group(group)
        self._files[name] = writer.rows

    def _completed(self, flat_file: Writer) -> Iterator[pa.Table]:
        """The rows of submissions.parquet; each is also written to the flat file, with its code."""
        pieces = (self._named(_FROM_DATABASE, lines) for lines in self._database.stream("submissions", self._scope))
        for group in groups(pieces, code_bytes=GROUP_BYTES):
            hashes = group.column("code_sha256").to_pylist()
            odd = [self.codes.odd.get(sha256, (PLAIN, ())) for sha256 in hashes]
            encodings = [encoding for encoding, _ in odd]
            flags = [
                sorted({*checks, *own}) if own else checks
                for checks, (_, own) in zip(group.column("flags").to_pylist(), odd, strict=True)
            ]
            columns = dict(zip(group.column_names, group.columns, strict=True))
            columns["flags"] = pa.array(flags, SUBMISSIONS.field("flags").type)
            columns["code_encoding"] = pa.array(encodings, pa.large_string())
            codes = self.codes.read(group.column("code_id").to_pylist(), hashes)
            texts = [as_text(code, encoding) for code, encoding in zip(codes, encodings, strict=True)]
            columns["code"] = pa.array(texts, pa.large_binary()).view(pa.large_string())
            flat_file.group(pa.Table.from_arrays([columns[name] for name in FLAT.names], schema=FLAT))
            boards, scores = group.column("leaderboard_id").to_pylist(), group.column("score").to_pylist()
            self.rows.update(boards)
            self.ranked.update(board for board, score in zip(boards, scores, strict=True) if score is not None)
            self._progress("submissions", flat_file.rows, 0)
            yield pa.Table.from_arrays([columns[name] for name in SUBMISSIONS.names], schema=SUBMISSIONS)

    def _named(self, schema: pa.Schema, lines: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Rows with the ids and names of users as they are shown."""
        at = schema.get_field_index("user_id")
        return table(
            schema,
            [(*line[:at], *self._namer.user(line[at], line[at + 1]), *line[at + 2 :]) for line in lines],
        )

    def _read_runs(self) -> Iterator[pa.Table]:
        at = RUNS.get_field_index("host")
        rows = 0
        for lines in self._database.stream("runs", self._scope):
            yield table(RUNS, [(*line[:at], self._namer.host(line[at]), *line[at + 1 :]) for line in lines])
            rows += len(lines)
            self._progress("runs", rows, 0)

    def _read_receipts(self) -> Iterator[pa.Table]:
        for lines in self._database.stream("receipts", self._scope):
            yield table(RECEIPTS, [(*line[:5], receipts.text_of(*line[5:])) for line in lines])

    def describe(
        self, flat: str, moment: Moment, boards: Sequence[DataBoard], people: Sequence[People], options: Options
    ) -> Manifest:
        """Write the card and, last, the manifest."""
        by_board = {line.leaderboard_id: line for line in people}
        document: Manifest = {
            "format": manifest.FORMAT,
            "exported_at": manifest.moment(moment.at_us),
            "private": options.private,
            "licence": options.licence,
            "identity": options.identity.value,
            "software": {"kernel-runner": __version__, "pyarrow": pa.__version__, "postgresql": moment.server},
            "replica": moment.replica,
            "queries_sha256": queries_sha256(),
            "content_sha256": content_sha256(self._digests),
            "flat": flat,
            **({"keys": self._keys} if options.receipts else {}),
            "boards": [self._board(board, by_board.get(board.id), options) for board in boards],
            "excluded": {
                "by_user": sum(line.by_user for line in people),
                "by_submission": sum(line.by_submission for line in people),
            },
        }
        (self._folder / "README.md").write_text(card.render(document, self._files), encoding="utf-8")
        document["files"] = [self._entry(path, flat) for path in files_of(self._folder)]
        manifest.write(self._folder, document)
        return document

    def _board(self, board: DataBoard, people: People | None, options: Options) -> Mapping[str, Any]:
        return {
            "id": board.id,
            "name": board.name,
            "deadline": manifest.moment(board.deadline_us),
            "open": board.open,
            "visibility": board.visibility,
            "code_open": board.code_open,
            "gpu_types": list(board.gpu_types),
            "submissions": 0 if people is None else people.submissions,
            "users": 0 if people is None else people.users,
            "rows": self.rows[board.id],
            "ranked": self.ranked[board.id],
            "trust_note": options.note_of(board),
        }

    def _entry(self, path: str, flat: str) -> Mapping[str, Any]:
        entry: dict[str, Any] = {"path": path}
        if path in self._files:
            entry["rows"] = self._files[path]
            entry["schema"] = shown(schema_of(path, flat=flat))
        entry["bytes"] = (self._folder / path).stat().st_size
        entry["sha256"] = sha256_of(self._folder / path)
        return entry


def _compare(folder: Path, boards: Sequence[DataBoard], people: Sequence[People]) -> None:
    """Check the keys of the rows, and compare the rows with a count of the database's submissions.

    Raises:
        DataError: two rows have the same key, or there are more or fewer rows than submissions make.
    """
    path = folder / "submissions.parquet"
    keys = pq.read_table(path, columns=["submission_id", "runner"])
    if keys.group_by(keys.column_names).aggregate([]).num_rows != keys.num_rows:
        raise DataError("two rows have the same submission and runner; nothing was exported")
    rows = pq.read_table(path, columns=["leaderboard_id", "user_id", "code_id"])
    pairs = Counter(rows.group_by(rows.column_names).aggregate([]).column("leaderboard_id").to_pylist())
    expected = {line.leaderboard_id: line.pairs for line in people}
    for board in boards:
        if pairs[board.id] != expected.get(board.id, 0):
            raise DataError(
                f"leaderboard {board.name} has {expected.get(board.id, 0)} pairs of user and code in the database, "
                f"and {pairs[board.id]} in the rows; nothing was exported"
            )
