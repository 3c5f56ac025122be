"""Print a user's fastest submission with its code.

    python scripts/nvfp4/get_fastest_submission.py [--user NAME] [--problem NAME] [--file PATH]

Without --problem it is the least score over all problems, which do not compare. Exit code 1: nothing matches.
"""

from __future__ import annotations

import argparse
import sys

from analyze_submissions import author_progression, default_file, format_score, printable, valid
from query_submissions import print_code, rows_of


def main(arguments: list[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    parser = argparse.ArgumentParser(description="Print a user's fastest submission with its code.")
    parser.add_argument("--user", default="gau.nernst", help="user name (default: %(default)s)")
    parser.add_argument("--problem", help="only this problem (default: all, which do not compare)")
    parser.add_argument("--file", help="parquet file (default: the one of this folder)")
    options = parser.parse_args(arguments)
    path = options.file or default_file()
    # A warning says where several users have the name.
    rows = author_progression(rows_of(path), user_name=options.user, problem_name=options.problem)
    rows = rows[valid(rows)]
    if rows.empty:
        where = "" if options.problem is None else f" on {printable(options.problem)}"
        sys.exit(f"no ranked submission of {printable(options.user)}{where} in {path}")
    best = rows.sort_values(["score", "submission_time", "submission_id"], kind="stable").iloc[0]
    print(f"User: {printable(best['user_name'])}")
    print(f"Problem: {printable(best['problem_name'])}")
    print(f"Score: {format_score(best['score'])}")
    print(f"Submission ID: {best['submission_id']}")
    print_code(path, int(best["submission_id"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
