"""Reading an exported folder, and choosing a problem, a runner and a user from it by name.

The figures themselves are the functions of `shipped/analyze_submissions.py`, which every exported folder has a copy of.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from runner.base.errors import DataError, NotFoundError
from runner.extras.data import listed, on_one_line
from runner.extras.data.shipped.analyze_submissions import METADATA, flat_of, load_submissions, printable, valid

_NEAREST = 5


def locate(path: Path) -> Path:
    """The file of an exported folder with all columns but the code, else its flat file; `path` may also be a file.

    Raises:
        NotFoundError: there is no such file or folder, or the folder holds no export.
        DataError: the folder holds several flat files, and no manifest says which is the export's.
    """
    if path.is_file():
        return path
    if not path.is_dir():
        raise NotFoundError(f"no file or folder {path}; `kernel-runner data export DIR` makes an exported folder")
    if (rows := path / "submissions.parquet").is_file():
        return rows
    named = flat_of(path)
    flat = [file for file in sorted(path.glob("*_submissions.parquet")) if named in (None, file)]
    if len(flat) > 1:
        raise DataError(f"{path} has several flat files: name one of {', '.join(file.name for file in flat)}")
    if not flat:
        raise NotFoundError(
            f"{path} has no file *_submissions.parquet; `kernel-runner data export {path}` makes an export there"
        )
    return flat[0]


def read(path: Path) -> pd.DataFrame:
    """The rows of an export without their code, and with `sol` where the file has it.

    Raises:
        NotFoundError: there is no export.
        DataError: it cannot be read, or lacks a column.
    """
    file = locate(path)
    try:
        present = pq.read_schema(file).names
        absent = [column for column in METADATA if column not in present]
        if absent:
            raise DataError(f"{file} has no column {', '.join(absent)}; expected a file of `kernel-runner data export`")
        return load_submissions(file, columns=[*METADATA, *(["sol"] if "sol" in present else [])])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} is not readable as parquet: {on_one_line(error)}") from error


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


def choose_user(rows: pd.DataFrame, text: str) -> str:
    """The id of one user, by id or name; an id goes before a name.

    Raises:
        NotFoundError: there is no such user, and the message names the nearest; or several have the name.
    """
    if rows["user_id"].astype(str).eq(text).any():
        return text
    ids = sorted(map(str, rows.loc[rows["user_name"] == text, "user_id"].unique()))
    if not ids:
        nearest = _nearest(text, rows["user_name"].unique())
        raise NotFoundError(f"no user with the id or name {printable(text)!r}{nearest}")
    if len(ids) > 1:
        raise NotFoundError(f"{len(ids)} users are called {printable(text)!r}: name one by its id ({_listed(ids)})")
    return ids[0]


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


def _choose(names: Iterable[str], name: str | None, what: str, option: str) -> str:
    every = sorted(map(str, names))
    if name is None:
        if len(every) == 1:
            return every[0]
        if not every:
            raise NotFoundError(f"there is no {what} in this export")
        raise NotFoundError(f"there are {len(every)} of each {what}: name one with {option} ({_listed(every)})")
    if name in every:
        return name
    raise NotFoundError(f"no {what} {printable(name)!r}{_nearest(name, every)}")


def _nearest(text: str, names: Iterable[str]) -> str:
    """The end of a sentence: the names that come nearest, else what there is."""
    every = sorted({*map(str, names)})
    folded = {name.lower(): name for name in every}
    close = [folded[name] for name in difflib.get_close_matches(text.lower(), list(folded), n=_NEAREST, cutoff=0.6)]
    if close:
        return f"; the nearest are {_listed(close)}" if len(close) > 1 else f"; the nearest is {_listed(close)}"
    return f"; there are {_listed(every)}" if every else ""


def _listed(names: Sequence[str]) -> str:
    return listed([printable(name) for name in names], most=2 * _NEAREST)
