"""The names of the log's lines: on their page, literal, and each with its ids."""

from __future__ import annotations

import re

from tests.unit.logs import events


def test_the_page_has_every_event_and_no_other() -> None:
    """docs/log-events.md is what the source says; `python -m tests.unit.logs.events` writes it anew."""
    outdated = events.PAGE.read_text(encoding="utf-8") != events.page()
    assert not outdated, "a line of the log was added or changed: run `python -m tests.unit.logs.events`"


def test_names_are_snake_case() -> None:
    """What varies is in fields."""
    found = events.collect()
    assert len(found) > 80
    assert [event.name for event in found if re.fullmatch(r"[a-z]+(_[a-z]+)*", event.name) is None] == []
    assert max(len(event.name) for event in found) <= 40
