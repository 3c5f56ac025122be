"""Every shipped task, from its competition file to the verdicts of its solutions, by a real daemon on the CPU type.

What a user sees is what counts here: boards are imported by the command line, files are submitted in SQL, and a wrong
one is told where it is wrong. In containers, a daemon times one right solution of each task; of three tasks it ranks
that one, and refuses a wrong one. With KERNEL_RUNNER_TEST_EXAMPLES above 1 the daemon ranks and judges all. That each
solution is right or wrong on every case is tests/unit/problems' business.
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
#: Right the first time that a shape comes: only a benchmark, which calls more than once, can tell.
REPEATING = ("stale.py", "first_answer.py", "old_rows.py")
#: How many right and how many wrong solutions, and benchmarks, of a task go through a daemon.
BY_THE_DAEMON = 1 if int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "1")) == 1 else 100
#: Tasks that a daemon ranks, and refuses wrong solutions of: several ranks, several outputs, one of each.
RANKED_BY_THE_DAEMON = ("amd_all2all", "nvfp4_group_gemm", "vectoradd") if BY_THE_DAEMON == 1 else tuple(BOARDS)
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
    cases["benchmarks"] = cases["benchmarks"][:BY_THE_DAEMON]
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


def submit(live: LiveRunner, board: str, files: list[Path], mode: Mode) -> dict[int, Path]:
    """Submit files as a frontend does; their numbers."""
    with psycopg.connect(live.database_url, autocommit=True) as connection:
        found = {}
        for file in files:
            row = connection.execute(_SUBMIT, (board, "author", file.name, file.read_bytes(), mode.value)).fetchone()
            assert row is not None
            found[row[0]] = file
        return found


@pytest.mark.parametrize("task", sorted(set(BOARDS) - set(RANKED_BY_THE_DAEMON)))
def test_a_right_solution_is_timed(live: LiveRunner, publish: Callable[[str], None], task: str) -> None:
    """By the daemon: accepted, with a time for each benchmark."""
    publish(task)
    (number,) = submit(live, BOARDS[task], solutions(task, "correct")[:1], Mode.BENCHMARK)
    view = live.wait(number)
    (job,) = view.jobs
    assert job.verdict is Verdict.ACCEPTED, job.error
    (run,) = job.runs
    assert run.result is not None
    assert (run.mode, run.result["check"]) == ("benchmark", "pass")
    count = int(str(run.result["benchmark-count"]))
    assert 1 <= count <= BY_THE_DAEMON
    assert all(float(str(run.result[f"benchmark.{index}.mean"])) > 0 for index in range(count))


@pytest.mark.parametrize("task", RANKED_BY_THE_DAEMON)
def test_a_right_solution_is_ranked_and_a_wrong_one_told_where(
    live: LiveRunner, publish: Callable[[str], None], task: str
) -> None:
    """By the daemon: the right one has its place in the ranking, the wrong one gets case, place and both values."""
    publish(task)
    right, wrong = solutions(task, "correct"), solutions(task, "wrong")[:BY_THE_DAEMON]
    ranked = submit(live, BOARDS[task], right[:1], Mode.LEADERBOARD)
    tested = submit(live, BOARDS[task], right[1:BY_THE_DAEMON], Mode.TEST)
    refused = {
        number: file
        for mode in (Mode.TEST, Mode.BENCHMARK)
        for number, file in submit(live, BOARDS[task], [file for file in wrong if _told_in(file) is mode], mode).items()
    }
    assert len(ranked) == 1
    assert len(refused) == len(wrong)
    for number, file in (tested | ranked).items():
        view = live.wait(number)
        assert view.verdict is Verdict.ACCEPTED, (file.name, [job.error for job in view.jobs])
    for number, file in refused.items():
        _check_refusal(live.wait(number), file)
    (line,) = live.store.ranking(BOARDS[task], "CPU")
    assert (line.submission_id, line.user_id) == (*ranked, "author")
    _check_rank(live.wait(*ranked), line.score_s)


def _told_in(file: Path) -> Mode:
    """The mode that can tell that a wrong solution is one."""
    return Mode.BENCHMARK if file.name in REPEATING else Mode.TEST


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
