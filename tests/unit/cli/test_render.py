"""Pages and tables for people."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from runner.base.gpu_types import Registry
from runner.base.model import JobState, Verdict
from runner.cli import json_output, render_hosts, render_submission
from runner.cli.view import from_store
from runner.store.records import ArtifactLine, GpuTypeLine, HostLine, JobView, StatusLine
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


def test_slots_that_are_not_used_for_one_reason_are_named_together() -> None:
    """A host that lacks an engine has it for each of its slots."""
    reasons = {"cpu0": "no engine", "cpu1": "stuck", "cpu2": "no engine", "cpu3": None}
    slots = [{"name": name, "gpu_type": "CPU", "quarantined": why} for name, why in reasons.items()]
    cells = text_of(render_hosts.hosts_table([_host(slots=slots)])).splitlines()[2]
    assert "1 x CPU" in cells
    assert cells.rstrip().endswith("cpu0, cpu2 not used: no engine; cpu1 not used: stuck")


def test_times_that_two_runs_share_are_shown_once() -> None:
    """A benchmark run is left out where the ranked run has its result, and shown where it has another one."""
    times = {"benchmark-count": "1", "benchmark.0.spec": "size: 4711", "benchmark.0.mean": "5000"}
    for mean, shown in (("5000", 1), ("6000", 2)):
        ranked = samples.run(mode="leaderboard", result={**times, "benchmark.0.mean": mean})
        page = _page(samples.job(runs=(samples.run(mode="benchmark", result=times), ranked)))
        assert page.count("size: 4711") == shown
        assert "leaderboard: pass" in page


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
    report = base64.b64encode(b"aten::add 1.5us\x1b[0m").decode()
    result = {"benchmark-count": "2", "benchmark.0.report": report, "benchmark.1.report": "no base64!"}
    run = samples.run(mode="profile.0", result={**result, "benchmark.0.spec": "size: 1"})
    facts: dict[str, Any] = {"media_type": "application/gzip", "size_bytes": 2048, "expires_at": samples.NOW}
    file = ArtifactLine(id=7, name="profile.0.trace.json.gz", **facts)
    page = _page(replace(samples.job(), runs=(run,), artifacts=(file,)))
    assert "aten::add 1.5us\\x1b[0m" in page
    assert "no base64!" in page
    assert "file profile.0.trace.json.gz, 2 KiB: kernel-runner artifact 7" in page
