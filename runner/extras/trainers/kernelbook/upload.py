"""Step 5: training sets with splits, as parquet files and a card, to the hub or to a folder of the same layout."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from runner import __version__
from runner.base.errors import ConfigError, DataError
from runner.extras.jsonl import Row, numbered, require_finite

from .best import normalised
from .columns import table_of
from .report import StepReport
from .rows import facts_of, info_of, scratch, text_of

SEED: Final = 42
TEST_SHARE: Final = 0.1
#: Rows of a row group. Readers make one array of a nested column of a group, of at most 2 GiB of text.
_GROUP_ROWS: Final = 1000


@dataclass(frozen=True, kw_only=True)
class Target:
    """One of the pipeline's data sets."""

    name: str
    repository: str
    #: The variable that holds the path of its rows.
    variable: str
    split: bool
    about: str


TARGETS: Final = (
    Target(
        name="filtered",
        repository="siro1/kernelbook-glm4_7-evals-filtered",
        variable="FILTERED_DATASET_PATH",
        split=True,
        about="Evaluations of generated kernels with a reward above the threshold, and how difficult each task is.",
    ),
    Target(
        name="unique",
        repository="siro1/kernelbook-glm4_7-evals-unique",
        variable="UNIQUE_DATASET_PATH",
        split=True,
        about="The best evaluation of each module: one row a module.",
    ),
    Target(
        name="synthetic",
        repository="siro1/kernelbook-synthetic-tasks",
        variable="SYNTHETIC_DATASET_PATH",
        split=False,
        about="Specifications of GPU kernel tasks, written by a model from PyTorch modules.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a file."""

    table: pa.Table
    #: Of each row, what must not stand on both sides of a split.
    groups: Sequence[str]
    #: Licences of the modules, and how many rows name each.
    licences: Counter[str]


def look(file: Path, *, limit: int | None = None) -> Rows:
    """Read the rows of a JSONL file, or the first `limit`.

    Raises:
        DataError: there are none, a line is no JSON object, or rows have different columns, types or numbers that are
            not finite; column and line are named.
    """
    rows: dict[int, Row] = {}
    for number, _, row in islice(numbered(file), limit):
        first, columns = next(iter(rows.items()), (number, row))
        if row.keys() != columns.keys():
            raise DataError(
                f"{file}: line {number} has other columns than line {first}: "
                f"{', '.join(sorted(row.keys() ^ columns.keys()))}; expected the same in all rows"
            )
        require_finite(row, where=f"{file}, line {number}")
        rows[number] = row
    if not rows:
        raise DataError(f"{file} has no rows, so there is nothing to upload")
    table = table_of(file, rows)
    groups: list[str] = []
    licences: Counter[str] = Counter()
    for number, row in rows.items():
        code = text_of(row, "python_code")
        groups.append(text_of(row, "module_name") or str(number) if code is None else normalised(code))
        named = row.get("licenses") or info_of(row).get("licenses") or []
        licences.update([named] if isinstance(named, str) else named)
    return Rows(table=table, groups=groups, licences=licences)


def by_group(groups: Sequence[str]) -> tuple[list[int], list[int]]:
    """Numbers of the rows for training and for validation; rows of the same group are on the same side.

    ceil(TEST_SHARE * n) rows are for validation: groups in random order, each that still fits.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    left = math.ceil(TEST_SHARE * len(groups))
    order = sorted(members)
    random.Random(SEED).shuffle(order)  # noqa: S311 a split is no secret
    validation: list[int] = []
    for group in order:
        if len(members[group]) <= left:
            left -= len(members[group])
            validation += members[group]
    chosen = set(validation)
    return [index for index in range(len(groups)) if index not in chosen], sorted(chosen)


def part(table: pa.Table, numbers: Sequence[int]) -> pa.Table:
    """The rows of these numbers, in the table's order.

    Not by `take`: it makes one array of a column, which holds no more than 2 GiB of text.
    """
    chosen = set(numbers)
    return table.filter(pa.array([number in chosen for number in range(table.num_rows)], pa.bool_()))


def make(target: Target, source: Path, dataset_rows: Rows, folder: Path) -> Mapping[str, int]:
    """Write parquet files and the card of a data set to an empty folder; how many rows each split has, if it has any.

    `dataset_rows`: what `look` returns for the source.
    """
    training, validation = by_group(dataset_rows.groups) if target.split else (range(dataset_rows.table.num_rows), [])
    # Readers refuse a split without rows.
    parts = {"train": training or validation, **({"validation": validation} if training and validation else {})}
    (folder / "data").mkdir(parents=True)
    for name, indices in parts.items():
        file = folder / "data" / f"{name}-00000-of-00001.parquet"
        pq.write_table(part(dataset_rows.table, indices), file, compression="zstd", row_group_size=_GROUP_ROWS)
    rows = {name: len(indices) for name, indices in parts.items()}
    (folder / "README.md").write_text(_card(target, rows, dataset_rows.licences, facts_of(source)), encoding="utf-8")
    return rows


def run(
    target: Target,
    source: Path | None,
    *,
    to: Path | None,
    repository: str | None,
    token: str | None,
    limit: int | None = None,
    dry_run: bool = False,
    private: bool = False,
) -> StepReport:
    """Make one data set and put it where it belongs.

    `source`: the rows; None: its variable is not set. `to`: a folder, in which the data set gets one of its own; None:
    the hub. `repository`: None: the published one's name. `dry_run`: only check the rows and count them. `private`:
    make a new repository private.

    Raises:
        ConfigError: no path, or no token for the hub.
        DataError: see `look`; or the folder has such a data set already.
        InfrastructureError: the hub refuses or cannot be reached.
    """
    if source is None:
        raise ConfigError(f"no rows for {target.name}: set {target.variable} in the environment or in .env")
    repository = repository or target.repository
    if to is None and token is None and not dry_run:
        raise ConfigError("no token for the hub: set HF_TOKEN in the environment or in .env, or write to a folder")
    # First: where there are no rows, no folder is made for them.
    dataset_rows = look(source, limit=limit)
    work = scratch(to if to is not None and not dry_run else source.parent, f"upload-{target.name}")
    try:
        rows = make(target, source, dataset_rows, work / "made")
        report = StepReport(step=f"upload {target.name}", rows_in=sum(rows.values()), rows_out=sum(rows.values()))
        report.facts = {f"rows of {name}": count for name, count in rows.items()}
        if dry_run:
            report.facts["would go to"] = str(to / target.name) if to is not None else repository
        elif to is not None:
            report.files = [str(_move(work / "made", to / target.name))]
        else:
            report.facts["commit"] = _send(work / "made", repository, token, private=private)
        return report
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _move(source: Path, target: Path) -> Path:
    old = target.with_name(f".{target.name}.old")
    try:
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            if not (target / "data").is_dir():
                raise DataError(f"{target} exists and is no data set; expected a new folder or an earlier upload")
            target.rename(old)
        source.rename(target)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror}") from error
    shutil.rmtree(old, ignore_errors=True)
    return target


def _send(folder: Path, repository: str, token: str | None, *, private: bool) -> str:
    from huggingface_hub import HfApi

    from runner.extras.hub import refusals_explained

    api = HfApi(token=token)
    with refusals_explained(repository):
        api.create_repo(repository, repo_type="dataset", private=private, exist_ok=True)
        # One commit. Files that an interrupted upload brought are not sent again. Splits of before go with it.
        done = api.upload_folder(
            repo_id=repository,
            repo_type="dataset",
            folder_path=folder,
            delete_patterns=["data/*.parquet"],
            commit_message=f"Rows from kernel-runner {__version__}",
        )
    return str(done.oid)


def _card(target: Target, rows: Mapping[str, int], licences: Counter[str], facts: Mapping[str, Any]) -> str:
    data = "\n".join(f"      - split: {name}\n        path: data/{name}-*.parquet" for name in rows)
    lines = [
        *(f"- {name}: {value}" for name, value in facts.items()),
        f"- rows: {', '.join(f'{count} {name}' for name, count in rows.items())}",
        f"- written by kernel-runner {__version__}",
    ]
    if target.split:
        same = "rows of the same code are on the same side"
        lines.append(f"- split: {TEST_SHARE:.0%} for validation, seed {SEED}, {same}")
    if licences:
        named = ", ".join(f"{name} ({count})" for name, count in licences.most_common(20))
        lines.append(f"- licences of the modules, as their rows say: {named}")
    return (
        f"---\nconfigs:\n  - config_name: default\n    data_files:\n{data}\n---\n"
        f"# {target.repository.partition('/')[2]}\n\n{target.about}\n\n" + "\n".join(lines) + "\n"
    )
