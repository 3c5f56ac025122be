"""Rankings, progressions and statistics of exported submissions; needs pandas and pyarrow, and nothing else.

    from analyze_submissions import load_submissions, top_contestants
    df = load_submissions("my_submissions.parquet", columns=METADATA)
    print(top_contestants(df, "vectoradd"))

A score is the time of a run in seconds; a lower one is better. A score is valid if its row has mode `leaderboard`,
passed, and a finite score above 0. Every function here ranks valid scores only, also in files that hold others.
"""

from __future__ import annotations

import json
import math
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

__all__ = [
    "METADATA",
    "author_progression",
    "default_file",
    "format_score",
    "leaderboard_summary",
    "load_submissions",
    "printable",
    "top_contestants",
    "user_stats",
    "valid",
]

#: What `load_submissions` reads where no file is named, by a program or by a manifest.
DEFAULT_NAME: Final = "nvidia_nvfp4_submissions.parquet"
#: Every column of a flat file but `code`, which is nearly all of its bytes.
METADATA: Final = (
    *("submission_id", "leaderboard_id", "problem_name", "user_id", "user_name", "code_id", "file_name"),
    *("submission_time", "status", "score", "passed", "mode", "runner"),
)
_TOP: Final = (
    *("rank", "user_id", "user_name", "problem_name", "runner", "score", "submission_id", "submission_time"),
    "submissions",
)
#: Control characters, surrogates, and format characters (among them those that change the direction of text).
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs"})


def format_score(score: float | None, unit: str = "us") -> str:
    """A score as text.

    Args:
        score: seconds. None and NaN give `N/A`.
        unit: `us` (two decimals), `ms` (three decimals), or `auto`: µs below 0.001 s, ms below 1 s, else s with four
            decimals. Any other unit gives seconds with six decimals.
    """
    if score is None or pd.isna(score):
        return "N/A"
    if unit == "auto":
        unit = "us" if score < 1e-3 else "ms" if score < 1 else "auto"
    if unit == "us":
        return f"{score * 1e6:.2f} µs"
    if unit == "ms":
        return f"{score * 1e3:.3f} ms"
    return f"{score:.4f} s" if unit == "auto" else f"{score:.6f} s"


def printable(text: object) -> str:
    r"""A text of one line for a terminal or a page: control and format characters become escapes, e.g. `\x1b`."""
    return "".join(_escaped(character) for character in str(text))


def default_file() -> Path:
    """The file that `load_submissions` reads where none is named.

    It is the flat file of the exported folder: beside this file, or two folders above it where this file is in
    `scripts/nvfp4`. The folder's manifest says its name; without a manifest it is `nvidia_nvfp4_submissions.parquet`.
    """
    here = Path(__file__).resolve().parent
    folder = here.parent.parent if here.parent.name == "scripts" else here
    return flat_of(folder) or folder / DEFAULT_NAME


def flat_of(folder: Path) -> Path | None:
    """The flat file that the manifest of an exported folder names; None without a manifest that names one."""
    try:
        return folder / str(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["flat"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def load_submissions(parquet_path: str | Path | None = None, *, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read an exported file.

    Args:
        parquet_path: the file; None reads `default_file()`.
        columns: read only these. `METADATA` are all but the code, which needs most of the memory.

    Returns:
        One row per submission and runner. `passed` is a nullable boolean: `df[df.passed]` leaves out nulls.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = Path(parquet_path) if parquet_path is not None else default_file()
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; `kernel-runner data export DIR` makes one")
    frame = pd.read_parquet(path, columns=None if columns is None else list(columns))
    if "passed" in frame.columns:
        frame["passed"] = frame["passed"].astype("boolean")
    return frame


def valid(df: pd.DataFrame) -> pd.Series:
    """Which rows have a valid score, as a boolean series: mode `leaderboard`, passed, finite and above 0."""
    _need(df, "mode", "passed", "score")
    score = pd.to_numeric(df["score"], errors="coerce")
    counts = df["mode"].eq("leaderboard") & df["passed"].eq(True) & (score > 0) & (score < math.inf)
    # With a nullable type the comparison of a null is a null.
    return counts.fillna(value=False).astype(bool)


def author_progression(
    df: pd.DataFrame, user_id: str | None = None, user_name: str | None = None, problem_name: str | None = None
) -> pd.DataFrame:
    """One author's rows in the order of submission.

    Args:
        df: rows of `load_submissions`.
        user_id: the author's id.
        user_name: the author's name. Names are not unique: if several ids have it, the rows of all are returned, with
            a warning. Given together with `user_id`, both must match.
        problem_name: only this problem.

    Returns:
        All columns of `df`, by submission_time, then submission_id, and two more. `best_so_far` is the least valid
        score (seconds) of that user on that problem and runner until then. `improvement` is the best before divided by
        the score: 2.0 is twice as fast as before, NaN where either is missing.

    Raises:
        ValueError: neither id nor name is given.
    """
    rows = _of_author(df, user_id, user_name)
    if problem_name is not None:
        rows = rows[rows["problem_name"] == problem_name]
    rows = rows.sort_values(["submission_time", "submission_id"], kind="stable").reset_index(drop=True)
    scores = rows["score"].where(valid(rows)).astype("float64")
    # What never ranked has no runner and no score.
    keys = [rows["user_id"], rows["problem_name"], rows["runner"]]
    best = scores.groupby(keys, dropna=False, sort=False).cummin()
    best = best.groupby(keys, dropna=False, sort=False).ffill()
    before = best.groupby(keys, dropna=False, sort=False).shift()
    rows["best_so_far"] = best
    rows["improvement"] = before / scores
    return rows


def top_contestants(
    df: pd.DataFrame, problem_name: str | None = None, n: int | None = 10, runner: str | None = None
) -> pd.DataFrame:
    """The ranking: each user's best valid score per problem and runner.

    Args:
        df: rows of `load_submissions`.
        problem_name: only this problem.
        n: how many rows per problem and runner; None: all.
        runner: only this runner (GPU).

    Returns:
        Columns rank, user_id, user_name, problem_name, runner, score (seconds), submission_id, submission_time and
        submissions (the user's rows on that problem and runner), by problem, runner, score, time and id. Of equal
        scores of one user the earliest counts. Equal scores share a rank, and the ranks after them are left out, as
        with SQL's rank().

    Raises:
        ValueError: `n` is negative.
    """
    if n is not None and n < 0:
        raise ValueError(f"n is {n}, expected 0 or more")
    _need(df, "user_id", "user_name", "problem_name", "runner", "submission_id", "submission_time")
    if problem_name is not None:
        df = df[df["problem_name"] == problem_name]
    if runner is not None:
        df = df[df["runner"] == runner]
    keys = ["user_id", "problem_name", "runner"]
    counts = df.groupby(keys, sort=False).size().rename("submissions")
    order = ["problem_name", "runner", "score", "submission_time", "submission_id"]
    best = df[valid(df)].sort_values(order, kind="stable").drop_duplicates(keys).join(counts, on=keys)
    boards = best.groupby(["problem_name", "runner"], sort=False)
    best["rank"] = boards["score"].rank(method="min").astype("int64")
    chosen = best if n is None else boards.head(n).assign(rank=best["rank"])
    return chosen[list(_TOP)].reset_index(drop=True)


def leaderboard_summary(df: pd.DataFrame, *, by_runner: bool = False) -> pd.DataFrame:
    """Figures of each problem.

    Args:
        df: rows of `load_submissions`.
        by_runner: one row per problem and runner, of rows with a score only.

    Returns:
        By problem_name: problem_name, (runner), submissions (rows), users, passing (valid scores), passing_users, best,
        best_runner, best_user (the id where there is no name), median (of each user's best), first_submission and
        last_submission. Scores are seconds.
    """
    _need(df, "user_id", "user_name", "problem_name", "runner", "submission_id", "submission_time")
    keys = ["problem_name", "runner"] if by_runner else ["problem_name"]
    rows = df[df["score"].notna() & df["runner"].notna()] if by_runner else df
    lines = []
    for key, group in rows.groupby(keys, sort=True):
        scored = group[valid(group)].sort_values(["score", "submission_time", "submission_id"], kind="stable")
        best = None if scored.empty else scored.iloc[0]
        lines.append(
            {
                **dict(zip(keys, key, strict=True)),
                "submissions": len(group),
                "users": group["user_id"].nunique(),
                "passing": len(scored),
                "passing_users": scored["user_id"].nunique(),
                "best": math.nan if best is None else float(best["score"]),
                "best_runner": None if best is None else best["runner"],
                "best_user": None if best is None else best["user_name"] or best["user_id"],
                "median": float(scored.drop_duplicates("user_id")["score"].median()),
                "first_submission": group["submission_time"].min(),
                "last_submission": group["submission_time"].max(),
            }
        )
    columns = (
        *(*keys, "submissions", "users", "passing", "passing_users", "best", "best_runner", "best_user", "median"),
        *("first_submission", "last_submission"),
    )
    return pd.DataFrame(lines, columns=list(columns))


def user_stats(df: pd.DataFrame, user_id: str | None = None, user_name: str | None = None) -> pd.DataFrame:
    """One user's figures per problem and runner.

    Args:
        df: rows of `load_submissions`, of all users: the user's rank depends on them.
        user_id: the user's id.
        user_name: the user's name, as for `author_progression`.

    Returns:
        By user, problem and runner (null: the rows where nothing was scored): user_id, user_name, problem_name,
        runner, submissions (rows), passing (valid scores), best, first_score (seconds), speedup (first divided by
        best), rank, of (users with a rank), first_submission and last_submission.

    Raises:
        ValueError: neither id nor name is given.
    """
    rows = _of_author(df, user_id, user_name).sort_values(["submission_time", "submission_id"], kind="stable")
    ranking = top_contestants(df[df["problem_name"].isin(rows["problem_name"].unique())], n=None)
    sizes = ranking.groupby(["problem_name", "runner"]).size()
    ranks = ranking.set_index(["user_id", "problem_name", "runner"])["rank"]
    lines = []
    for key, group in rows.groupby(["user_id", "problem_name", "runner"], dropna=False, sort=True):
        user, problem, runner = key
        scores = group.loc[valid(group), "score"]
        ranked = len(scores) > 0
        lines.append(
            {
                "user_id": user,
                "user_name": group["user_name"].iloc[-1],
                "problem_name": problem,
                "runner": None if pd.isna(runner) else runner,
                "submissions": len(group),
                "passing": len(scores),
                "best": float(scores.min()) if ranked else math.nan,
                "first_score": float(scores.iloc[0]) if ranked else math.nan,
                "speedup": float(scores.iloc[0] / scores.min()) if ranked else math.nan,
                "rank": int(ranks.loc[key]) if ranked else None,
                "of": int(sizes.loc[(problem, runner)]) if ranked else None,
                "first_submission": group["submission_time"].min(),
                "last_submission": group["submission_time"].max(),
            }
        )
    columns = (
        *("user_id", "user_name", "problem_name", "runner", "submissions", "passing", "best", "first_score", "speedup"),
        *("rank", "of", "first_submission", "last_submission"),
    )
    stats = pd.DataFrame(lines, columns=list(columns))
    # Whole numbers where there is a rank, nulls elsewhere.
    return stats.astype({"rank": "Int64", "of": "Int64"})


def _of_author(df: pd.DataFrame, user_id: str | None, user_name: str | None) -> pd.DataFrame:
    """A copy of one author's rows."""
    _need(df, "user_id", "user_name", "problem_name", "runner", "submission_id", "submission_time")
    if user_id is None and user_name is None:
        raise ValueError("expected a user_id or a user_name, found neither")
    rows = df
    if user_id is not None:
        # Ids of older files are numbers.
        rows = rows[rows["user_id"].astype(str) == str(user_id)]
    if user_name is not None:
        rows = rows[rows["user_name"] == user_name]
        ids = sorted(str(each) for each in rows["user_id"].unique())
        if len(ids) > 1:
            named = ", ".join(map(printable, ids))
            warnings.warn(f"{len(ids)} users are called {printable(user_name)!r}: {named}", UserWarning, stacklevel=3)
    return rows.copy()


def _need(df: pd.DataFrame, *columns: str) -> None:
    """Refuse a table that lacks columns.

    Raises:
        ValueError: it does.
    """
    absent: list[Any] = [column for column in columns if column not in df.columns]
    if absent:
        raise ValueError(f"expected the columns {', '.join(columns)}; the table has no {', '.join(absent)}")


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
