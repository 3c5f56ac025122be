"""Pages and tables for people."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from runner.base.gpu_types import Registry
from runner.base.model import Demand, JobState, Mode, Progress, TimingAssurance, Verdict
from runner.cli import json_output, render, render_hosts, render_submission
from runner.cli.view import from_store
from runner.store.records import (
    ArtifactLine,
    GpuTypeLine,
    HostLine,
    JobView,
    RankingLine,
    StatusLine,
)
from tests.unit.cli import samples


def text_of(renderable: RenderableType) -> str:
    """What the renderable looks like on a wide output without colours."""
    console = Console(file=io.StringIO(), width=400, no_color=True, highlight=False, emoji=False, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def _page(*jobs: JobView, line: StatusLine | None = None, admin: bool = False) -> str:
    view = samples.submission(*jobs, line=line)
    return text_of(render_submission.submission_page(from_store(view, admin=admin)))


def test_an_accepted_submission_shows_its_score_times_and_provenance() -> None:
    """Mean with interval in a fitting unit, extremes, samples, score, assurance, host."""
    result = {
        "benchmark-count": "1",
        "benchmark.0.spec": "size: 1024",
        "benchmark.0.mean": "12345.6",
        "benchmark.0.runner.mean_ci95": "[12225.6, 12465.6]",
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
    line = render_submission.waiting_text(from_store(view, admin=False))
    assert "CPU test benchmark 3/7" in line
    assert "H100 test queued (attempt 2)" in line
    assert "position 4 in the queue" in line
    assert "99" not in line


def test_a_phase_moves_no_cursor() -> None:
    """A container chose the word."""
    assert render_submission.progress_text(Progress(phase="\x1b[2Jtest\n", done=1, total=2)) == "\\x1b[2Jtest⏎  1/2"


def test_a_ranking_says_what_ranks_and_what_its_words_mean() -> None:
    """The demand above, each time with its worth and who checked it, each word explained once below."""
    line: dict[str, Any] = {
        "leaderboard": "vectoradd",
        "gpu_type": "CPU",
        "user_name": None,
        "submission_id": 9,
        "file_name": "fast.py",
        "submission_time": samples.NOW,
    }
    lines = [
        RankingLine(rank=1, user_id="a", score_s=1e-6, timing="claimed", correctness="in_process", **line),
        RankingLine(rank=2, user_id="b", score_s=2e-6, timing="audited", correctness="judge", **line),
    ]
    page = text_of(render.ranking_page("vectoradd", ("CPU",), lines, demand=Demand()))
    assert page.startswith("ranks every time (tolerance 10 %)\n")
    assert "1.00 µs (claimed, in_process)" in page
    assert "2.00 µs (audited)" in page
    assert page.count("claimed: on the submission's word alone") == 1
    assert "by the judge's own clock" not in page
    strict = Demand(timing=TimingAssurance.AUDITED, tolerance=0.05)
    assert "ranks audited times only (tolerance 5 %)" in text_of(render.ranking_page("v", (), [], demand=strict))


def _host(**facts: Any) -> HostLine:  # noqa: ANN401 whatever a line has
    line: dict[str, Any] = {
        "name": "node1",
        "version": "0.1.0",
        "slots": ({"name": "cpu0", "gpu_type": "CPU"}, {"name": "cpu1", "gpu_type": "CPU"}),
        "draining": False,
        "registered_at": samples.NOW,
        "last_seen": samples.NOW,
        "silent_s": 1.0,
        "running": 1,
        **facts,
    }
    return HostLine(**line)


@pytest.mark.parametrize(
    ("facts", "state", "note", "slots"),
    [
        ({}, "up", "", 2),
        ({"draining": True, "drain_reason": "new \x1bfan"}, "draining", "draining: new \\x1bfan", 0),
        ({"silent_s": 61.0}, "silent", "", 0),
        ({"silent_s": 61.0, "draining": True}, "silent", "draining", 0),
        ({"stopped_at": samples.NOW, "silent_s": 90.0}, "stopped", "", 0),
    ],
)
def test_a_host_is_up_draining_silent_or_stopped(facts: dict[str, Any], state: str, note: str, slots: int) -> None:
    """What is gone is called so, even if it drains; only the slots of hosts that are up count as offered."""
    line = _host(**facts)
    cells = text_of(render_hosts.hosts_table([line])).splitlines()[2]
    assert cells.split()[1] == state
    assert cells.rstrip().endswith(note or "ago")
    assert render_hosts.host_state(line) == state
    kind = GpuTypeLine(name="CPU", vendor="none", aliases=(), description="", queued=0)
    registry = Registry.load()
    assert json_output.gpu_types([kind], [line], registry)[0]["slots"] == slots
    assert text_of(render_hosts.gpu_types_table([kind], [line], registry)).splitlines()[2].split()[1] == str(slots)


def test_a_retry_is_explained_to_everybody_and_its_cause_to_administrators() -> None:
    """Whose fault it was is public; device paths and the like are not."""
    cause = {"attempt": 1, "host": "node7", "slot": "gpu3", "kind": "fail", "error": "/dev/nvidia3 is gone"}
    line = samples.status(
        state=JobState.QUEUED, retry_reason="a fault of host node7, not of the submission", retry_at=samples.NOW
    )
    view = samples.submission(samples.job(state=JobState.QUEUED, causes=(cause,)), line=line)
    pages = {
        admin: text_of(render_submission.submission_page(from_store(view, admin=admin))) for admin in (True, False)
    }
    assert "tried again because of a fault of host node7, not of the submission, not before 2030-01-02" in pages[False]
    assert "nvidia3" not in pages[False]
    assert "attempt 1 on node7 gpu3: /dev/nvidia3 is gone" in pages[True]


def test_a_profile_is_shown_as_it_was_printed_and_its_files_with_their_numbers() -> None:
    """The report is text in base64; what is none is shown all the same; control characters are harmless."""
    run = samples.run(
        mode="profile.0",
        result={
            "benchmark-count": "2",
            "benchmark.0.spec": "size: 1",
            "benchmark.0.report": base64.b64encode(b"aten::add 1.5us\x1b[0m").decode(),
            "benchmark.1.report": "no base64!",
        },
    )
    file = ArtifactLine(
        id=7, name="profile.0.trace.json.gz", media_type="application/gzip", size_bytes=2048, expires_at=samples.NOW
    )
    page = _page(replace(samples.job(), runs=(run,), artifacts=(file,)))
    assert "aten::add 1.5us\\x1b[0m" in page
    assert "no base64!" in page
    assert "file profile.0.trace.json.gz, 2 KiB: kernel-runner artifact 7" in page
