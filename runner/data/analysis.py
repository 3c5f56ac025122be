"""Reading an exported folder, and choosing a problem, a runner and a user from it by name.

The figures themselves are the functions of `shipped/analyze_submissions.py`, which every exported folder has a copy of.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from runner.data import on_one_line
from runner.data.shipped.analyze_submissions import METADATA, flat_of, load_submissions, printable, valid
from runner.errors import DataError, NotFoundError

#: The columns that plots use of those which `submissions.parquet` has beyond the flat file.
EXTRA: Final = ("mode_category", "verdict", "flags", "code_sha256", "sol")
#: The columns of `runs.parquet` that plots use.
RUNS: Final = ("submission_id", "runner", "mode", "spec", "mean_ns")
_NEAREST = 5


@dataclass(frozen=True, kw_only=True)
class Export:
    """The files of an exported folder, or the one file that was named."""

    #: The file with the most columns that rank: `submissions.parquet`, else the flat file.
    rows: Path
    #: The file with the code, if there is one.
    code: Path | None
    #: `runs.parquet`, if there is one.
    runs: Path | None = None


def locate(path: Path) -> Export:
    """The files of an exported folder; `path` may also be one of its parquet files.

    Raises:
        NotFoundError: there is no such file or folder, or the folder holds no export.
        DataError: the folder holds several flat files, and no manifest says which is the export's.
    """
    if path.is_dir():
        named = flat_of(path)
        flat = [file for file in sorted(path.glob("*_submissions.parquet")) if named in (None, file)]
        rich, runs = path / "submissions.parquet", path / "runs.parquet"
        if len(flat) > 1:
            raise DataError(f"{path} has several flat files: name one of {', '.join(file.name for file in flat)}")
        if flat or rich.is_file():
            return Export(
                rows=rich if rich.is_file() else flat[0],
                code=flat[0] if flat else None,
                runs=runs if runs.is_file() else None,
            )
        raise NotFoundError(
            f"{path} has no file *_submissions.parquet; `kernel-runner data export {path}` makes an export there"
        )
    if not path.is_file():
        raise NotFoundError(f"no file or folder {path}; `kernel-runner data export DIR` makes an exported folder")
    return Export(rows=path, code=path if "code" in columns_of(path) else None)


def columns_of(path: Path) -> Sequence[str]:
    """The columns of a parquet file.

    Raises:
        DataError: it is no parquet file, or cannot be read.
    """
    with _readable(path):
        return list(pq.read_schema(path).names)


def read(path: Path) -> pd.DataFrame:
    """The rows of an export without their code, with the columns of `EXTRA` that the file has.

    Raises:
        NotFoundError: there is no export.
        DataError: it cannot be read, or lacks a column.
    """
    file = locate(path).rows
    present = columns_of(file)
    absent = [column for column in METADATA if column not in present]
    if absent:
        raise DataError(f"{file} has no column {', '.join(absent)}; expected a file of `kernel-runner data export`")
    with _readable(file):
        return load_submissions(file, columns=[*METADATA, *(column for column in EXTRA if column in present)])


def read_runs(path: Path) -> pd.DataFrame | None:
    """The rows of `runs.parquet` in an exported folder that tell the noise; None where there is no such file.

    Raises:
        NotFoundError: there is no export.
        DataError: the file cannot be read, or lacks a column.
    """
    file = locate(path).runs
    if file is None:
        return None
    absent = [column for column in RUNS if column not in columns_of(file)]
    if absent:
        raise DataError(f"{file} has no column {', '.join(absent)}; expected a file of `kernel-runner data export`")
    with _readable(file):
        return pd.read_parquet(file, columns=list(RUNS))


def code_of(path: Path, submission_id: int) -> str:
    """The code of a submission.

    Raises:
        NotFoundError: the export has no code, or not of that submission.
        DataError: the file cannot be read.
    """
    file = locate(path).code
    if file is None:
        raise NotFoundError(f"{path} has no code; expected a folder with a file *_submissions.parquet")
    with _readable(file):
        found = pd.read_parquet(file, columns=["code"], filters=[("submission_id", "==", submission_id)])["code"]
    if found.empty:
        raise NotFoundError(f"{file} has no submission {submission_id}")
    return str(found.iloc[0])


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Says which file cannot be read.

    Raises:
        DataError: it is no parquet file, or damaged.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not readable as parquet: {on_one_line(error)}") from error


def choose_problem(rows: pd.DataFrame, name: str | None) -> str:
    """The problem of that name; without a name the only one.

    Raises:
        NotFoundError: there is no such problem, or several and none is named.
    """
    return _choose(rows["problem_name"].unique(), name, "problem", "--problem")


def choose_runner(rows: pd.DataFrame, name: str | None) -> str:
    """The runner (GPU) of that name among those with a valid score; without a name the only one.

    Raises:
        NotFoundError: there is no such runner, or several and none is named.
    """
    return _choose(rows.loc[valid(rows), "runner"].dropna().unique(), name, "runner with a score", "--runner")


def choose_user(rows: pd.DataFrame, text: str) -> tuple[str | None, str | None]:
    """A user by id or name, as (user_id, user_name) with one of them None; an id goes before a name.

    Raises:
        NotFoundError: there is no such user; the message names the nearest.
    """
    if rows["user_id"].astype(str).eq(text).any():
        return text, None
    names = rows["user_name"].unique()
    if text in names:
        return None, text
    raise NotFoundError(f"no user with the id or name {printable(text)!r}{_nearest(text, names)}")


def choose_id(rows: pd.DataFrame, text: str) -> str:
    """The id of one user, by id or name.

    Raises:
        NotFoundError: there is no such user, or several have the name.
    """
    user_id, name = choose_user(rows, text)
    ids = (
        [user_id] if user_id is not None else sorted(map(str, rows.loc[rows["user_name"] == name, "user_id"].unique()))
    )
    if len(ids) > 1:
        raise NotFoundError(f"{len(ids)} users are called {printable(text)!r}: name one by its id ({_listed(ids)})")
    return str(ids[0])


def fastest(rows: pd.DataFrame) -> Mapping[str, Any] | None:
    """The row with the least valid score, the earliest of equal ones; None without a valid score."""
    scored = rows[valid(rows)].sort_values(["score", "submission_time", "submission_id"], kind="stable")
    return None if scored.empty else records(scored.head(1))[0]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as plain values: None for nulls and NaN, aware datetimes, lists for lists."""
    columns = list(frame.columns)
    return [dict(zip(columns, map(_plain, row), strict=True)) for row in frame.itertuples(index=False, name=None)]


def _plain(value: Any) -> Any:  # noqa: ANN401 a cell of any column
    if hasattr(value, "tolist") and not isinstance(value, pd.Timestamp):
        value = value.tolist()
    if isinstance(value, list):
        return value
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


def _choose(known: Iterable[str], name: str | None, what: str, option: str) -> str:
    every = sorted(str(found) for found in known)
    if name is None:
        if len(every) == 1:
            return every[0]
        if not every:
            raise NotFoundError(f"there is no {what} in this export")
        raise NotFoundError(f"there are {len(every)} of each {what}: name one with {option} ({_listed(every)})")
    if name in every:
        return name
    raise NotFoundError(f"no {what} {printable(name)!r}{_nearest(name, every)}")


def _nearest(text: str, known: Iterable[str]) -> str:
    """The end of a sentence: the names that come nearest, else what there is."""
    every = sorted({str(found) for found in known})
    folded = {name.lower(): name for name in every}
    close = [folded[name] for name in difflib.get_close_matches(text.lower(), list(folded), n=_NEAREST, cutoff=0.6)]
    if close:
        return f"; the nearest are {_listed(close)}" if len(close) > 1 else f"; the nearest is {_listed(close)}"
    return f"; there are {_listed(every)}" if every else ""


def _listed(names: Sequence[str]) -> str:
    more = len(names) - 2 * _NEAREST
    shown = ", ".join(map(printable, names[: 2 * _NEAREST]))
    return f"{shown} and {more} more" if more > 0 else shown
