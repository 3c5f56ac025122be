"""How long is waited between two tries, and what the journal keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.base.errors import ConfigError, DataError
from runner.extras.trainers.kernelbook import asking
from runner.extras.trainers.kernelbook.asking import Asker, Endpoint, Request, ServiceStopped
from runner.extras.trainers.kernelbook.journal import Answer, Journal


@given(st.integers(1, 20), st.none() | st.floats(0, 3600))
def test_a_wait_is_never_shorter_than_asked_for(tried: int, asked_for_s: float | None) -> None:
    """Full jitter comes on top of it."""
    waited = asking._wait_s(tried, asked_for_s)
    least = asked_for_s or 0.0
    assert least <= waited <= least + min(120.0, 0.5 * 2**tried)


def test_waits_differ() -> None:
    """Or all requests would come back at the same time."""
    assert len({asking._wait_s(3, None) for _ in range(50)}) > 40


def test_a_long_pause_ends_the_step() -> None:
    """Rather than to hang for a day."""
    with pytest.raises(ServiceStopped, match=r"asks for a pause of 86400 s \(HTTP 429\)"):
        asking._wait_s(1, 86400.0, "HTTP 429")


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        (None, None, None),
        ("7", 7, 7),
        ("0.5", 0.5, 0.5),
        ("-3", 0, 0),
        ("soon", None, None),
        (timedelta(hours=2), 7000, 7200),
        (timedelta(hours=-2), 0, 0),
    ],
)
def test_retry_after(header: str | timedelta | None, least: float | None, most: float | None) -> None:
    """Seconds, or a date, which is so far from now."""
    if isinstance(header, timedelta):
        header = format_datetime(datetime.now(UTC) + header, usegmt=True)
    found = asking._retry_after(header)
    assert found is None if least is None or most is None else found is not None and least <= found <= most


def answer(text: str) -> Answer:
    """A good one."""
    return Answer(good=True, text=text, tokens_in=3, tokens_out=4)


def test_a_later_answer_replaces_one_in_the_journal(tmp_path: Path) -> None:
    """A dry run writes nothing; another file is no journal."""
    with Journal(tmp_path / "journal.sqlite", in_memory=True) as dry:
        assert dry.find("filter", "one") is None
    assert not (tmp_path / "journal.sqlite").exists()
    for text in ("first", "second"):
        with Journal(tmp_path / "journal.sqlite") as journal:
            journal.keep("filter", "one", answer(text))
            assert journal.find("filter", "one") == answer(text)
            assert journal.find("prompts", "one") is None
    (tmp_path / "text").write_text("no database, but a text that is long enough for one")
    with pytest.raises(DataError, match="cannot be used as the journal"):
        Journal(tmp_path / "text")


def test_answers_of_the_journal_need_no_key(tmp_path: Path) -> None:
    """A key is wanted when something is asked."""
    known, new = (Request(messages=[{"role": "user", "content": text}]) for text in ("known", "new"))
    endpoint = Endpoint(urls=["http://127.0.0.1:9/v1"], api_key="", model="m")
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.keep("s", known.name("m"), answer("x"))
        asker = Asker(endpoint, journal, step="s", check=lambda _: None)
        asker.ask([known, known])
        assert (asker.account.from_journal, asker.account.asked) == (1, 0)
        with pytest.raises(ConfigError, match="no API key: set PRIME_API_KEY"):
            asker.ask([known, new])
