"""The programs of an exported folder: what each helper promises, and the published documents' lines as they stand."""

from __future__ import annotations

import math
import os
import pty
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runner.extras.data.analysis import locate
from runner.extras.data.shipped.analyze_submissions import (
    METADATA,
    author_progression,
    format_score,
    leaderboard_summary,
    load_submissions,
    top_contestants,
    user_stats,
    valid,
)
from runner.extras.data.tables import FLAT
from tests.support.waiting import PATIENCE_S
from tests.unit.extras.data import samples
from tests.unit.extras.data.samples import START, row

#: The lines of KernelBot's published instructions that are Python, in their blocks.
DOCUMENT = (
    """\
from analyze_submissions import load_submissions, leaderboard_summary

df = load_submissions('new_problem_submissions.parquet')
print(leaderboard_summary(df))
""",
    """\
from analyze_submissions import load_submissions

df = load_submissions()

# Get a specific user's best submission
user_subs = df[(df['user_name'] == 'gau.nernst') & (df['problem_name'] == 'nvfp4_gemv')]
best = user_subs.sort_values('score').head(1)

# Access the code
code = best['code'].values[0]
print(code)
""",
    """\
from analyze_submissions import (
    load_submissions, # Load parquet file
    author_progression, # See user's submissions over time
    top_contestants, # Get leaderboard rankings
    leaderboard_summary, # Summary stats per problem
    user_stats, # Stats for a specific user
    format_score # Format score with units (us, ms, s)
)
""",
)
#: What pandas makes of rows of the database, as the instructions have it.
PANDAS = """\
from datetime import datetime, timezone

import pandas as pd

when = datetime(2030, 3, 1, tzinfo=timezone.utc)
rows = [
    (1, 595, "p", "7", "ada", 1, "a.py", when, "succeeded", 1e-5, True, "leaderboard", "B200", "code"),
    (2, 595, "p", "7", "ada", 2, "a.py", when, "failed", None, None, None, None, "code"),
]
pd.DataFrame(rows, columns={names!r}).to_parquet("new_problem_submissions.parquet", index=False)
"""


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    """Rows as pandas has them after a plain read of the file: `passed` with nulls is an object column."""
    return pd.DataFrame(list(rows))


def python(folder: Path, *arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder as a person would, without the repository on its path."""
    return subprocess.run(
        [sys.executable, "-X", "utf8", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


#: The user and the problem of the published programs.
ROWS = [
    row(1, "71", name="gau.nernst", problem="nvfp4_gemv", score=31e-6, code="print('slow')\n"),
    row(2, "71", name="gau.nernst", problem="nvfp4_gemv", score=25e-6, code="print('fast')\n"),
    row(3, "71", name="gau.nernst", problem="nvfp4_gemv"),
    row(4, "71", name="gau.nernst", problem="nvfp4_gemm", score=99e-6),
    row(5, "72", name=samples.HOSTILE, problem="nvfp4_gemv", score=5e-6, code="\x1b[2J\n"),
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported folder."""
    return samples.write_export(tmp_path_factory.mktemp("export"), ROWS)


def test_the_published_lines_run_in_an_exported_folder(tmp_path: Path) -> None:
    """In one process; also on a file that pandas has made, which has a flat one's name: commands tell them apart."""
    folder = samples.write_export(tmp_path / "export", ROWS, name="kernels")
    program = "\n".join([PANDAS.replace("{names!r}", repr(FLAT.names)), *DOCUMENT])
    done = python(folder, "-c", program)
    assert done.returncode == 0, done.stderr
    assert "problem_name" in done.stdout
    assert done.stdout.rstrip().endswith("print('fast')")
    assert (folder / "new_problem_submissions.parquet").is_file()
    (folder / "submissions.parquet").unlink()
    assert locate(folder) == folder / "kernels_submissions.parquet"


def test_the_default_file_is_the_flat_file_of_the_exported_folder(tmp_path: Path) -> None:
    """The manifest says which, also from the folder of the scripts; without a manifest it has the published name."""
    folder = samples.write_export(tmp_path / "export", [row(1, score=1e-5)], name="autumn")
    for place in (folder, folder / "scripts/nvfp4"):
        done = python(place, "-c", "import analyze_submissions as a; print(len(a.load_submissions()))")
        assert (done.stdout, done.stderr) == ("1\n", "")
    (folder / "manifest.json").unlink()
    lost = python(folder, "-c", "import analyze_submissions as a; a.load_submissions()")
    assert f"no file {folder}/nvidia_nvfp4_submissions.parquet; " in lost.stderr


def test_the_shipped_programs_need_pandas_and_pyarrow_alone() -> None:
    """A reader of the folder has no kernel-runner."""
    assert set(samples.shipped_files()) - {"queries.sql"} == {
        "analyze_submissions.py",
        "scripts/nvfp4/analyze_submissions.py",
        "scripts/nvfp4/get_fastest_submission.py",
        "scripts/nvfp4/query_submissions.py",
    }
    foreign = re.compile(r"^\s*(from|import) (runner|sandbox|tasks)\b", re.MULTILINE)
    for path in (found for name, found in samples.shipped_files().items() if name.endswith(".py")):
        assert not foreign.search(path.read_text(encoding="utf-8"))


def test_the_fastest_submission_is_printed_as_published(exported: Path) -> None:
    """User, problem, score, id, a blank line, the banner, a blank line, the code; by default of the original's user."""
    done = python(exported, "scripts/nvfp4/get_fastest_submission.py")
    head = "User: gau.nernst\nProblem: nvfp4_gemv\nScore: 25.00 \u00b5s\nSubmission ID: 2\n\n"
    assert (done.stdout, done.stderr) == (f"{head}=== CODE ===\n\nprint('fast')\n\n", "")
    other = python(exported, "scripts/nvfp4/get_fastest_submission.py", "--problem", "nvfp4_gemm")
    assert "Submission ID: 4\n" in other.stdout


def test_a_submission_is_printed_by_its_id(exported: Path) -> None:
    """With its id first, and N/A where there is no score."""
    done = python(exported, "scripts/nvfp4/query_submissions.py", "--id", "3")
    head = "ID: 3\nUser: gau.nernst\nProblem: nvfp4_gemv\nScore: N/A\n\n"
    assert (done.stdout, done.stderr) == (f"{head}=== CODE ===\n\n# 3\n\n", "")
    missing = python(exported, "scripts/nvfp4/query_submissions.py", "--id", "77")
    assert (missing.returncode, missing.stdout) == (1, "Submission 77 not found\n")


def test_a_hostile_name_reaches_no_terminal(exported: Path) -> None:
    """Control characters of names are escapes wherever they are printed, of code on a terminal alone."""
    done = python(exported, "scripts/nvfp4/query_submissions.py", "--id", "5")
    head, _, code = done.stdout.partition("=== CODE ===")
    assert "\\x1b[2J\\u202e" in head
    assert "\x1b" not in head
    assert "\x1b[2J" in code
    main, other = pty.openpty()
    shown = python(exported, "scripts/nvfp4/query_submissions.py", "--id", "5", stdout=other)
    os.close(other)
    text = os.read(main, 10_000).decode()
    os.close(main)
    assert shown.returncode == 0
    assert "\\x1b[2J" in text.partition("=== CODE ===")[2]
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("score", "unit", "text"),
    [
        (25e-6, "us", "25.00 \u00b5s"),
        (25e-6, "ms", "0.025 ms"),
        (25e-6, "auto", "25.00 \u00b5s"),
        (0.001, "auto", "1.000 ms"),
        (1.0, "auto", "1.0000 s"),
        (25e-6, "s", "0.000025 s"),
        (None, "us", "N/A"),
        (pd.NA, "ms", "N/A"),
    ],
)
def test_scores_are_written_with_their_unit(score: float | None, unit: str, text: str) -> None:
    """To the character: the sign is U+00B5."""
    assert format_score(score, unit) == text


def test_passed_can_select_rows_after_loading(tmp_path: Path) -> None:
    """In a plain read it is an object column, and selecting by it raises."""
    path = samples.write_flat(tmp_path / "x_submissions.parquet", [row(1, score=1e-5), row(2)])
    loaded = load_submissions(path)
    assert list(loaded[loaded.passed]["submission_id"]) == [1]
    assert "code" not in load_submissions(path, columns=METADATA)


def test_only_a_positive_finite_score_of_a_passed_leaderboard_run_counts() -> None:
    """Files of KernelBot hold others; both forms of `passed` are understood."""
    rows = frame(
        row(1, score=1e-5),
        *(row(number, score=bad) for number, bad in enumerate((0.0, -1.0, math.nan, math.inf, -math.inf), start=2)),
        row(7, score=1e-6, passed=False),
        row(8, score=1e-6, mode="benchmark"),
        row(9),
    )
    assert rows["passed"].dtype == object
    assert list(rows[valid(rows)]["submission_id"]) == [1]
    assert list(rows[valid(rows.astype({"passed": "boolean"}))]["submission_id"]) == [1]
    assert list(top_contestants(rows)["submission_id"]) == [1]
    assert leaderboard_summary(rows).iloc[0][["best", "passing", "submissions"]].tolist() == [1e-5, 1, 9]


def test_the_ranking_has_one_row_per_user_problem_and_runner() -> None:
    """The best score, of equal ones the earliest; ranks are shared as SQL's rank() shares them."""
    rows = frame(
        row(1, "ada", score=3e-5),
        row(2, "ada", score=2e-5),
        row(3, "ada", score=2e-5),
        row(4, "bob", score=2e-5),
        row(5, "cid", score=4e-5),
        row(6, "cid"),
        row(7, "ada", score=1e-6, runner="H100"),
        row(8, "ada", score=9e-6, problem="sort"),
    )
    found = top_contestants(rows)
    assert list(found.columns) == [
        *("rank", "user_id", "user_name", "problem_name", "runner", "score", "submission_id", "submission_time"),
        "submissions",
    ]
    assert found[["problem_name", "runner", "rank", "user_id", "submission_id", "submissions"]].to_numpy().tolist() == [
        ["sort", "B200", 1, "ada", 8, 1],
        ["vectoradd", "B200", 1, "ada", 2, 3],
        ["vectoradd", "B200", 1, "bob", 4, 1],
        ["vectoradd", "B200", 3, "cid", 5, 1],
        ["vectoradd", "H100", 1, "ada", 7, 1],
    ]
    assert top_contestants(rows, "vectoradd", 1, "B200")["user_id"].tolist() == ["ada"]
    assert top_contestants(rows, n=1)["submission_id"].tolist() == [8, 2, 7]
    assert len(top_contestants(rows, n=None)) == 5
    with pytest.raises(ValueError, match="expected 0 or more"):
        top_contestants(rows, n=-1)


def test_a_progression_shows_what_each_submission_improved() -> None:
    """By time and id, per runner; what did not rank stays in, and improves nothing."""
    rows = frame(
        row(4, score=1e-5, hours=4),
        row(1, score=4e-5, hours=1),
        row(2, hours=2),
        row(3, score=5e-5, hours=3),
        row(6, score=2e-5, hours=4, runner="H100"),
        row(5, "bob", score=1e-6),
    )
    found = author_progression(rows, user_id="ada", problem_name="vectoradd")
    assert found["submission_id"].tolist() == [1, 2, 3, 4, 6]
    assert found["best_so_far"].fillna(0).tolist() == [4e-5, 0, 4e-5, 1e-5, 2e-5]
    assert found["improvement"].fillna(0).tolist() == pytest.approx([0, 0, 0.8, 4.0, 0])
    assert list(found.columns) == [*rows.columns, "best_so_far", "improvement"]
    assert author_progression(rows, user_name="nobody").empty


def test_an_author_needs_an_id_or_a_name() -> None:
    """Both must match where both are given; a name of several ids is said."""
    rows = frame(row(1, "1", name="sam", score=1e-5), row(2, "2", name="sam", score=2e-5))
    for helper in (author_progression, user_stats):
        with pytest.raises(ValueError, match="user_id or a user_name"):
            helper(rows)
    with pytest.warns(UserWarning, match="2 users are called 'sam': 1, 2"):
        both = author_progression(rows, user_name="sam")
    assert both["best_so_far"].tolist() == [1e-5, 2e-5]
    assert author_progression(rows, user_id="2", user_name="sam")["submission_id"].tolist() == [2]
    assert author_progression(rows, user_id="2", user_name="pat").empty


def test_a_summary_has_a_row_per_problem() -> None:
    """Counts of all rows and of valid scores; the median of the users' bests."""
    rows = frame(
        row(1, "ada", score=3e-5),
        row(2, "ada", score=1e-5),
        row(3, "bob", score=2e-5, runner="H100"),
        row(4, "cid", score=6e-5),
        row(5, "dan"),
        row(6, "eve", problem="empty"),
    )
    found = leaderboard_summary(rows).set_index("problem_name")
    assert list(found.columns) == [
        *("submissions", "users", "passing", "passing_users", "best", "best_runner", "best_user", "median"),
        *("first_submission", "last_submission"),
    ]
    board = found.loc["vectoradd"]
    assert board[["submissions", "users", "passing", "passing_users"]].tolist() == [5, 4, 4, 3]
    assert board[["best", "best_runner", "best_user", "median"]].tolist() == [1e-5, "B200", "ada", 2e-5]
    assert board["first_submission"] == START + timedelta(hours=1)
    empty = found.loc["empty"]
    assert empty[["submissions", "passing"]].tolist() == [1, 0]
    assert math.isnan(empty["best"])
    assert list(found.index) == ["empty", "vectoradd"]
    assert leaderboard_summary(rows.assign(user_name="")).set_index("problem_name").loc["vectoradd"].best_user == "ada"
    split = leaderboard_summary(rows, by_runner=True)
    assert split[["problem_name", "runner", "submissions", "best"]].to_numpy().tolist() == [
        ["vectoradd", "B200", 3, 1e-5],
        ["vectoradd", "H100", 1, 2e-5],
    ]


def test_a_users_statistics_have_a_row_per_problem_and_runner() -> None:
    """The rank is that among all users; attempts that never ranked have a row of their own."""
    rows = frame(
        row(1, "ada", score=4e-5),
        row(2, "ada", score=2e-5),
        row(3, "ada"),
        row(4, "bob", score=1e-5),
        row(5, "ada", problem="sort"),
    )
    found = user_stats(rows, user_name="ada")
    assert found[["problem_name", "submissions", "passing"]].to_numpy().tolist() == [
        ["sort", 1, 0],
        ["vectoradd", 2, 2],
        ["vectoradd", 1, 0],
    ]
    assert found["runner"].fillna("-").tolist() == ["-", "B200", "-"]
    ranked = found.iloc[1]
    assert ranked[["best", "first_score", "speedup", "rank", "of"]].tolist() == [2e-5, 4e-5, 2.0, 2, 2]
    assert found["rank"].isna().tolist() == [True, False, True]
    assert user_stats(rows, user_id="nobody").empty
