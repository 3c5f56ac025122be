"""Texts of strangers on their way to Discord."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.extras.discord.following import _progress
from runner.extras.discord.report import Ended, full
from runner.extras.discord.text import MESSAGE_CHARS, beginning, code
from runner.extras.shown import reports

#: Few characters, so that runs of backticks are likely.
HOSTILE = st.text("`\n'~ x@", max_size=60)


@given(HOSTILE)
def test_nothing_ends_a_code_block_from_inside(text: str) -> None:
    """However many backticks there are: a table, and every place of a report that a submission writes."""
    assert code(text).count("```") == 2
    run = {
        "gpu_type": "CPU", "mode": "test", "secret": False, "passed": False, "meta": {"stderr": text},
        "result": {"test-count": "1", "test.0.spec": text, "test.0.status": "fail", "test.0.error": text},
    }  # fmt: skip
    (report,) = reports.reports({"runs": [run], "error": None}, None)
    assert report.count("```") == 2


def test_a_report_that_is_cut_says_so() -> None:
    """Below its code block, which ends."""
    result = {"test-count": "90"} | {f"test.{index}.spec": "x" * 500 for index in range(90)}
    run = {"gpu_type": "CPU", "mode": "test", "secret": False, "passed": True, "meta": {}, "result": result}
    (report,) = reports.reports({"runs": [run], "error": None}, None)
    assert report.endswith("x\n```\nThe rest is left out: the report is too long.")
    assert report.count("```") == 2


@pytest.mark.parametrize("key", ["error", "unranked"])
def test_what_a_submission_says_of_itself_is_plain(key: str) -> None:
    """Moderators read its thread, too: no link under another name, no mention, no heading."""
    said = "[Log in](https://evil.example) <@1> @everyone # x"
    submission = {"id": 1, "leaderboard_name": "sort", "done": True, "runs": [], "error": None}
    status = {"verdict": "invalid", "score": None, "timing": None, "unranked": None, "error": None, key: said}
    ended = Ended(submission=submission, status=status, ranking_by=None, public_verdicts={}, profiles=())
    text, _ = full(ended)
    assert "Log in" in text
    assert not any(sign in text for sign in ("[Log in]", "https://", "<@1>", "@everyone"))


@given(st.lists(st.one_of(HOSTILE.map(code), st.text("ab", max_size=300)), min_size=1, max_size=200))
def test_the_beginning_of_a_long_text_fits_a_message(parts: list[str]) -> None:
    """Whatever it is cut in: no code block stays open, and the note is read."""
    shown = beginning("\n".join(parts), "The rest is elsewhere.")
    assert len(shown) <= MESSAGE_CHARS
    assert shown.count("```") % 2 == 0
    assert shown.endswith("\nThe rest is elsewhere.")


def test_progress_fits_a_message() -> None:
    """However long the names of a leaderboard and the reasons of a pause are."""
    row = {"submission_id": 1, "leaderboard": "*" * 3000, "paused": "x" * 3000, "no_host_since": None}
    assert len(_progress({**row, "phase": None, "state": "queued", "position": 1})) == MESSAGE_CHARS
