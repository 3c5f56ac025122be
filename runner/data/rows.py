"""`submissions.parquet` and the flat file in the making: what the database says of rows, and what their code says.

A row group of the flat file ends where the hash of a code says so, so that a new row changes the group that it is in,
and no other. Groups that the older export has too are copied from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runner.data import code as code_files
from runner.data.code import Codes
from runner.data.splice import Encoded
from runner.data.tables import BLOCK, FLAT, GROUP_ROWS, SUBMISSIONS, Digest, Grouped, Writer, columns_of

#: Checks that the cases of a run alone decide, with sol: figures that stay as they are while the run does.
OF_CASES: Final = ("faster_than_light", "score_differs")
#: What the flat file has of a row, and the hash of its code.
_FLAT_ROWS: Final = pa.schema([*(field for field in FLAT if field.name != "code"), SUBMISSIONS.field("code_sha256")])


@dataclass
class Figures:
    """What the cases of runs say."""

    sol: dict[int, float] = field(default_factory=dict)
    #: Run -> checks of `OF_CASES`.
    flags: dict[int, list[str]] = field(default_factory=dict)

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take rows of the statement `dataset_figures`."""
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("run_id", "sol", *OF_CASES))
            for run_id, sol, *failed in zip(*columns, strict=True):
                self._note(run_id, sol, [name for name, found in zip(OF_CASES, failed, strict=True) if found])

    def take(self, rows: pa.Table, known: set[int]) -> None:
        """Take rows of an older `submissions.parquet`; `known` gets the runs that they are of."""
        for some in rows.to_batches(GROUP_ROWS):
            columns = (some.column(name).to_pylist() for name in ("run_id", "sol", "flags"))
            for run_id, sol, flags in zip(*columns, strict=True):
                if run_id is not None:
                    known.add(run_id)
                    self._note(run_id, sol, [name for name in flags if name in OF_CASES])

    def _note(self, run_id: int, sol: float | None, flags: list[str]) -> None:
        if sol is not None:
            self.sol[run_id] = sol
        if flags:
            self.flags[run_id] = flags


def complete(
    rows: pa.Table, codes: Codes, figures: Figures, flags: Mapping[int, list[tuple[int | None, str]]]
) -> pa.Table:
    """Rows of submissions.parquet. `flags`: submission -> runs (None: all of them) and checks."""
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    hashes = columns["code_sha256"].to_pylist()
    runs = columns["run_id"].to_pylist()
    merged: list[list[str]] = []
    for submission_id, run_id, sha256 in zip(columns["submission_id"].to_pylist(), runs, hashes, strict=True):
        found = {check for run, check in flags.get(submission_id, ()) if run is None or run == run_id}
        if run_id in figures.flags:
            found.update(figures.flags[run_id])
        if codes.odd:
            found.update(codes.flags(sha256))
        merged.append(sorted(found))
    columns["flags"] = pa.array(merged, SUBMISSIONS.field("flags").type)
    columns["sol"] = pa.array([figures.sol.get(run_id) for run_id in runs], pa.float64())
    columns["code_encoding"] = pa.array([codes.encoding(sha256) for sha256 in hashes], pa.large_string())
    return pa.Table.from_arrays([columns[name] for name in SUBMISSIONS.names], schema=SUBMISSIONS)


@contextmanager
def stored(file: IO[bytes]) -> Iterator[Iterator[pa.Table]]:
    """The rows that were put aside, in pieces."""
    file.seek(0)
    with pa.ipc.open_stream(file) as stream:
        yield (pa.Table.from_batches([batch]) for batch in stream)


@dataclass(frozen=True)
class _Planned:
    """A row group of the flat file; `kept`: the number of the older file's that is equal."""

    rows: int
    hashes: Sequence[str]
    kept: int | None


class FlatPlan:
    """Which row groups the flat file will have, and which of them the older export has."""

    def __init__(self, codes: Codes, group_bytes: int, old: Mapping[str, int]) -> None:
        """`old`: digest of each row group of the older file -> its number."""
        self._codes = codes
        self._limit = group_bytes
        self._old = old
        self._waiting: list[pa.Table] = []
        self._hashes: list[str] = []
        self._bytes = 0
        self.groups: list[_Planned] = []

    def add(self, rows: pa.Table) -> None:
        """Take rows."""
        rows = rows.select(_FLAT_ROWS.names)
        first = 0
        for number, sha256 in enumerate(map(sys.intern, rows.column("code_sha256").to_pylist())):
            size = self._codes.size(sha256)
            if self._hashes and (self._bytes + size > self._limit or len(self._hashes) >= GROUP_ROWS):
                self._end(rows.slice(first, number - first))
                first = number
            self._hashes.append(sha256)
            self._bytes += size
            if _ends_a_group(sha256, size, self._limit):
                self._end(rows.slice(first, number + 1 - first))
                first = number + 1
        self._waiting.append(rows.slice(first))

    def finish(self) -> None:
        """End the last group."""
        self._end(_FLAT_ROWS.empty_table())

    def _end(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        if self._hashes:
            kept = self._old.get(_digest(self._waiting)) if self._old else None
            self.groups.append(_Planned(len(self._hashes), self._hashes, kept))
        self._waiting, self._hashes, self._bytes = [], [], 0

    @property
    def needed(self) -> list[str]:
        """The codes that are to be written."""
        return [sha256 for group in self.groups if group.kept is None for sha256 in group.hashes]


def _ends_a_group(sha256: str, size: int, limit: int) -> bool:
    """Whether a group ends behind this code: so often that groups without a limit would have the limit on average."""
    return int(sha256[:12], 16) * limit < size * 16**12


def _digest(rows: Sequence[pa.Table]) -> str:
    digest = Digest()
    for some in rows:
        # Of one schema, whether the rows come from the database or from a file.
        digest.add(pa.Table.from_arrays(some.columns, names=_FLAT_ROWS.names))
    return digest.hex()


def digests_of(submissions: Path, flat: Path) -> dict[str, int]:
    """The digest of each row group of an older flat file, by the rows of its `submissions.parquet`."""
    found: dict[str, int] = {}
    with closing(Encoded(flat)) as groups:
        sizes = groups.rows()
    with pq.ParquetFile(submissions) as file:
        batches = (
            pa.Table.from_batches([batch])
            for batch in file.iter_batches(GROUP_ROWS, columns=_FLAT_ROWS.names, use_threads=False)
        )
        rest = _FLAT_ROWS.empty_table()
        for number, size in enumerate(sizes):
            while rest.num_rows < size:
                more = next(batches, None)
                if more is None:
                    return found
                rest = pa.concat_tables([rest.cast(more.schema), more.select(_FLAT_ROWS.names)])
            found[_digest([rest.slice(0, size).select(_FLAT_ROWS.names)])] = number
            rest = rest.slice(size)
    return found


def write_submissions(
    path: Path,
    *,
    rows: Iterable[pa.Table],
    codes: Codes,
    figures: Figures,
    flags: Mapping[int, list[tuple[int | None, str]]],
    digest: Digest,
) -> Writer:
    """Write submissions.parquet."""
    with Writer(path, SUBMISSIONS) as writer:
        grouped = Grouped(writer)
        for some in rows:
            full = complete(some, codes, figures, flags)
            digest.add(full)
            grouped.add(full)
        grouped.finish()
    return writer


def write_flat(
    path: Path,
    *,
    rows: Iterable[pa.Table],
    plan: FlatPlan,
    codes: Codes,
    old: Path | None,
    progress: Callable[[int], None],
) -> Writer:
    """Write the flat file as planned. `progress` is told how many rows are done."""
    encoded = Encoded(old) if old is not None else None
    names = [name for name in FLAT.names if name != "code"]
    done = 0
    try:
        with Writer(path, FLAT) as writer:
            waiting = FLAT.remove(FLAT.get_field_index("code")).empty_table()
            pieces = iter(rows)
            for group in plan.groups:
                while waiting.num_rows < group.rows:
                    waiting = pa.concat_tables([waiting, next(pieces).select(names).cast(waiting.schema)])
                some = waiting.slice(0, group.rows)
                waiting = waiting.slice(group.rows)
                if group.kept is not None and encoded is not None:
                    writer.copy(encoded.group(group.kept))
                else:
                    writer.build(partial(_with_code, some, group.hashes, codes))
                done += group.rows
                progress(done)
    finally:
        if encoded is not None:
            encoded.close()
    return writer


def _with_code(rows: pa.Table, hashes: Sequence[str], codes: Codes) -> pa.Table:
    if any(codes.encoding(sha256) == code_files.INVALID for sha256 in hashes):
        texts = [code_files.as_text(codes.read(sha256), codes.encoding(sha256)) for sha256 in hashes]
        column = pa.array(texts, pa.large_binary()).view(pa.large_string())
    else:
        column = codes.column(hashes).view(pa.large_string())
    return pa.Table.from_arrays([*rows.combine_chunks().columns, pa.chunked_array([column])], schema=FLAT)


def double_keys(path: Path) -> bool:
    """Whether two rows have the same submission and runner."""
    keys = columns_of(path, ["submission_id", "runner"]).combine_chunks()
    runners = keys.column("runner").combine_chunks().dictionary_encode(null_encoding="encode")
    numbers = keys.column("submission_id").to_numpy() * (len(runners.dictionary) + 1) + runners.indices.to_numpy()
    return bool(np.unique(numbers).size != keys.num_rows)


def pairs(path: Path) -> dict[int, int]:
    """Leaderboard -> how many different pairs of user and code it has."""
    keys = columns_of(path, ["leaderboard_id", "user_id", "code_id"]).combine_chunks()
    boards, codes = keys.column("leaderboard_id").to_numpy(), keys.column("code_id").to_numpy()
    users = keys.column("user_id").combine_chunks().dictionary_encode()
    numbers = users.indices.to_numpy()
    return {
        board: int(np.unique(codes[boards == board] * len(users.dictionary) + numbers[boards == board]).size)
        for board in np.unique(boards).tolist()
    }


def codes_in_doubt(older: pa.Table, blocks: Collection[int], users: Collection[tuple[str, str]]) -> list[int]:
    """The codes of an older export's rows that are of these blocks of submissions, or whose user is shown otherwise.

    `users`: ids and names of all users as they are shown now.
    """
    columns = [pa.array([user[number] for user in users], pa.large_string()) for number in range(2)]
    places = pc.index_in(older.column("user_id"), columns[0])
    names = columns[1].take(places.combine_chunks()).fill_null("")
    same = pc.equal(names, older.column("user_name").combine_chunks()).to_numpy(zero_copy_only=False)
    moved = np.isin(older.column("submission_id").to_numpy() // BLOCK, sorted(blocks))
    return [int(code) for code in np.unique(older.column("code_id").to_numpy()[moved | ~same])]


def merged(older: pa.Table, without: Collection[int], fresh: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of an older export without those of these codes, and fresh ones, in the order of an export."""
    whole = pa.concat_tables([older, *(some.cast(older.schema) for some in fresh)])
    # Nulls come last, as in PostgreSQL.
    keys = ("problem_name", "score", "submission_time", "submission_id", "runner")
    order = pc.sort_indices(whole, sort_keys=[(key, "ascending") for key in keys]).to_numpy()
    gone = np.isin(older.column("code_id").to_numpy(), sorted(without))
    order = order[~np.concatenate([gone, np.zeros(whole.num_rows - older.num_rows, bool)])[order]]
    for first in range(0, len(order), GROUP_ROWS):
        yield whole.take(pa.array(order[first : first + GROUP_ROWS]))


def named(rows: pa.Table, name: Callable[[str, str], tuple[str, str]]) -> pa.Table:
    """Rows with the ids and names of users as they are to be shown."""
    shown = [
        name(user_id, user_name)
        for user_id, user_name in zip(
            rows.column("user_id").to_pylist(), rows.column("user_name").to_pylist(), strict=True
        )
    ]
    for number, column in enumerate(("user_id", "user_name")):
        at = rows.schema.get_field_index(column)
        values = pa.array([pair[number] for pair in shown], pa.large_string())
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def counted(rows: pa.Table) -> Iterator[tuple[int, int, int]]:
    """Leaderboard, rows and scores."""
    boards = rows.column("leaderboard_id").to_numpy()
    ranked = rows.column("score").is_valid().to_numpy()
    for board in np.unique(boards).tolist():
        yield board, int((boards == board).sum()), int(ranked[boards == board].sum())


def missing_code(rows: pa.Table) -> tuple[int, int] | None:
    """Code and submission of a row whose code is not there."""
    lost = rows.filter(pc.is_null(rows.column("code_sha256")))
    return (lost.column("code_id")[0].as_py(), lost.column("submission_id")[0].as_py()) if lost.num_rows else None
