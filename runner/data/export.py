"""Writes an export: all files from one snapshot of the database, beside the old export, then in its place.

Three connections read the snapshot at once: rows, runs, and code; a fourth holds it. What the older export in the
folder has is not read again: code by its hash, rows and runs by what `watermark` says, and row groups of files as they
are. The result is that of an export into an empty folder, byte for byte but for the moment in the manifest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runner import __version__
from runner.data import Progress, card, manifest, rows
from runner.data import code as code_files
from runner.data.arrow import Reader, cast
from runner.data.choice import Options, chosen, flat_name, refuse_addresses
from runner.data.code import Codes, Known, Part
from runner.data.folder import MANIFEST, carry_over, copy_shipped, files_of, replace, sha256_of, staging
from runner.data.manifest import Manifest
from runner.data.memory import lean, trim
from runner.data.older import OlderExport
from runner.data.people import Identity, Namer
from runner.data.runs import RunsFile
from runner.data.tables import (
    BLOCK,
    CODE,
    FLAT,
    GROUP_BYTES,
    LEADERBOARDS,
    RUNS,
    SUBMISSIONS,
    Digest,
    Writer,
    columns_of,
    content_sha256,
    shown,
    table,
)
from runner.data.watermark import Changes, Seen, Watermark, changes, key_proof, unchanged
from runner.errors import DataError
from runner.store import queries
from runner.store.dataset import DataBoard, Moment, People, Scope, Snapshot, queries_sha256, snapshot

#: What the database says of a row.
_ROUGH: Final = pa.schema(
    [
        SUBMISSIONS.field(name).with_nullable(True)  # a missing hash is an error of its own
        for name in SUBMISSIONS.names
        if name not in ("flags", "sol", "code_encoding")
    ]
)
_LAST: Final = 2**31 - 1
#: Rows per block of submissions (None: leaderboards) and per block of codes, and how many of them are newer.
Versions = tuple[Mapping[int | None, tuple[int, int]], Mapping[int, tuple[int, int]]]
#: Submissions that are looked up one by one; more are read with all others.
_TOUCHED: Final = 20_000


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
    """Export. `progress` is told a stage, how much of it is done, and how much there is; by several threads.

    Raises:
        DataError: the target is no folder for it, a leaderboard is unknown or may not be published, a licence or a key
            is missing, or the database's rows are not sound; the target is untouched.
        DatabaseUnavailableError: the database cannot be reached, went away, refuses this user, or is a replica that had
            to cancel the export; likewise.
    """
    target = options.target.resolve()
    old = OlderExport.of(target)
    namer = Namer(options.identity, options.key)
    with lean(), staging(target) as folder:
        with snapshot(dsn) as database, ExitStack() as stack:
            hashing = ThreadPoolExecutor(1)
            stack.callback(hashing.shutdown, cancel_futures=True)
            old.begin(hashing)
            made = _Making(dsn, database, options=options, namer=namer, folder=folder, progress=progress, old=old)
            made.write()
        if old.manifest is not None or target.exists():
            carry_over(target, folder, {MANIFEST, *({} if old.manifest is None else manifest.paths(old.manifest))})
        replace(target, folder)
    return made.summary(target)


@dataclass(frozen=True, kw_only=True)
class _Unchanged:
    """What is known of the older export's runs."""

    #: Block -> digest of its runs.
    blocks: Mapping[int, str | None] = field(default_factory=dict)
    #: The block of each row group of the older file.
    groups: Sequence[int] = ()
    #: The last block that may have runs.
    last: int = -1
    #: Where rows of submissions may be others; None: anywhere.
    changes: Changes | None = None
    #: The older export's `Seen.number`.
    since: int = 0


class _Making:
    """One export in the making."""

    def __init__(
        self,
        dsn: str,
        database: Snapshot,
        *,
        options: Options,
        namer: Namer,
        folder: Path,
        progress: Progress,
        old: OlderExport,
    ) -> None:
        self._dsn = dsn
        self._database = database
        self._options = options
        self._namer = namer
        self._folder = folder
        self._progress = progress
        self._old = old
        self._submissions, self._leaderboards = Digest(), Digest()
        self._runs: RunsFile | None = None
        self._figures = rows.Figures()
        self._flags: dict[int, list[tuple[int | None, str]]] = {}
        #: Path -> rows and SHA-256 of each file that is written.
        self._written: dict[str, tuple[int, str]] = {}
        self._per_board: dict[int, list[int]] = {}
        self._fetched = 0
        self._codes = 0
        #: Of each row the place of the equal one in the older export, or -1; None: not known.
        self._same: code_files.Integers | None = None
        self._manifest: Manifest = {}

    def write(self) -> None:
        """Write every file of the export into the folder."""
        database = self._database
        moment = database.moment()
        boards = chosen(database.boards(), self._options)
        flat = f"{flat_name(boards, self._options)}_submissions.parquet"
        shared = database.shared()
        with ExitStack() as stack:
            codes = stack.enter_context(closing(Codes(self._folder)))
            rough = stack.enter_context(tempfile.TemporaryFile(dir=self._folder))
            for_rows = stack.enter_context(Reader(self._dsn, shared))
            for_runs = stack.enter_context(Reader(self._dsn, shared))
            for_code = stack.enter_context(Reader(self._dsn, shared))
            threads = stack.enter_context(ThreadPoolExecutor(3))
            # These need no more than the leaderboards, and would be most of a second export one after the other.
            everyone = Scope(boards=tuple(board.id for board in boards))
            flags_read = threads.submit(self._read_flags, for_rows, everyone)
            hosts_read = threads.submit(self._read_hosts, for_runs, everyone)
            versions_read = threads.submit(self._read_versions, for_code, moment)
            scope, people = self._scope(boards)
            refuse_addresses(people, self._options)
            mark, known = self._marks(scope, hosts_read.result(), versions_read.result())
            runs_done = threads.submit(self._write_runs, for_runs, scope, known)
            rows_read: Future[None] | None = None
            merged = self._merged(for_code, scope, known)
            if merged is None:
                rows_read = threads.submit(self._read_rows, for_rows, scope, rough, flags_read)
                self._want(codes, for_code.batches(database.statement(queries.DATASET_CODES, scope.parameters())))
            else:
                self._put_aside(self._noting(merged), rough)
                with rows.stored(rough) as pieces:
                    self._want(codes, pieces)
            trim()
            parts = self._known_parts(codes)
            trim()
            self._write_rows(
                flat=flat,
                codes=codes,
                rough=rough,
                known_parts=parts,
                fetched=self._fetched_code(for_code, codes, parts),
                rows_read=rows_read,
                flags_read=flags_read,
                runs_done=runs_done,
                threads=threads,
                reader=for_rows,
                scope=scope,
                known=known,
            )
            self._codes = len(codes)
        self._compare(boards, people)
        self._write_leaderboards(boards)
        copy_shipped(self._folder)
        self._finish(flat, moment, boards, people, mark)

    def summary(self, target: Path) -> Summary:
        """What was written."""
        return Summary(
            target=target,
            rows=sum(count for count, _ in self._per_board.values()),
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

    # -- what need not be read again ---------------------------------------------------------------------------------

    def _older_mark(self) -> Watermark | None:
        """What the older export noted."""
        return None if self._old.manifest is None else Watermark.from_json(self._old.manifest.get("watermark"))

    def _read_hosts(self, reader: Reader, scope: Scope) -> list[int]:
        """Number the hosts, unless a key names them; the submission of the first run of each, in their order."""
        if self._options.key is not None:
            return []
        first_runs: list[int] = []
        for batch in reader.batches(self._database.statement(queries.DATASET_HOSTS, scope.parameters())):
            for host in batch.column("host_sha256").to_pylist():
                self._namer.host(host)
            first_runs += batch.column("first_submission_id").to_pylist()
        return first_runs

    def _read_versions(self, reader: Reader, moment: Moment) -> Versions | None:
        """How many rows there are and how many are newer than the older export; None: that cannot be known."""
        if moment.replica or not moment.history_known:
            return None
        older = self._older_mark()
        parameters = {"since": 0 if older is None else older.seen.number, "block": BLOCK}
        versions, of_codes = {}, {}
        for batch in reader.batches(self._database.statement(queries.DATASET_VERSIONS, parameters)):
            for block, code_block, held, newer in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if code_block is None:
                    versions[block] = held, newer
                else:
                    of_codes[code_block] = held, newer
        return versions, of_codes

    def _marks(
        self, scope: Scope, first_runs: Sequence[int], found_versions: Versions | None
    ) -> tuple[Watermark | None, _Unchanged]:
        """What is noted for the next export, and what the older one has of runs."""
        # A list of exclusions is not noted, so exports with one are read in full.
        if found_versions is None or scope.users or scope.submissions:
            return None, _Unchanged()
        versions, of_codes = found_versions
        found = self._database.watermark()
        old, older = self._old.manifest, self._older_mark()
        since = 0 if older is None else older.seen.number
        mark = Watermark(
            seen=Seen.parse(found["seen"]),
            text=found["seen"],
            history=found["history"],
            key=key_proof(self._options.key),
            hosts=first_runs,
            leaderboards=versions.get(None, (0, 0))[0],
            blocks={block: (held, None) for block, (held, _) in versions.items() if block is not None},
            codes={block: held for block, (held, _) in of_codes.items()},
        )
        last = max(mark.blocks, default=-1)
        if (
            old is None
            or older is None
            or not self._old.equal
            or old.get("queries_sha256") != queries_sha256()
            or [board["id"] for board in old["boards"]] != list(scope.boards)
            or any(old["excluded"].values())
            or self._old.file("runs.parquet") is None
            or self._old.file("submissions.parquet") is None
        ):
            return mark, _Unchanged(last=last)
        same = unchanged(older, mark, versions)
        groups = [block for block, (_, digest) in sorted(older.blocks.items()) if digest is not None]
        known = {block: older.blocks[block][1] for block in same}
        named = old["identity"] == self._options.identity.value
        found_changes = changes(older, mark, versions, of_codes) if named else None
        return mark, _Unchanged(blocks=known, groups=groups, last=last, changes=found_changes, since=since)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read_flags(self, reader: Reader, scope: Scope) -> None:
        """Note the flags of rows."""
        flags = self._database.statement(queries.DATASET_FLAGS, scope.parameters())
        for batch in reader.batches(flags):
            for submission_id, run_id, check in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                self._flags.setdefault(submission_id, []).append((run_id, check))

    def _read_rows(self, reader: Reader, scope: Scope, rough: IO[bytes], flags_read: Future[None]) -> None:
        """Put all rows aside, when the reader is free."""
        flags_read.result()
        statement = self._database.statement(queries.DATASET_SUBMISSIONS, {**scope.parameters(), "only": None})
        self._put_aside(self._shown(reader.batches(statement)), rough)

    def _put_aside(self, pieces: Iterable[pa.Table], rough: IO[bytes]) -> None:
        """Put rows aside, and count them."""
        done = 0
        for some in rows.put_aside(rough, _ROUGH, pieces):
            for board, count, ranked in rows.counted(some):
                counts = self._per_board.setdefault(board, [0, 0])
                counts[0] += count
                counts[1] += ranked
            done += some.num_rows
            self._progress("submissions", done, 0)

    def _shown(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Rows that were read, as they are to be shown."""
        for batch in batches:
            some = cast(batch, _ROUGH)
            lost = rows.missing_code(some)
            if lost is not None:
                raise DataError(f"code {lost[0]} of submission {lost[1]} is missing; nothing was exported")
            yield some if self._options.identity is Identity.NAME else rows.named(some, self._namer.user)

    def _noting(self, merged: Iterable[tuple[pa.Table, code_files.Integers]]) -> Iterator[pa.Table]:
        """Rows, whose places in the older export are noted on the way."""
        self._same = np.zeros(0, np.int64)
        for some, places in merged:
            self._same = np.concatenate([self._same, places])
            yield some

    def _merged(
        self, reader: Reader, scope: Scope, known: _Unchanged
    ) -> Iterator[tuple[pa.Table, code_files.Integers]] | None:
        """All rows: those of the older export that must be as they were, and the others read. None: read all.

        As `rows.merged` gives them.
        """
        path = self._old.file("submissions.parquet") if known.changes is not None else None
        if known.changes is None or path is None:
            return None
        older = pa.Table.from_arrays(columns_of(path, _ROUGH.names).columns, schema=_ROUGH)
        users = [
            self._namer.user(user_id, user_name)
            for batch in reader.batches(self._database.statement(queries.DATASET_USERS, {}))
            for user_id, user_name in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]
        doubtful = set(rows.codes_in_doubt(older, known.changes.rewritten, users))
        parameters = {
            "since": known.since,
            "block": BLOCK,
            "appended": sorted(known.changes.appended),
            "rewritten": sorted(known.changes.rewritten),
            "code_blocks": sorted(known.changes.code_blocks),
            "codes": sorted(doubtful),
        }
        touched: set[int] = set()
        for batch in reader.batches(self._database.statement(queries.DATASET_TOUCHED, parameters)):
            touched.update(batch.column(0).to_pylist())
            doubtful.update(batch.column(1).to_pylist())
        if len(touched) > _TOUCHED:
            return None
        statement = self._database.statement(
            queries.DATASET_SUBMISSIONS, {**scope.parameters(), "only": sorted(touched)}
        )
        return rows.merged(older, doubtful, self._shown(reader.batches(statement)))

    def _write_runs(self, reader: Reader, scope: Scope, known: _Unchanged) -> None:
        """Write runs.parquet, and note what cases say."""

        def statement(query: queries.Query, first: int, last: int) -> str:
            return self._database.statement(query, {**scope.parameters(), "first": first, "last": last, "runs": None})

        def read(first: int, last: int) -> Iterator[pa.RecordBatch]:
            self._figures.add(reader.batches(statement(queries.DATASET_FIGURES, first, last)))
            yield from reader.batches(statement(queries.DATASET_RUNS, first, last))

        self._runs = RunsFile(
            self._folder / "runs.parquet", self._namer.host, lambda done: self._progress("runs", done, 0)
        )
        old = self._old.file("runs.parquet") if known.blocks else None
        written = self._runs.write(
            read=read, old=old, known=known.blocks, old_blocks=known.groups, last_block=known.last
        )
        self._written["runs.parquet"] = written.rows, written.sha256

    @staticmethod
    def _want(codes: Codes, pieces: Iterable[pa.RecordBatch | pa.Table]) -> None:
        """Note which codes the export needs: hash, id and bytes of each, and a submission."""
        names = ["code_sha256", "code_id", "code_bytes", "submission_id"]
        found = [pa.Table.from_arrays([some.column(name) for name in names], names) for some in pieces]
        if not found:
            return
        wanted = pa.concat_tables(found)
        lost = rows.missing_code(wanted)
        if lost is not None:
            raise DataError(f"code {lost[0]} of submission {lost[1]} is missing; nothing was exported")
        codes.want(
            wanted.column("code_sha256").cast(pa.large_string()),
            wanted.column("code_id").cast(pa.int64()).to_numpy(),
            wanted.column("code_bytes").cast(pa.int64()).to_numpy(),
        )

    def _known_parts(self, codes: Codes) -> list[Known]:
        """The parts of the older export; what they say of codes is noted."""
        path = self._old.file("submissions.parquet")
        # Without the older rows it is not known which of the older codes are blank.
        if path is None:
            return []
        found = columns_of(path, ["code_sha256", "flags"])
        flags = found.column("flags").combine_chunks()
        blank = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), "code_blank"))
        codes.note_blank(found.column("code_sha256").take(blank))
        return code_files.known_parts([path for _, path in self._old.parts()], codes)

    def _fetched_code(self, reader: Reader, codes: Codes, parts: Sequence[Known]) -> Iterator[int]:
        """Fetch the code that the older export does not have; yields the number up to which all of it is there."""
        new = np.ones(len(codes), bool)
        for part in parts:
            new[part.numbers[part.numbers >= 0]] = False
        numbers = np.flatnonzero(new)
        self._fetched = len(numbers)
        return codes.fetch(
            numbers,
            lambda ids: reader.batches(self._database.statement(queries.DATASET_CODE, {"ids": list(ids)})),
            self._progress,
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write_rows(
        self,
        *,
        flat: str,
        codes: Codes,
        rough: IO[bytes],
        known_parts: Sequence[Known],
        fetched: Iterator[int],
        rows_read: Future[None] | None,
        flags_read: Future[None],
        runs_done: Future[None],
        threads: ThreadPoolExecutor,
        reader: Reader,
        scope: Scope,
        known: _Unchanged,
    ) -> None:
        """Write code, submissions.parquet and the flat file."""
        by_path = {part.path: part for part in known_parts} if self._old.equal else {}
        parts = []
        for number, (first, last) in enumerate(codes.parts()):
            name = code_files.part_name(number)
            parts.append((name, Part(self._folder / name, codes, first, last, by_path.get(self._old.target / name))))
        if not known_parts:
            # Written while the rest is being fetched.
            self._write_parts(parts, codes, fetched)
        for _ in fetched:
            pass
        if rows_read is not None:
            rows_read.result()
        numbers = _code_numbers(codes, rough)
        older = self._older_flat(codes, numbers, rough) if known_parts else None
        plan = rows.planned(numbers, codes, GROUP_BYTES, same=self._same, older=None if older is None else older.edges)
        if known_parts:
            for_parts = np.concatenate([part.needed for _, part in parts])
            self._take_code(codes, known_parts, older, for_parts, plan)
            self._write_parts(parts, codes, iter(()))
        total = sum(count for count, _ in self._per_board.values())

        def write_flat() -> None:
            with rows.stored(rough) as pieces:
                written = rows.write_flat(
                    self._folder / flat,
                    rows=pieces,
                    plan=plan,
                    codes=codes,
                    old=None if older is None else older.path,
                    progress=lambda done: self._progress("files written", done, total),
                )
            self._written[flat] = written.rows, written.sha256

        # Beside the other files where it is mostly copied; to encode it takes all that may be held in memory.
        flat_written = threads.submit(write_flat) if known_parts else None
        if flat_written is None:
            write_flat()
        flags_read.result()
        runs_done.result()
        self._know_figures(reader, scope, known, rough)
        path = self._folder / "submissions.parquet"
        with rows.stored(rough) as pieces:
            written = rows.write_submissions(
                path,
                rows=pieces,
                numbers=numbers,
                codes=codes,
                figures=self._figures,
                flags=self._flags,
                digest=self._submissions,
            )
        self._written["submissions.parquet"] = written.rows, written.sha256
        if flat_written is not None:
            flat_written.result()
        if rows.double_keys(path):
            raise DataError("two rows have the same submission and runner; nothing was exported")

    def _write_parts(self, parts: Sequence[tuple[str, Part]], codes: Codes, fetched: Iterator[int]) -> None:
        done = there = 0

        def ready(number: int) -> None:
            nonlocal there
            while there < number and (upto := next(fetched, None)) is not None:
                there = upto

        for name, part in parts:
            if part.same:
                code_files.link(self._old.target / name, part.path)
                found = {} if self._old.manifest is None else manifest.paths(self._old.manifest)[name]
                self._written[name] = found["rows"], found["sha256"]
            else:
                written = part.write(ready)
                self._written[name] = written.rows, written.sha256
            done += self._written[name][0]
            self._progress("code written", done, len(codes))

    def _older_flat(self, codes: Codes, numbers: code_files.Integers, rough: IO[bytes]) -> Known | None:
        """The older export's flat file; it is noted which rows are in it. None: it is not there, or made otherwise.

        `numbers`: of the code of each row.
        """
        if self._old.manifest is None or not self._old.equal:
            return None
        submissions, flat = self._old.file("submissions.parquet"), self._old.file(self._old.manifest["flat"])
        if submissions is None or flat is None:
            return None
        if self._same is None:
            with rows.stored(rough) as pieces:
                self._same = rows.equal_rows(submissions, pieces)
        same = self._same
        found = np.full(self._old.rows("submissions.parquet"), -1, np.int64)
        found[same[same >= 0]] = numbers[same >= 0]
        return Known(flat, found, len(codes))

    def _take_code(
        self,
        codes: Codes,
        parts: Sequence[Known],
        flat: Known | None,
        for_parts: code_files.Integers,
        plan: Sequence[rows.FlatGroup],
    ) -> None:
        """Read what is to be written again from the older export's files, as few row groups as may be."""
        _take_from(parts, codes, codes.missing(for_parts), self._progress)
        of_groups = [group.codes for group in plan if group.kept is None]
        wanted = codes.missing(np.concatenate([np.zeros(0, np.int64), *of_groups]))
        if not len(wanted):
            return
        if flat is not None:
            # The flat file has no other bytes than those of valid text.
            plain = wanted[flat.has(wanted) & ~codes.is_invalid(wanted)]
            if len(flat.groups_with(plain)) < sum(len(part.groups_with(plain[part.has(plain)])) for part in parts):
                _take_from([flat], codes, plain, self._progress)
        _take_from(parts, codes, codes.missing(wanted), self._progress)

    def _know_figures(self, reader: Reader, scope: Scope, known: _Unchanged, rough: IO[bytes]) -> None:
        """Note what cases say of rows whose runs were not read."""
        path = self._old.file("submissions.parquet") if known.blocks else None
        if path is None:
            return
        found = _runs_of_blocks(columns_of(path, ["submission_id", "run_id", "sol", "flags"]), known.blocks)
        self._figures.take(found)
        with rows.stored(rough) as pieces:
            run_ids = [_runs_of_blocks(piece, known.blocks).column("run_id").to_numpy() for piece in pieces]
        unknown = np.setdiff1d(
            np.concatenate([np.zeros(0, np.int64), *run_ids]), found.column("run_id").to_numpy()
        ).tolist()
        if unknown:
            parameters = {**scope.parameters(), "first": 0, "last": _LAST, "runs": unknown}
            self._figures.add(reader.batches(self._database.statement(queries.DATASET_FIGURES, parameters)))

    def _compare(self, boards: Sequence[DataBoard], people: Sequence[People]) -> None:
        """Compare the rows with a count of the database's submissions that takes nothing from older exports."""
        found = rows.pairs(self._folder / "submissions.parquet")
        expected = {
            line.leaderboard_id: line.pairs - (line.pairs_of_banned if self._options.without_banned else 0)
            for line in people
        }
        for board in boards:
            if found.get(board.id, 0) != expected.get(board.id, 0):
                raise DataError(
                    f"leaderboard {board.name} has {expected.get(board.id, 0)} pairs of user and code in the database, "
                    f"and {found.get(board.id, 0)} in the rows; nothing was exported"
                )

    def _write_leaderboards(self, boards: Sequence[DataBoard]) -> None:
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
                self._options.note_of(board),
            )
            for board in boards
        ]
        with Writer(self._folder / "leaderboards.parquet", LEADERBOARDS) as writer:
            whole = table(LEADERBOARDS, lines)
            self._leaderboards.add(whole)
            writer.group(whole)
        self._written["leaderboards.parquet"] = writer.rows, writer.sha256

    def _finish(
        self,
        flat: str,
        moment: Moment,
        boards: Sequence[DataBoard],
        people: Sequence[People],
        mark: Watermark | None,
    ) -> None:
        """Write the card and, last, the manifest."""
        options = self._options
        by_board = {line.leaderboard_id: line for line in people}
        digests = {} if self._runs is None else self._runs.digests
        found: Manifest = {
            "format": manifest.FORMAT,
            "exported_at": manifest.moment(moment.at_us),
            "private": options.private,
            "licence": options.licence,
            "identity": options.identity.value,
            "software": {"kernel-runner": __version__, "pyarrow": pa.__version__, "postgresql": moment.server},
            "replica": moment.replica,
            "queries_sha256": queries_sha256(),
            "content_sha256": content_sha256(
                self._submissions, [digest for _, digest in sorted(digests.items())], self._leaderboards
            ),
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
        counts = {path: count for path, (count, _) in self._written.items()}
        (self._folder / "README.md").write_text(card.render(found, counts), encoding="utf-8")
        schemas = {
            flat: FLAT,
            "submissions.parquet": SUBMISSIONS,
            "runs.parquet": RUNS,
            "leaderboards.parquet": LEADERBOARDS,
        }
        files: list[dict[str, Any]] = []
        for path in files_of(self._folder):
            entry: dict[str, Any] = {"path": path}
            if path in self._written:
                entry["rows"] = self._written[path][0]
                entry["schema"] = shown(schemas.get(path, CODE))
            entry["bytes"] = (self._folder / path).stat().st_size
            entry["sha256"] = self._written[path][1] if path in self._written else sha256_of(self._folder / path)
            files.append(entry)
        found["files"] = files
        if mark is not None:
            blocks = {block: (held, digests.get(block)) for block, (held, _) in mark.blocks.items()}
            found["watermark"] = replaced(mark, blocks=blocks).to_json()
        manifest.write(self._folder, found)
        self._manifest = found


def _code_numbers(codes: Codes, rough: IO[bytes]) -> code_files.Integers:
    """The number of the code of each row."""
    with rows.stored(rough) as pieces:
        # Copies: what is a part of a piece holds all of it.
        hashes = [piece.column("code_sha256").take(pa.array(np.arange(piece.num_rows))) for piece in pieces]
    return codes.numbers(pa.chunked_array([chunk for some in hashes for chunk in some.chunks], pa.large_string()))


def _runs_of_blocks(found: pa.Table, blocks: Mapping[int, str | None]) -> pa.Table:
    """The rows of submissions in these blocks that have a run."""
    of = np.isin(found.column("submission_id").to_numpy() // BLOCK, list(blocks))
    return found.filter(pa.array(of & found.column("run_id").is_valid().to_numpy()))


def _take_from(files: Sequence[Known], codes: Codes, wanted: code_files.Integers, progress: Progress) -> None:
    """Take codes from files of an older export."""
    done = 0
    for file in files:
        for group, numbers in file.groups_with(wanted[file.has(wanted)]).items():
            codes.take(numbers, file.read(group, numbers))
            done += len(numbers)
            progress("code known", done, len(wanted))


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
        "trust_note": options.note_of(board),
    }
