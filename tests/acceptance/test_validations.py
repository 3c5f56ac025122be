"""Validations and a final in real containers: right scripts, and scripts that lie, break, are ended and never end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.plugins.live import ROOT, LiveRunner, live_runner
from tests.support import sweeps
from tests.support.waiting import wait_until

#: Beside the submission, which says how it ends.
SCRIPT: Final = """
import json, os, sys, time
import helper, submission
print("what a library prints")
print("and says", file=sys.stderr)
config = json.loads(os.environ["KERNELBOT_VALIDATION_CONFIG"])
result = {"passed_shapes": 2, "total_shapes": 3, "fully_validated": False, "geomean_sync_wall_speedup": 1.5,
          "results": [{"n": helper.SIZE, "version": config["version"], "keys": sorted(config)}]}
exec(submission.HOW)
print(json.dumps(result))
"""
#: How the submission makes the script end -> what its validation is then: its counts, or a part of the sentence.
ENDS: Final[dict[str, tuple[int, int] | str]] = {
    "pass": (2, 3),
    "result.update(passed_shapes=4)": "no result: 4 of 3 shapes passed",
    "print('Segmentation fault'); sys.exit(0)": "no result: it is not JSON",
    "raise ValueError('diverged')": "ended with exit code 1: ValueError: diverged",
    "[bytearray(2**30) for _ in range(9)]": "the kernel killed the process at the container's memory limit",
    "time.sleep(1000)": "killed after 15 s, the limit for the whole evaluation",
}
#: A ranked submission, as KernelBot writes one.
RANKED: Final = """
WITH author AS (INSERT INTO leaderboard.user_info (id, user_name) VALUES (%(user)s, %(user)s)),
code AS (INSERT INTO leaderboard.code_files (code) VALUES (%(code)s) RETURNING id),
submission AS (
    INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done)
    SELECT l.id, 'x.py', %(user)s, code.id, now(), true
    FROM leaderboard.leaderboard l, code WHERE l.name = %(board)s RETURNING id
)
INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed, system_info)
SELECT s.id, now(), now(), 'leaderboard', k.secret, 'CPU', %(score)s, true, '{}'
FROM submission s, (VALUES (false), (true)) AS k (secret) RETURNING submission_id
"""
PROBLEM: Final = ROOT / "tasks" / "problems" / "vectoradd"
RIGHT: Final = b"def custom_kernel(data):\n    return data[0] + data[1]\n"
WRONG: Final = b"def custom_kernel(data):\n    return data[0] - data[1]\n"
UNTOUCHED: Final = (
    "SELECT * FROM runner.ranking ORDER BY leaderboard, rank",
    "SELECT * FROM leaderboard.runs ORDER BY id",
    "SELECT * FROM runner.score ORDER BY run_id",
    "SELECT * FROM leaderboard.submission ORDER BY id",
)


@pytest.fixture(scope="module")
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[LiveRunner]:
    """A daemon that ends every run soon, and a leaderboard whose task has a validation."""
    with live_runner(create_database(migrated_template), max_run_s=15, warm_containers=0) as runner:
        for name, program, version in (("validated", "exit(1)", "v1"), ("judged", "@HARNESS@", 2)):
            files = {"submission.py": "@SUBMISSION@", "helper.py": "SIZE = 7\n", "eval.py": program}
            runner.store.create_board(
                name=name,
                deadline=datetime.now(UTC) + timedelta(days=1),
                task={
                    "files": {**files, "reference.py": "what nobody may know"},
                    "lang": "py",
                    "config": {"main": "eval.py"},
                    "tests": [{"size": 1}],
                    "benchmarks": [{"size": 2}],
                    "validation": {"version": version, "source": SCRIPT, "key of a later KernelBot": 1},
                },
                description="Whatever.",
                gpus=("CPU",),
                templates={},
                extra=None,
            )
        yield runner


def rank(db: psycopg.Connection[dict[str, Any]], board: str, *ends: str) -> list[int]:
    """Ranked submissions that make the script end so, the first the best."""
    ids = []
    for number, how in enumerate(ends):
        code = f"HOW = {how!r}".encode()
        values = {"board": board, "user": f"{board} {number}", "code": code, "score": 1 + number}
        row = db.execute(RANKED, values).fetchone()
        assert row is not None
        ids.append(row["submission_id"])
    return ids


def wait_for(live: LiveRunner, sweep_id: int) -> None:
    """Until a sweep is over."""
    wait_until(
        lambda: sweeps.validation_progress(live.store, sweep_id)["status"] == "completed",
        "the sweep is over",
        explain=lambda: f"the daemon said:\n{live.log}",
    )


def test_each_end_of_a_script_is_a_result_or_a_sentence_and_changes_no_ranking(live: LiveRunner) -> None:
    """What is right is written with the script's own line; what is not fails, runs once, and says why."""
    with psycopg.connect(live.database_url, autocommit=True, row_factory=dict_row) as db:

        def look() -> list[list[dict[str, Any]]]:
            return [db.execute(query.encode()).fetchall() for query in UNTOUCHED]

        ids = rank(db, "validated", *ENDS)
        before = look()
        assert [row["submission_id"] for row in before[0]] == ids
        sweep = sweeps.validate(live.store, "validated", "CPU", all_users=True)
        assert (sweep["jobs"], sweep["contract_version"]) == (len(ENDS), "v1")
        wait_for(live, sweep["sweep_id"])
        assert look() == before
        lines = {line.submission_id: line for line in live.store.validations(sweep_id=sweep["sweep_id"])}
        stored = db.execute("SELECT submission_id, result FROM leaderboard.submission_validation").fetchall()
        results = {row["submission_id"]: row["result"] for row in stored}
        attempts = db.execute("SELECT max(attempt) AS most FROM runner.job WHERE sweep_id IS NOT NULL").fetchone()
    for (how, expected), submission_id in zip(ENDS.items(), ids, strict=True):
        line = lines[submission_id]
        assert (line.gpu_type, line.contract_version) == ("CPU", "v1")
        if isinstance(expected, str):
            assert (line.status, line.passed_shapes, line.total_shapes) == ("failed", 0, 0), how
            assert line.error is not None
            assert expected in line.error, how
        else:
            assert (line.status, line.error) == ("completed", None), how
            assert (line.passed_shapes, line.total_shapes) == expected
            assert line.fully_validated is (line.passed_shapes == line.total_shapes)
            assert results[submission_id]["results"] == [{"n": 7, "version": "v1", "keys": ["version"]}]
    assert attempts == {"most": 1}
    assert json.dumps(results[ids[0]]["geomean_sync_wall_speedup"]) == "1.5"


def test_words_of_the_process_are_for_operators_where_the_judge_keeps_the_reference_secret(live: LiveRunner) -> None:
    """The submission reads the reference beside it, and its words come no further than the job."""
    with psycopg.connect(live.database_url, autocommit=True, row_factory=dict_row) as db:
        rank(
            db, "judged", "raise ValueError(open('reference.py').read())", "print(open('reference.py').read()); exit()"
        )
        sweep = sweeps.validate(live.store, "judged", "CPU")
        wait_for(live, sweep["sweep_id"])
        jobs = db.execute(
            "SELECT error FROM runner.job WHERE sweep_id = %s ORDER BY id", [sweep["sweep_id"]]
        ).fetchall()
    lines = live.store.validations(leaderboard="judged")
    assert {line.contract_version for line in lines} == {"2"}
    assert [line.error for line in lines] == [
        "the validation script ended with exit code 1",
        "the validation script's last line of output is no result",
    ]
    assert "ValueError: what nobody may know" in jobs[0]["error"]


def test_a_final_is_evaluated_by_the_daemon_as_secret_runs_are(live: LiveRunner) -> None:
    """One after the other, also where somebody does not pass; the next job of the host follows without a poll."""
    live.board(PROBLEM, name="final", timed_calls=3)
    with psycopg.connect(live.database_url, autocommit=True, row_factory=dict_row) as db:
        ids = []
        for number, code in enumerate((RIGHT, WRONG)):
            values = {"board": "final", "user": f"final {number}", "code": code, "score": 1 + number}
            row = db.execute(RANKED, values).fetchone()
            assert row is not None
            ids.append(row["submission_id"])
        order = sweeps.final(live.store, "final", None, top=10, rounds=8, open_board=True)
        assert (order["finalists"], order["hosts"]) == (2, 1)
        wait_until(
            lambda: sweeps.final_progress(live.store, "final")["status"] == "completed",
            "the final is over",
            explain=lambda: f"the daemon said:\n{live.log}",
        )
        scores = db.execute("SELECT number, score, p25 FROM runner.final_score ORDER BY number").fetchall()
        count = "SELECT count(*) AS runs FROM leaderboard.runs WHERE submission_id = ANY (%s)"
        runs = db.execute(count, [ids]).fetchone()
    lines, _ = live.store.final_ranking("final")
    assert [(line.rank, line.submission_id, line.fault) for line in lines] == [
        (1, ids[0], None), (None, ids[1], "wrong_answer in round 1"),
    ]  # fmt: skip
    assert [row["number"] for row in scores] == [0, 1]
    assert all(0 < row["p25"] <= row["score"] < 1 for row in scores)
    assert runs == {"runs": 4}
