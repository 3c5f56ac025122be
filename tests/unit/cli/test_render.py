"""Pages and tables for people."""

from __future__ import annotations

import io
from datetime import timedelta

from rich.console import Console, RenderableType

from runner.cli import render
from runner.cli.view import from_store
from runner.model import JobState, Mode, Progress, Verdict
from runner.store.records import BoardLine, BoardView, GpuTypeLine, HostLine, JobView, RankingLine, StatusLine
from tests.unit.cli import samples


def text_of(renderable: RenderableType) -> str:
    """What the renderable looks like on a wide output without colours."""
    console = Console(file=io.StringIO(), width=400, no_color=True, highlight=False, emoji=False, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def _page(*jobs: JobView, line: StatusLine | None = None) -> str:
    view = samples.submission(*jobs, line=line)
    return text_of(render.submission_page(from_store(view, admin=False)))


def test_an_accepted_submission_shows_its_score_times_and_provenance() -> None:
    """Mean with interval in a fitting unit, extremes, samples, score, assurance, host."""
    result = {
        "benchmark-count": "1",
        "benchmark.0.spec": "size: 1024",
        "benchmark.0.mean": "12345.6",
        "benchmark.0.ci95": "120.0",
        "benchmark.0.best": "12000",
        "benchmark.0.worst": "14000",
        "benchmark.0.runs": "50",
        "check": "pass",
    }
    job = samples.job(mode=Mode.LEADERBOARD, runs=(samples.run(mode="leaderboard", score_s=12.3456e-6, result=result),))
    page = _page(job, line=samples.status(score_s=12.3456e-6))
    assert "score: 12.3 µs" in page
    assert "size: 1024   12.3 ± 0.12 µs   12.0 µs   14.0 µs     50" in page
    assert "assurance: correctness judge, timing audited" in page
    assert "host node1, slot cpu0" in page


def test_a_failed_submission_says_why_in_words_and_shows_the_end_of_its_output() -> None:
    """Verdict sentence, the job's own message, each case's message, the tail of stderr, the exit code."""
    result = {
        "test-count": "2",
        "test.0.spec": "n: 4",
        "test.0.status": "pass",
        "test.1.spec": "n: 8",
        "test.1.status": "fail",
        "test.1.error": "mismatch at (0, 3)",
        "check": "fail",
    }
    stderr = "".join(f"line {number}\n" for number in range(50))
    run = samples.run(passed=False, result=result, meta={"stdout": "", "stderr": stderr, "exit_code": 112})
    job = samples.job(verdict=Verdict.WRONG_ANSWER, error="test 1 of 2 failed", runs=(run,))
    page = _page(job, line=samples.status(verdict=Verdict.WRONG_ANSWER))
    assert "wrong answer: a result differs from the reference" in page
    assert "test 1 of 2 failed" in page
    assert "mismatch at (0, 3)" in page
    assert "line 49" in page
    assert "line 29\n" not in page
    assert "30 before" in page
    assert "exit code 112" in page


def test_a_compiler_error_is_shown_first() -> None:
    """What the compiler said comes before the program's own output."""
    run = samples.run(
        passed=False,
        compilation={"stderr": "kernel.cu(3): error: expected a ;"},
        meta={"stdout": "", "stderr": "ImportError"},
    )
    page = _page(samples.job(verdict=Verdict.COMPILE_ERROR, error="nvcc failed", runs=(run,)))
    assert page.index("expected a ;") < page.index("ImportError")


def test_escape_sequences_and_markup_of_strangers_are_shown_not_obeyed() -> None:
    """File names, users, messages and output reach the terminal as plain text."""
    run = samples.run(
        passed=False,
        result={"test-count": "1", "test.0.spec": "[red]x[/red]", "test.0.status": "fail", "test.0.error": "\x1b[2J"},
        meta={"stdout": "\x1b]0;owned\x07 [bold]b[/bold]", "stderr": ""},
    )
    page = _page(
        samples.job(verdict=Verdict.WRONG_ANSWER, error="\x1b[31mred", runs=(run,)),
        line=samples.status(file_name="\x1b[1Aup.py", user_id="[blink]mallory[/blink]"),
    )
    assert "\x1b" not in page
    assert "\x07" not in page
    for literal in ("[red]x[/red]", "[bold]b[/bold]", "[blink]mallory[/blink]", "\\x1b[2J", "\\x1b[1Aup.py"):
        assert literal in page


def test_a_waiting_line_names_phase_and_position() -> None:
    """Running jobs show how far they are, queued ones where they stand, and a retry is called one."""
    view = samples.submission(
        samples.job(state=JobState.RUNNING, progress={"phase": "benchmark", "done": 3, "total": 7}),
        samples.job(gpu_type="H100", state=JobState.QUEUED, attempt=1),
        samples.job(secret=True, state=JobState.RUNNING, progress={"phase": "test", "done": 1, "total": 99}),
        line=samples.status(state=JobState.RUNNING, position=4),
    )
    line = render.waiting_text(from_store(view, admin=False))
    assert "CPU test benchmark 3/7" in line
    assert "H100 test queued (attempt 2)" in line
    assert "position 4 in the queue" in line
    assert "99" not in line


def test_progress_without_a_total_is_just_the_phase() -> None:
    """A build has no count."""
    assert render.progress_text(Progress(phase="build", done=0, total=0)) == "build"


def test_the_queue_lists_state_verdict_and_score() -> None:
    """One line per submission; an empty queue says so."""
    page = text_of(
        render.queue_table(
            [
                samples.status(submission_id=3, state=JobState.QUEUED, position=2),
                samples.status(
                    submission_id=2,
                    state=JobState.RUNNING,
                    progress=({"gpu_type": "CPU", "phase": "test", "done": 1, "total": 5},),
                ),
                samples.status(submission_id=1, user_name="Alice", score_s=0.001),
            ]
        )
    )
    assert "queued, position 2" in page
    assert "running, test 1/5" in page
    assert "Alice" in page
    assert "1.00 ms" in page
    assert "no submissions" in text_of(render.queue_table([]))


def test_a_ranking_has_a_table_per_gpu_type_and_says_when_one_is_empty() -> None:
    """Rank, user, score in a fitting unit, submission, time."""
    line = RankingLine(
        rank=1,
        leaderboard="vectoradd",
        gpu_type="CPU",
        user_id="alice",
        user_name=None,
        submission_id=9,
        file_name="fast.py",
        score_s=2.5e-6,
        submission_time=samples.NOW,
    )
    page = text_of(render.ranking_page("vectoradd", ("CPU", "H100"), [line]))
    assert "vectoradd on CPU" in page
    for cell in ("alice", "2.50 µs", "fast.py", "2030-01-02 03:04:05"):
        assert cell in page
    assert page.index("vectoradd on H100") < page.index("no ranked submissions yet")


def test_boards_hosts_and_gpu_types_are_listed() -> None:
    """Every table shows its records, and an empty one says what to do."""
    board = BoardLine(id=1, name="sort", deadline=samples.NOW, gpus=("CPU",), visibility="public", submissions=3)
    assert "2030-01-02 03:04:05" in text_of(render.boards_table([board]))
    assert "no leaderboards" in text_of(render.boards_table([]))
    host = HostLine(
        name="node1",
        version="0.1.0",
        slots=({"name": "cpu0", "gpu_type": "CPU"}, {"name": "cpu1", "gpu_type": "CPU"}),
        draining=True,
        registered_at=samples.NOW,
        last_seen=samples.NOW,
        silent_s=timedelta(minutes=3).total_seconds(),
        running=1,
    )
    hosts = text_of(render.hosts_table([host]))
    assert "2 x CPU" in hosts
    assert "3 min ago" in hosts
    assert "draining" in hosts
    assert "kernel-runner serve" in text_of(render.hosts_table([]))
    types = text_of(
        render.gpu_types_table(
            [GpuTypeLine(name="CPU", vendor="none", aliases=("cpu",), description="cores", queued=5)], [host]
        )
    )
    assert "CPU        2        5   none     cpu       cores" in types
    assert "kernel-runner serve" in text_of(render.gpu_types_table([], []))


def test_a_board_shows_its_task_without_the_texts() -> None:
    """Files are listed with their size; the submission's place is marked."""
    board = BoardView(
        id=1,
        name="sort",
        deadline=samples.NOW,
        description="Sort it.",
        gpus=("CPU",),
        visibility="public",
        creator_id=-1,
        forum_id=0,
        submissions=0,
        task={
            "lang": "py",
            "ranking_by": "geom",
            "tests": [{}],
            "benchmarks": [{}, {}],
            "files": {"submission.py": "@SUBMISSION@", "reference.py": "é"},
        },
        extra=None,
        templates={"Python": "x"},
    )
    page = text_of(render.board_page(board))
    assert "ranked by the geom of 2 benchmarks, 1 tests" in page
    assert "@SUBMISSION@" in page
    assert "reference.py    2" in page
    assert "templates: Python" in page
