"""Shipped tasks, from their competition files to the verdicts of their solutions, by a real daemon on the CPU type.

What a user sees is what counts here: boards are imported by the command line, files are submitted in SQL, and a wrong
one is told where it is wrong. Of three tasks a daemon ranks a right solution and refuses a wrong one, in containers.
That each solution of every task is right or wrong on every case is tests/unit/problems' business.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import yaml

from runner.base.model import Mode, Verdict
from runner.store.records import SubmissionView
from tests.plugins.live import ROOT, LiveRunner, live_runner

TASKS = ROOT / "tasks" / "problems"
COMPETITIONS = tuple(sorted(path.name for path in TASKS.glob("*.yaml")))
#: Task folder -> its competition file, and the name of its board.
COMPETITION_OF: dict[str, str] = {}
BOARDS: dict[str, str] = {}
for _file in COMPETITIONS:
    for _problem in yaml.safe_load((TASKS / _file).read_text(encoding="utf-8"))["problems"]:
        COMPETITION_OF[_problem["directory"]] = _file
        BOARDS[_problem["directory"]] = _problem["name"]
#: Which test, which rank and which output where there are several, how many of the elements, and the first of them; or
#: which identity, and the first matrix and column for which it does not hold.
WHERE = re.compile(
    r"^(test|benchmark) (?P<case>\d+) of (?P<cases>\d+): (?P<rank>rank \d+: )?(?P<output>output \d+: )?"
    r"((?P<count>\d+) of (?P<elements>\d+) elements differ; |[^;:]* )"
    r"at \((?P<place>[\d, ]+)\): found (?P<found>\S+), expected (?P<expected>[^;]+?)(; |$)"
)
#: Of several ranks, of several outputs, of one of each.
SHOWN = ("amd_all2all", "nvfp4_group_gemm", "vectoradd")
#: Of every benchmark there.
TIMED_CALLS = 5
_SUBMIT = "SELECT runner.submit(%s, %s, %s, %s, %s, ARRAY['CPU'])"


@pytest.fixture(scope="module")
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[LiveRunner]:
    """A daemon of two slots, without any board."""
    with live_runner(create_database(migrated_template), cpu_slots=2, warm_containers=0) as runner:
        yield runner
        assert runner.stop() == 0
        assert runner.containers() == 0


@pytest.fixture(scope="module")
def publish(live: LiveRunner, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Imports the competition of a task as shipped, with CPU as its only type and its first benchmark alone; once."""
    copy = shutil.copytree(TASKS, tmp_path_factory.mktemp("competitions") / "tasks")
    imported: set[str] = set()

    def publish(task: str) -> None:
        name = COMPETITION_OF[task]
        if name in imported:
            return
        document = yaml.safe_load((copy / name).read_text(encoding="utf-8"))
        for problem in document["problems"]:
            problem["gpus"] = ["CPU"]
            _shorten(copy / problem["directory"] / "runner.yml")
        (copy / name).write_text(yaml.safe_dump(document), encoding="utf-8")
        _import(live, copy / name)
        imported.add(name)

    return publish


def _shorten(runner_file: Path) -> None:
    """Timing is not the subject: one benchmark of a few calls is enough for a rank."""
    document = yaml.safe_load(runner_file.read_text(encoding="utf-8"))
    cases = document["cases"]["CPU"]
    cases["benchmarks"] = cases["benchmarks"][:1]
    document["timing"] = {"min_runs": TIMED_CALLS, "max_runs": TIMED_CALLS}
    runner_file.write_text(yaml.safe_dump(document), encoding="utf-8")


def _import(live: LiveRunner, competition: Path) -> None:
    command = [sys.executable, "-m", "runner.cli", "--config", str(live.config_file)]
    done = subprocess.run(
        [*command, "leaderboard", "import", str(competition)],
        cwd=ROOT,
        # The configuration's user is a daemon, which may not make boards.
        env=os.environ | {"DATABASE_URL": live.database_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def solutions(task: str, kind: str) -> list[Path]:
    """A task's submissions of a kind."""
    return sorted((TASKS / task / "solutions" / kind).glob("*.py"))


def submit(live: LiveRunner, board: str, file: Path, mode: Mode) -> int:
    """Submit a file as a frontend does; its number."""
    with psycopg.connect(live.database_url, autocommit=True) as connection:
        row = connection.execute(_SUBMIT, (board, "author", file.name, file.read_bytes(), mode.value)).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("task", SHOWN)
def test_a_right_solution_is_ranked_and_a_wrong_one_told_where(
    live: LiveRunner, publish: Callable[[str], None], task: str
) -> None:
    """By the daemon: the right one has its place in the ranking, the wrong one gets case, place and both values."""
    publish(task)
    right, wrong = solutions(task, "correct")[0], solutions(task, "wrong")[0]
    ranked = submit(live, BOARDS[task], right, Mode.LEADERBOARD)
    refused = submit(live, BOARDS[task], wrong, Mode.TEST)
    view = live.wait(ranked)
    assert view.verdict is Verdict.ACCEPTED, (right.name, [job.error for job in view.jobs])
    _check_refusal(live.wait(refused), wrong)
    (line,) = live.store.ranking(BOARDS[task], "CPU")
    assert (line.submission_id, line.user_id) == (ranked, "author")
    _check_rank(view, line.score_s)


def _check_refusal(view: SubmissionView, file: Path) -> None:
    (job,) = view.jobs
    assert (job.verdict, job.attempt) == (Verdict.WRONG_ANSWER, 1), (file.name, job.error)
    (run,) = job.runs
    assert (run.mode, run.passed) == (job.mode.value, False)
    assert run.result is not None
    place = WHERE.match(job.error or "")
    assert place is not None, (file.name, job.error)
    assert place["found"] != place["expected"]
    assert place["count"] is None or 1 <= int(place["count"]) <= int(place["elements"])
    assert 1 <= int(place["case"]) <= int(place["cases"])
    assert run.result[f"{run.mode}.{int(place['case']) - 1}.status"] == "fail"
    assert run.result["check"] == "fail"


def _check_rank(view: SubmissionView, score_s: float) -> None:
    assert {(job.secret, tuple(run.mode for run in job.runs)) for job in view.jobs} == {
        (secret, ("test", "benchmark", "leaderboard")) for secret in (False, True)
    }
    assert 0 < score_s < 60
