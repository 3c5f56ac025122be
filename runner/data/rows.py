"""`submissions.parquet` and the flat file in the making: what the database says of rows, and what their code says.

A row group of the flat file ends where the hash of a code says so, so that a new row changes the group that it is in,
and no other. Groups that the older export has too are copied from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runner.data.code import Codes
from runner.data.splice import Encoded
from runner.data.tables import BLOCK, FLAT, GROUP_ROWS, SUBMISSIONS, Digest, Grouped, Writer, columns_of

#: Checks that the cases of a run alone decide, with sol: figures that stay as they are while the run does.
OF_CASES: Final = ("faster_than_light", "score_differs")
#: What the flat file has of a row, and the hash of its code.
_FLAT_ROWS: Final = pa.schema([*(field for field in FLAT if field.name != "code"), SUBMISSIONS.field("code_sha256")])


#: Integers, one per row.
_Integers = np.ndarray[Any, np.dtype[np.int64]]
#: A run, its sol (NaN: none), and a bit for each check of `OF_CASES` that it fails.
_FIGURE: Final = np.dtype([("run_id", np.int64), ("sol", np.float64), ("failed", np.uint8)])


class Figures:
    """What the cases of runs say."""

    def __init__(self) -> None:
        self._pieces: list[np.ndarray[Any, Any]] = []

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take rows of the statement `dataset_figures`."""
        for batch in batches:
            failed = [batch.column(name).to_numpy(zero_copy_only=False) for name in OF_CASES]
            self._add(batch.column("run_id"), batch.column("sol"), failed)

    def take(self, rows: pa.Table) -> None:
        """Take rows of an older `submissions.parquet`, which all have a run."""
        flags = rows.column("flags").combine_chunks()
        parents, checks = pc.list_parent_indices(flags), pc.list_flatten(flags)
        failed = []
        for name in OF_CASES:
            found = np.zeros(rows.num_rows, bool)
            found[parents.to_numpy()[pc.equal(checks, name).to_numpy(zero_copy_only=False)]] = True
            failed.append(found)
        self._add(rows.column("run_id"), rows.column("sol"), failed)

    def _add(self, run_ids: pa.ChunkedArray, sol: pa.ChunkedArray, failed: Sequence[np.ndarray[Any, Any]]) -> None:
        piece = np.zeros(len(run_ids), _FIGURE)
        piece["run_id"] = run_ids.to_numpy()
        piece["sol"] = sol.cast(pa.float64()).fill_null(np.nan).to_numpy()
        for bit, found in enumerate(failed):
            piece["failed"] |= found.astype(np.uint8) << bit
        self._pieces.append(piece[(piece["failed"] > 0) | ~np.isnan(piece["sol"])])

    def of(self, run_ids: _Integers) -> np.ndarray[Any, Any]:
        """The figures of runs, as `_FIGURE`s; -1 stands for none."""
        whole = np.concatenate([*self._pieces, np.array([(-1, np.nan, 0)], _FIGURE)])
        whole.sort(order="run_id", kind="stable")
        self._pieces = [whole[1:]]
        places = np.searchsorted(whole["run_id"], run_ids)
        found = whole[np.minimum(places, len(whole) - 1)]
        found[found["run_id"] != run_ids] = (-1, np.nan, 0)
        return found


def complete(
    rows: pa.Table,
    numbers: _Integers,
    codes: Codes,
    figures: Figures,
    flags: Mapping[int, list[tuple[int | None, str]]],
) -> pa.Table:
    """Rows of submissions.parquet.

    Args:
        rows: what the database says of them.
        numbers: of the code of each row.
        codes: the codes.
        figures: what the cases of runs say.
        flags: submission -> runs (None: all of them) and checks.
    """
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    submissions = columns["submission_id"].to_numpy()
    runs = columns["run_id"].fill_null(-1).to_numpy()
    cases = figures.of(runs)
    flagged = (
        np.isin(submissions, np.fromiter(flags, np.int64, len(flags))) | (cases["failed"] > 0) | codes.is_odd(numbers)
    )
    counts = np.zeros(rows.num_rows + 1, np.int32)
    checks: list[str] = []
    for row in np.flatnonzero(flagged).tolist():
        found = {check for run, check in flags.get(int(submissions[row]), ()) if run is None or run == runs[row]}
        found.update(name for bit, name in enumerate(OF_CASES) if cases["failed"][row] >> bit & 1)
        found.update(codes.flags(int(numbers[row])))
        checks += sorted(found)
        counts[row + 1] = len(found)
    kind = SUBMISSIONS.field("flags").type
    columns["flags"] = pa.ListArray.from_arrays(
        pa.array(np.cumsum(counts, dtype=np.int32)), pa.array(checks, kind.value_type), type=kind
    )
    columns["sol"] = pa.array(cases["sol"], pa.float64(), mask=np.isnan(cases["sol"]))
    columns["code_encoding"] = codes.encodings(numbers)
    return pa.Table.from_arrays([columns[name] for name in SUBMISSIONS.names], schema=SUBMISSIONS)


def put_aside(file: IO[bytes], schema: pa.Schema, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Put rows aside in a file, in pieces of about `GROUP_ROWS`; yields each piece."""
    with pa.ipc.new_stream(file, schema) as stream:
        waiting: list[pa.Table] = []
        for some in pieces:
            waiting.append(some)
            if sum(piece.num_rows for piece in waiting) >= GROUP_ROWS:
                yield _put(stream, waiting)
        if waiting:
            yield _put(stream, waiting)
    file.flush()


def _put(stream: pa.ipc.RecordBatchStreamWriter, waiting: list[pa.Table]) -> pa.Table:
    whole = pa.concat_tables(waiting).combine_chunks()
    waiting.clear()
    stream.write_table(whole)
    return whole


@contextmanager
def stored(file: IO[bytes]) -> Iterator[Iterator[pa.Table]]:
    """The rows that were put aside, in pieces; by any thread, several at once."""
    # A descriptor of its own: `dup` would share the place in the file.
    with Path(f"/proc/self/fd/{file.fileno()}").open("rb") as own, pa.ipc.open_stream(own) as stream:
        yield (pa.Table.from_batches([batch]) for batch in stream)


@dataclass(frozen=True, kw_only=True)
class FlatGroup:
    """A row group of the flat file; `kept`: the number of the older file's that is equal."""

    #: The numbers of the codes of its rows.
    codes: _Integers
    kept: int | None


def planned(
    numbers: _Integers, codes: Codes, limit: int, *, same: _Integers | None = None, older: _Integers | None = None
) -> list[FlatGroup]:
    """Which row groups the flat file will have, and which of them the older export has.

    Args:
        numbers: of the code of each row.
        codes: the codes.
        limit: bytes of code in a group; a single code may be larger.
        same: of each row the place of the equal one in the older file, or -1; None: there is no such file.
        older: the first row of each group of the older file, and the end.
    """
    sizes = codes.sizes[numbers]
    ends = np.cumsum(sizes)
    last_ones = np.flatnonzero(_ends_a_group(codes, limit)[numbers])
    starts = np.zeros(1, np.int64) if older is None else older
    groups = []
    first = 0
    while first < len(numbers):
        before = int(ends[first - 1]) if first else 0
        fits = max(int(np.searchsorted(ends, before + limit, side="right")), first + 1)
        place = int(np.searchsorted(last_ones, first))
        marked = int(last_ones[place]) + 1 if place < len(last_ones) else len(numbers)
        last = min(fits, marked, first + GROUP_ROWS)
        groups.append(FlatGroup(codes=numbers[first:last], kept=_kept(starts, same, first, last)))
        first = last
    return groups


def _kept(starts: _Integers, same: _Integers | None, first: int, last: int) -> int | None:
    """The number of the older row group whose rows are these."""
    if same is None or same[first] < 0:
        return None
    group = int(np.searchsorted(starts, same[first]))
    begin = int(same[first])
    if group + 1 < len(starts) and starts[group] == begin and starts[group + 1] - begin == last - first:
        return group if np.array_equal(same[first:last], np.arange(begin, begin + last - first)) else None
    return None


def _ends_a_group(codes: Codes, limit: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether a group ends behind a code: so often that groups without a limit would have the limit on average."""
    digits = pc.binary_slice(codes.hashes.cast(pa.large_binary()), 0, 12)
    whole = np.frombuffer(b"".join(digits.to_pylist()), np.uint8).astype(np.int64)
    values = np.where(whole > ord("9"), whole - ord("a") + 10, whole - ord("0")).reshape(-1, 12)
    drawn = values @ (16 ** np.arange(11, -1, -1, dtype=np.int64))
    return np.asarray(drawn.astype(np.float64) * limit < codes.sizes.astype(np.float64) * 16.0**12)


def equal_rows(older: Path, rows: Iterable[pa.Table]) -> _Integers:
    """Of each row the place of the equal one in an older `submissions.parquet`, or -1, by what the flat file has."""
    whole = columns_of(older, _FLAT_ROWS.names).combine_chunks()
    runners = pc.unique(whole.column("runner"))
    keys = _keys(whole, runners)
    order = np.argsort(keys, kind="stable")
    found = []
    for some in rows:
        mine = _keys(some, runners)
        places = np.minimum(np.searchsorted(keys[order], mine), max(len(order) - 1, 0))
        same = np.full(some.num_rows, -1, np.int64)
        if len(order):
            candidates = order[places]
            there = np.flatnonzero((keys[candidates] == mine) & (mine >= 0))
            counterpart = whole.take(pa.array(candidates[there]))
            equal = np.ones(len(there), bool)
            for name in _FLAT_ROWS.names:
                one, other = some.column(name).take(pa.array(there)), counterpart.column(name)
                both = pc.and_(pc.is_null(one), pc.is_null(other))
                equal &= pc.or_(pc.fill_null(pc.equal(one, other), False), both).to_numpy()
            same[there[equal]] = candidates[there[equal]]
        found.append(same)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _keys(rows: pa.Table, runners: pa.Array) -> _Integers:
    """Submission and runner of each row as a number; -1 for a runner that is not among these."""
    places = pc.index_in(rows.column("runner"), value_set=runners).cast(pa.int64()).fill_null(-1).to_numpy()
    keys = rows.column("submission_id").to_numpy() * (len(runners) + 1) + places
    return np.asarray(np.where(places < 0, -1, keys))


def write_submissions(
    path: Path,
    *,
    rows: Iterable[pa.Table],
    numbers: _Integers,
    codes: Codes,
    figures: Figures,
    flags: Mapping[int, list[tuple[int | None, str]]],
    digest: Digest,
) -> Writer:
    """Write submissions.parquet."""
    with Writer(path, SUBMISSIONS) as writer:
        grouped = Grouped(writer)
        done = 0
        for some in rows:
            full = complete(some, numbers[done : done + some.num_rows], codes, figures, flags)
            done += some.num_rows
            digest.add(full)
            grouped.add(full)
        grouped.finish()
    return writer


def write_flat(
    path: Path,
    *,
    rows: Iterable[pa.Table],
    plan: Sequence[FlatGroup],
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
            for group in plan:
                count = len(group.codes)
                while waiting.num_rows < count:
                    waiting = pa.concat_tables([waiting, next(pieces).select(names).cast(waiting.schema)])
                some = waiting.slice(0, count)
                waiting = waiting.slice(count)
                if group.kept is not None and encoded is not None:
                    writer.copy(encoded.group(group.kept))
                else:
                    writer.build(partial(_with_code, some, group.codes, codes))
                done += count
                progress(done)
    finally:
        if encoded is not None:
            encoded.close()
    return writer


def _with_code(rows: pa.Table, numbers: _Integers, codes: Codes) -> pa.Table:
    if codes.is_invalid(numbers).any():
        column = pa.array([codes.text(number) for number in numbers.tolist()], pa.large_binary())
    else:
        column = codes.column(numbers)
    text = pa.chunked_array([column.view(pa.large_string())])
    return pa.Table.from_arrays([*rows.combine_chunks().columns, text], schema=FLAT)


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


def merged(
    older: pa.Table, without: Collection[int], fresh: Iterable[pa.Table]
) -> Iterator[tuple[pa.Table, _Integers]]:
    """The rows of an older export without those of these codes, and fresh ones, in the order of an export.

    In pieces, with the place of each row in the older export; -1 for a fresh one.
    """
    whole = pa.concat_tables([older, *(some.cast(older.schema) for some in fresh)])
    # Nulls come last, as in PostgreSQL.
    keys = ("problem_name", "score", "submission_time", "submission_id", "runner")
    order = pc.sort_indices(whole, sort_keys=[(key, "ascending") for key in keys]).to_numpy().astype(np.int64)
    gone = np.isin(older.column("code_id").to_numpy(), sorted(without))
    order = order[~np.concatenate([gone, np.zeros(whole.num_rows - older.num_rows, bool)])[order]]
    for first in range(0, len(order), GROUP_ROWS):
        some = order[first : first + GROUP_ROWS]
        yield whole.take(pa.array(some)), np.where(some < older.num_rows, some, -1)


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
