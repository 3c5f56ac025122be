"""List a user's submissions on a problem, or print one submission with its code.

    python scripts/nvfp4/query_submissions.py [--user NAME] [--problem NAME] [--file PATH]
    python scripts/nvfp4/query_submissions.py --id N [--file PATH]

Exit code 1: nothing matches.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd
from analyze_submissions import (
    METADATA,
    author_progression,
    default_file,
    format_score,
    load_submissions,
    printable,
)


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    parser = argparse.ArgumentParser(description="List a user's submissions on a problem, or print one with its code.")
    parser.add_argument("--id", type=int, metavar="N", help="print this submission")
    parser.add_argument("--user", default="gau.nernst", help="user name (default: %(default)s)")
    parser.add_argument("--problem", default="nvfp4_gemv", help="problem (default: %(default)s)")
    parser.add_argument("--file", help="parquet file (default: the one of this folder)")
    options = parser.parse_args(arguments)
    path = options.file or default_file()
    rows = rows_of(path)
    if options.id is not None:
        return _show(path, rows[rows["submission_id"] == options.id], options.id)
    return _list(rows, options.user, options.problem)


def rows_of(path: str | Path) -> pd.DataFrame:
    """All rows of a file, without code. Ends the program if there is no such file."""
    try:
        return load_submissions(path, columns=METADATA)
    except FileNotFoundError as error:
        sys.exit(str(error))


def print_code(path: str | Path, submission_id: int) -> None:
    """Print the code of a submission below a banner; on a terminal without its control characters."""
    code = pd.read_parquet(path, columns=["code"], filters=[("submission_id", "==", submission_id)])["code"].iloc[0]
    print("\n=== CODE ===\n")
    print("\n".join(map(printable, code.expandtabs().split("\n"))) if sys.stdout.isatty() else code)


def _show(path: str | Path, rows: pd.DataFrame, submission_id: int) -> int:
    """Print one submission: its best score, where several runners have one."""
    if rows.empty:
        print(f"Submission {submission_id} not found")
        return 1
    row = rows.sort_values("score", kind="stable").iloc[0]
    print(f"ID: {row['submission_id']}")
    print(f"User: {printable(row['user_name'])}")
    print(f"Problem: {printable(row['problem_name'])}")
    print(f"Score: {format_score(row['score'])}")
    print_code(path, submission_id)
    return 0


def _list(rows: pd.DataFrame, user: str, problem: str) -> int:
    """Print the ids of a user's submissions on a problem, the best score first."""
    # A warning says where several users have the name.
    rows = author_progression(rows, user_name=user, problem_name=problem)
    if rows.empty:
        print(f"no submission of {printable(user)} on {printable(problem)}")
        return 1
    print(f"{len(rows)} submissions of {printable(user)} on {printable(problem)}, the fastest first")
    for row in rows.sort_values(["score", "submission_time", "submission_id"], kind="stable").itertuples():
        print(f"{row.submission_id}  {format_score(row.score)}  {row.submission_time:%Y-%m-%d %H:%M:%S}  {row.status}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
