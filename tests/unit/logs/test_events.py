"""The names of the log's lines: on their page, literal, and each with its ids."""

from __future__ import annotations

from tests.unit.logs import events


def test_the_page_has_every_event_and_no_other() -> None:
    """docs/log-events.md is what the source says; `python -m tests.unit.logs.events` writes it anew."""
    outdated = events.PAGE.read_text(encoding="utf-8") != events.page()
    assert not outdated, "a line of the log was added or changed: run `python -m tests.unit.logs.events`"


def test_names_are_names() -> None:
    """Short, on one line, without a bar that would break a table, and hardly any with a hole."""
    found = events.collect()
    assert len(found) > 80
    for event in found:
        assert 3 <= len(event.name) <= 140, event.name
        assert event.name == " ".join(event.name.split())
        assert "|" not in event.name
    assert {event.name for event in found if "…" in event.name} == {
        "not ready: waiting for …",
        "… is there now",
        "… needs a restart and stays as it was",
    }
