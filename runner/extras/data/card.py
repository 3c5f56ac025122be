"""The data-set card: README.md of an export, with the header that the Hugging Face hub reads. Says no time of day."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import yaml

_TEXT: Final = """
# {title}

Submissions to GPU kernel leaderboards: code, scores and runs. Scores are seconds; lower is better.

| configuration | files | rows | a row is |
|---|---|---|---|
| `flat` | `{flat}` | {flat_rows} | the best attempt of a user with a code on a runner, with the code |
| `submissions` | `submissions.parquet` | {submissions_rows} | the same without the code, and more columns |
| `runs` | `runs.parquet` | {runs_rows} | a public run and case |
| `code` | `code/part-*.parquet` | {code_rows} | a submitted file, by its SHA-256 |
| `leaderboards` | `leaderboards.parquet` | {leaderboards_rows} | a leaderboard |
| `finals` | `finals.parquet` | {finals_rows} | a place of the last final of a leaderboard and runner |
{receipts}
`manifest.json` has the hash, the rows and the schema of every file, and when the data was read.

## Leaderboards

| id | name | deadline | GPU types | submissions | users | rows | ranked |
|---|---|---|---|---|---|---|---|
{boards}

## Columns

{columns}

## Reading it

```python
import pandas as pd
from datasets import load_dataset

ranked = pd.read_parquet("{flat}", columns=["user_name", "problem_name", "runner", "score"]).dropna(subset="score")
rows = load_dataset("parquet", data_files="submissions.parquet", split="train")
```

```sql
-- DuckDB: the best code of each leaderboard and runner
SELECT problem_name, runner, min_by(code, s.score)
FROM 'submissions.parquet' s JOIN 'code/*.parquet' c USING (code_sha256)
WHERE s.score IS NOT NULL GROUP BY ALL;
```

## Rules

- A score is there exactly where it ranks: the public and the secret ranked run passed, no one cheated, the time is
  what the leaderboard demands, and the value can be a time. Otherwise `score`, `passed`, `mode` and `runner` are
  null. `score_raw` in `submissions.parquet` keeps the value and `score_invalid_reason` says why it does not count.
- Rows are de-duplicated per leaderboard, user, code and runner: the lowest score, then the earliest submission.
  Attempts that never ranked are kept once per user and code, without a runner.
- `submission_id` alone is no key: a submission has a row per runner.
- `status` is `succeeded` exactly for rows with a score of finished submissions. `failed` also means that a submission
  was never meant to rank.
- `flags` names checks that a row failed and that do not take its score away. Look at them before you trust a record.
- `assurance_correctness` and `assurance_timing` say what the score is worth; null: not known. `sol` is the fraction
  of the speed of light.
- `code` is text: bytes that are not UTF-8 became U+FFFD. `code/part-*.parquet` has the bytes, and `code_encoding`
  says which files are concerned.
- {people}
- The column `host` of `runs.parquet` tells hosts apart and does not name them. Output, cases and seeds of secret runs
  are in no file.

## Trust
{notes}

## Licence

{licence}

## Citation

Cite the leaderboards' organisers and `content_sha256` of `manifest.json`: `{digest}`.
"""
#: What columns say, by the files that have them; a column that several files have is explained once.
_COLUMNS: Final = {
    "`{flat}` and `submissions.parquet`": {
        "submission_id, leaderboard_id, problem_name": "the submission and its leaderboard",
        "user_id, user_name": "who submitted it; a name is not unique, and may be empty",
        "code_id, file_name": "the code in the database, and the file's name",
        "submission_time": "UTC",
        "status": "`succeeded`, `hacked`, or else the job's",
        "score": "seconds; null where it does not rank",
        "passed, mode, runner": "of the run that the score is of; null without a score. `runner` is the GPU type",
        "code": "the submitted text; not in `submissions.parquet`",
    },
    "`submissions.parquet`": {
        "mode_category, verdict": "as what it was submitted, and what kernel-runner says of it; null: not known",
        "run_id": "the score's run in `runs.parquet`",
        "score_raw, score_invalid_reason": "what was measured, in seconds, and why it does not rank",
        "flags": "suspect checks that the row fails",
        "code_sha256, code_bytes, code_encoding": "of the submitted bytes",
        "assurance_correctness, assurance_timing": "what the result is worth; null: not known",
        "sol": "fraction of the speed of light, geometric mean over the cases",
    },
    "`runs.parquet`": {
        "case_index, spec": "the case, and its arguments; null for a run without cases",
        "mean_ns, std_ns, best_ns, runs, sol": "nanoseconds over so many repetitions of the case; its own `sol`",
        "duration_s": "seconds that the whole run took",
        "gpu, torch, runtime, host": "where it ran",
        "start_time, end_time": "UTC",
    },
    "`leaderboards.parquet`": {
        "id, name, deadline, lang, description": "of the leaderboard",
        "ranking_by": "how the means of the cases make the score",
        "gpu_types": "the runners that it ranks",
        "visibility, demanded_timing": "who saw it, and the least timing assurance that ranks",
        "trust_note": "what to know before trusting its scores",
    },
    "`receipts.parquet`": {
        "job_id, submission_id, runner": "the job, its submission, and the GPU type",
        "run": "`public`, whose score ranks, or `secret`, without which it would not",
        "retired_as": "why its result counts no more; null: it does",
        "receipt": "the statement, with key and signature of the host that it names; `manifest.json` lists the keys",
    },
    "`finals.parquet`": {
        "rank, rank_before": "equal ranks could not be told apart; null is out of the final; the place before it",
        "score, score_low, score_high": "the median of all evaluations' lower quartiles, and its 95 % interval",
        "evaluations, hosts": "how often and on how many hosts it was evaluated",
        "spread_hosts, spread_rounds": "the largest median of a host, or of a round, over the smallest",
        "fault, ended_at": "the verdict that put it out, and the round; when the final ended, UTC",
    },
}
_PEOPLE: Final = {
    "name": "Users have the ids and names that they chose. A name that is an address of electronic mail is empty.",
    "id": "Users have their ids, and no names.",
    "pseudonym": "Users have pseudonyms, which stay the same in later exports with the same key, and no names.",
}
#: The licences that the hub knows by these ids; it refuses a card with another one.
_LICENCES: Final = frozenset(
    (
        *("afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bigcode-openrail-m"),
        *("bigscience-bloom-rail-1.0", "bigscience-openrail-m", "bsd", "bsd-2-clause", "bsd-3-clause"),
        *("bsd-3-clause-clear", "bsl-1.0", "c-uda", "cc", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0"),
        *("cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0"),
        *("cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0"),
        *("cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "cdla-sharing-1.0"),
        *("creativeml-openrail-m", "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1", "gfdl", "gpl"),
        *("gpl-2.0", "gpl-3.0", "isc", "lgpl", "lgpl-2.1", "lgpl-3.0", "lgpl-lr", "lppl-1.3c", "mit"),
        *("mpl-2.0", "ms-pl", "ncsa", "odbl", "odc-by", "ofl-1.1", "openrail", "openrail++", "osl-3.0"),
        *("other", "pddl", "postgresql", "unknown", "unlicense", "wtfpl", "zlib"),
    )
)


def render(manifest: Mapping[str, Any], rows: Mapping[str, int]) -> str:
    """The card. `rows`: path of each parquet file -> its rows."""
    flat = manifest["flat"]
    boards = "\n".join(
        f"| {board['id']} | {_cell(board['name'])} | {board['deadline']} | {_cell(', '.join(board['gpu_types']))} "
        f"| {board['submissions']} | {board['users']} | {board['rows']} | {board['ranked']} |"
        for board in manifest["boards"]
    )
    notes = "\n".join(
        f"- **{_cell(board['name'])}**: {_cell(board['trust_note'])}"
        for board in manifest["boards"]
        if board["trust_note"]
    )
    return _header(manifest, rows) + _TEXT.format(
        title=flat.removesuffix("_submissions.parquet"),
        flat=flat,
        flat_rows=rows[flat],
        submissions_rows=rows["submissions.parquet"],
        runs_rows=rows["runs.parquet"],
        code_rows=sum(count for path, count in rows.items() if path.startswith("code/")),
        leaderboards_rows=rows["leaderboards.parquet"],
        receipts=""
        if "receipts.parquet" not in rows
        else f"| `receipts` | `receipts.parquet` | {rows['receipts.parquet']} | a signed statement of a ranked job |\n",
        finals_rows=rows["finals.parquet"],
        boards=boards,
        columns="\n\n".join(
            "\n".join(
                [f"| column of {files.format(flat=flat)} | meaning |", "|---|---|"]
                + [
                    f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {text} |"
                    for names, text in columns.items()
                ]
            )
            for files, columns in _COLUMNS.items()
            if "receipts" not in files or "receipts.parquet" in rows
        ),
        people=_PEOPLE[manifest["identity"]],
        notes=f"\n{notes}" if notes else "\nThe operator has given no notes on single leaderboards.",
        licence=_licence(manifest),
        digest=manifest["content_sha256"],
    )


def _header(manifest: Mapping[str, Any], rows: Mapping[str, int]) -> str:
    patterns = {
        "flat": manifest["flat"],
        "submissions": "submissions.parquet",
        "runs": "runs.parquet",
        "code": "code/part-*.parquet",
        "leaderboards": "leaderboards.parquet",
        "receipts": "receipts.parquet",
        "finals": "finals.parquet",
    }
    # The hub's reader refuses a configuration without rows.
    configurations = [
        {"config_name": name, "data_files": pattern, **({"default": True} if name == "flat" else {})}
        for name, pattern in patterns.items()
        if any(count and fnmatchcase(path, pattern) for path, count in rows.items())
    ]
    licence = manifest["licence"] or "other"
    header: dict[str, Any] = {"license": licence if licence in _LICENCES else "other"}
    if licence not in _LICENCES:
        header["license_name"] = licence
    if configurations:
        header["configs"] = configurations
    return f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n"


def _licence(manifest: Mapping[str, Any]) -> str:
    if manifest["licence"]:
        return (
            f"{_cell(manifest['licence'])}. It covers the collection; the licence of a single submission is not known."
        )
    return "None: this export is for its maker alone, and may hold leaderboards that are still open."


def _cell(text: str) -> str:
    """Text that breaks no table."""
    return " ".join(text.replace("|", r"\|").split())
