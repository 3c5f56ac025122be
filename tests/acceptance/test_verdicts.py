"""Every folder of cases/ is a submission with the verdict it must get, under the built-in harness and in process.

`expect.yml`: mode; verdict (one, or a list of those that are right); third_party, when a program of the task's own can
only see less; error, a pattern for the sentence; stdout, text that must have been kept; stdout_without, text that must
not appear; boards, those of a daemon's that it is submitted to, both by default, none where the judge alone decides:
such a case is judged without a container; limits_s, the boards where only a time limit ends it, with a short one for
each, in seconds: all else gets a generous one. Ranked submissions are the subject of
test_third_party.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.base.model import Mode, Verdict
from runner.store.records import SubmissionView
from runner.task_format import load_folder
from tests.acceptance.judging.asking import asked
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.plugins.live import ROOT, LiveRunner, live_runner, with_few_calls

CASES = Path(__file__).parent / "cases"
BOARDS = {
    "builtin": ROOT / "tasks" / "problems" / "vectoradd",
    "third_party": ROOT / "tests" / "fixtures" / "kernelbot_vectoradd",
}
#: Far more than any takes on a loaded machine: no verdict here is a matter of speed.
TIMEOUT_S = 90
#: Of benchmarks: so few that their times are never refused as noise.
TIMED_CALLS = 10


def _cases() -> list[tuple[str, str]]:
    return [(board, name) for name in NAMES for board in _boards(name)]


def _boards(name: str) -> list[str]:
    boards: list[str] = _expected(name).get("boards", list(BOARDS))
    return boards


def _limit_s(board: str, name: str) -> int:
    limit: int = _expected(name).get("limits_s", {}).get(board, TIMEOUT_S)
    return limit


def _expected(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CASES / name / "expect.yml").read_text(encoding="utf-8"))
    return loaded


NAMES = tuple(sorted(folder.name for folder in CASES.iterdir()))
#: No container, no daemon and no program of a task's own has a part in the verdict.
OF_THE_JUDGE_ALONE = tuple(name for name in NAMES if not _boards(name))


@pytest.fixture(scope="module")
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[LiveRunner]:
    """One daemon for all cases: none of them may disturb the next, and none leaves a container behind."""
    with live_runner(create_database(migrated_template), warm_containers=1) as runner:
        for board, limit_s in sorted({(board, _limit_s(board, name)) for board, name in _cases()}):
            runner.board(BOARDS[board], name=f"{board}_{limit_s}", timeout_s=limit_s, timed_calls=TIMED_CALLS)
        yield runner
        assert runner.stop() == 0
        assert runner.containers() == 0


def test_the_cases_are_there() -> None:
    """Under both harnesses, with and without a container."""
    assert len(NAMES) >= 15
    assert {board for board, _ in _cases()} == set(BOARDS)
    assert OF_THE_JUDGE_ALONE


@pytest.mark.parametrize("name", OF_THE_JUDGE_ALONE)
def test_the_judge_alone_decides(processes: ForkedJudges, name: str) -> None:
    """By the judge, asked what the daemon asks."""
    expected = _expected(name)
    code = (CASES / name / "submission.py").read_bytes()
    task = with_few_calls(load_folder(BOARDS["builtin"]).task, TIMED_CALLS)
    verdict, message = processes.verdict(asked(task, code, Mode(expected["mode"])))
    assert verdict == expected["verdict"], message
    assert re.search(expected.get("error", ""), message or "")


@pytest.mark.parametrize(("board", "name"), _cases(), ids=lambda value: value)
def test_the_submission_gets_its_verdict(live: LiveRunner, board: str, name: str) -> None:
    """The verdict, its sentence and the kept output are those the case names, and the daemon lives on."""
    expected = _expected(name)
    code = (CASES / name / "submission.py").read_bytes()
    leaderboard = f"{board}_{_limit_s(board, name)}"
    view = live.wait(live.submit(leaderboard, code, mode=expected["mode"], user_id=name))
    verdicts = expected.get(board, expected["verdict"]) if board == "third_party" else expected["verdict"]
    allowed = [Verdict(word) for word in ([verdicts] if isinstance(verdicts, str) else verdicts)]
    story = [(job.verdict, job.error, [(run.mode, run.result, run.meta) for run in job.runs]) for job in view.jobs]
    assert view.status.verdict in allowed, story
    assert view.status.done
    assert [job.attempt for job in view.jobs] == [1], "a submission's own fault is never retried"
    _check_sentence(view, expected, board)
    _check_output(view, expected)
    _check_assurance(view, board)
    assert live.process is not None
    assert live.process.poll() is None


def _check_sentence(view: SubmissionView, expected: dict[str, Any], board: str) -> None:
    for job in view.jobs:
        assert (job.error is None) == (job.verdict is Verdict.ACCEPTED)
    pattern = expected.get("error" if board == "builtin" else "third_party_error")
    if pattern is not None:
        assert re.search(pattern, view.jobs[0].error or ""), view.jobs[0].error


def _check_output(view: SubmissionView, expected: dict[str, Any]) -> None:
    printed = "".join(str((run.meta or {}).get("stdout")) for job in view.jobs for run in job.runs)
    if "stdout" in expected:
        assert expected["stdout"] in printed
    if "stdout_without" in expected:
        assert expected["stdout_without"] not in printed


def _check_assurance(view: SubmissionView, board: str) -> None:
    for job in view.jobs:
        for run in job.runs:
            correctness = run.system_info["runner"]["assurance"]["correctness"]
            assert correctness == ("judge" if board == "builtin" else "in_process")
