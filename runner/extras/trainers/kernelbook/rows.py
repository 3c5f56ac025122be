"""Rows of data sets: read from JSONL, parquet, folders and the hub; written to JSONL in one step.

A row is a dictionary as `json` has it. Files are read and written as streams: no step holds all rows.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

from runner.base.durable import sync_directory
from runner.base.errors import DataError, InfrastructureError
from runner.extras.jsonl import Row, line_of, numbered, require_writable, without_infinite
from runner.extras.trainers.client import adapters

_T = TypeVar("_T")
#: Rows of a parquet file that are in memory at once.
_BATCH: Final = 64
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+(@[\w.-]+)?")


class Source:
    """A data set: a JSONL or parquet file, a folder of them, or `owner/name` or `owner/name@revision` at the hub.

    Of a hub's data set `name` ends with its commit. If the hub does not answer, a copy that was fetched before will do.
    `limit`: take only the first rows.

    Raises:
        DataError: there is nothing there.
        ConfigError: the environment's proxy or certificates cannot be used.
        InfrastructureError: the hub does not answer.
    """

    def __init__(self, name: str, *, token: str | None = None, limit: int | None = None) -> None:
        self.name = name
        self._limit = limit
        path = Path(name)
        if not path.exists() and _HUB_NAME.fullmatch(name):
            path = _fetched(name, token)
            # The folder of a snapshot is called as its commit.
            self.name = f"{name.partition('@')[0]}@{path.name}"
        self.files = _files(path, self.name)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The origin of the rows: the record that the step before wrote beside its file, or their name."""
        file_facts = facts_of(self.files[0]) if len(self.files) == 1 else {}
        return {"source": self.name, **file_facts}

    @property
    def splits(self) -> Sequence[str]:
        """The names of the splits that its files are of."""
        names = (re.match(r"(train|validation|valid|val|test)\b", file.name.replace("_", "-")) for file in self.files)
        return sorted({"train" if name is None else name[1] for name in names})

    def rows(self) -> Iterator[Row]:
        """The rows of all splits, in the order of the files' names.

        Raises:
            DataError: a file is not what its name says; file and line are named.
        """
        return islice(chain.from_iterable(map(read, self.files)), self._limit)


def read(file: Path) -> Iterator[Row]:
    """The rows of a JSONL or parquet file. A number that is not finite is null, since JSON has no such."""
    if file.suffix == ".parquet":
        # It takes a while to load, and few steps need it.
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches(batch_size=_BATCH):
                    yield from map(without_infinite, batch.to_pylist())
        except (OSError, ValueError, OverflowError, NotImplementedError) as error:
            # Also a value that Python lacks, such as a day after the year 9999.
            raise DataError(f"cannot read {file}: {error}") from error
        return
    for _, _, row in numbered(file):
        yield without_infinite(row)


def number_of(row: Row, name: str) -> float | None:
    """A number of a row; None where it is missing, null, NaN, infinite or no number."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def info_of(row: Row) -> Mapping[str, Any]:
    """The row's `info`, which is a dictionary or JSON text of one; empty if it is neither."""
    info = row.get("info")
    if isinstance(info, str):
        with suppress(ValueError):
            info = json.loads(info)
    return info if isinstance(info, Mapping) else {}


def text_of(row: Row, *names: str) -> str | None:
    """The first of some columns that holds text, looked for in the row and then in its `info`."""
    for holder in (row, info_of(row)):
        for name in names:
            value = holder.get(name)
            if isinstance(value, str) and value.strip():
                return value
    return None


def content_of(row: Row, column: str, role: str = "assistant") -> str | None:
    """The text of a column that is text, or messages: of the last one of that role; None: it has none."""
    text = adapters.text_of(row.get(column), role)
    return text if text.strip() else None


@contextmanager
def written(target: Path, *, empty: bool = True) -> Iterator[Callable[[Mapping[str, Any]], object]]:
    """Write rows to a JSONL file that appears whole, or not at all.

    `empty`: keep the file if it has no row; else remove it, and an older one of that name.

    Raises:
        DataError: the folder cannot be written.
    """
    with replaced(target, empty=empty) as file:
        yield lambda row: file.write(line_of(row))


@contextmanager
def replaced(target: Path, *, empty: bool = True) -> Iterator[TextIO]:
    """A text file that takes its name when it is complete and on the disk. `empty`: as in `written`.

    Raises:
        DataError: the folder cannot be written, or the name is that of no file.
    """
    try:
        require_writable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        # A name that is not random: what a killed run left behind is overwritten by the next.
        part = target.with_name(f".{target.name}.part")
        file = part.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            if empty or part.stat().st_size:
                part.replace(target)
            else:
                part.unlink()
                target.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"cannot write {target}: {error.strerror}") from error
        sync_directory(target.parent)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def facts_file(output: Path) -> Path:
    """Where a step writes what is known of its output."""
    return output.with_name(f"{output.stem}.facts.json")


def facts_of(file: Path) -> dict[str, Any]:
    """What the step that wrote a file knew of it; empty if another program wrote it.

    Raises:
        DataError: that cannot be read.
    """
    kept = facts_file(file)
    try:
        facts = json.loads(kept.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {kept}: {error}; move it away") from error
    return dict(facts) if isinstance(facts, dict) else {}


def keep_facts(output: Path, facts: Mapping[str, Any]) -> None:
    """Write what is known of a step's output beside it: where the rows come from, and what they depend on.

    Raises:
        DataError: the folder cannot be written.
    """
    with replaced(facts_file(output)) as file:
        json.dump(facts, file, indent=2, ensure_ascii=False)
        file.write("\n")


def _files(path: Path, name: str) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(
            f"there is no data set {name}: expected a .jsonl or .parquet file, a folder of them, or owner/name at the "
            "hub"
        )
    for suffix in ("parquet", "jsonl"):
        files = sorted(file for file in path.rglob(f"*.{suffix}") if not file.name.startswith("."))
        if files:
            return files
    raise DataError(f"{name} has no .parquet and no .jsonl file")


def _fetched(name: str, token: str | None) -> Path:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, RepositoryNotFoundError, RevisionNotFoundError

    from runner.extras.hub import require_environment

    require_environment()
    repository, _, revision = name.partition("@")
    try:
        folder = HfApi(token=token).snapshot_download(
            repository, repo_type="dataset", revision=revision or None, allow_patterns=["*.parquet", "*.jsonl"]
        )
    except RevisionNotFoundError as error:
        raise DataError(f"the data set {repository} has no revision {revision}") from error
    except RepositoryNotFoundError as error:
        raise DataError(
            f"neither a file {name} nor a data set of that name at the hub; a private one needs HF_TOKEN"
        ) from error
    except (HfHubHTTPError, HTTPError, OSError) as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise InfrastructureError(f"cannot fetch {name} from the hub: {reason}. Run this again later") from error
    return Path(folder)


def batches(rows: Iterator[_T], size: int) -> Iterator[list[_T]]:
    """Lists of so many rows; the last may be shorter."""
    while batch := list(islice(rows, size)):
        yield batch


def scratch(near: Path, name: str) -> Path:
    """An empty folder on the disk of `near`; what a killed run left in it is removed.

    Raises:
        DataError: the folder cannot be written.
    """
    folder = near / f".{name}.part"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    except OSError as error:
        raise DataError(f"cannot write {folder}: {error.strerror}") from error
    return folder
