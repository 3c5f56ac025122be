"""Targets of webhooks, as operators see and change them; called by the command line.

Senders use `runner.store.gateway`.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.store.base import Base, expect, text
from runner.store.clean import clean_text
from runner.store.queries import QUERIES
from runner.store.records import WebhookLine


class Webhooks(Base):
    """The part of a store for operators of webhooks."""

    def webhooks(self) -> Sequence[WebhookLine]:
        """All targets, and how each stands."""
        return [
            WebhookLine(
                **{
                    **row,
                    "events": tuple(row["events"]),
                    "boards": None if row["boards"] is None else tuple(row["boards"]),
                }
            )
            for row in self._link.all(QUERIES["webhooks"])
        ]

    def add_webhook(
        self, leaderboard: str, name: str, *, url: str, format_name: str, events: Sequence[str], secret: str | None
    ) -> None:
        """Register a target for one leaderboard; `secret`: what JSON is signed with.

        Raises:
            SubmissionError: no such leaderboard, the name is taken, or something is malformed.
        """
        parameters = {
            "leaderboard": clean_text(leaderboard),
            "name": clean_text(name),
            "url": clean_text(url),
            "format": format_name,
            "events": [clean_text(event) for event in events],
            "secret": text(secret),
        }
        self._link.one(QUERIES["add_webhook"], parameters)

    def remove_webhook(self, name: str) -> None:
        """Forget a leaderboard's target, and what waits for it.

        Raises:
            SubmissionError: no leaderboard has it.
        """
        self._link.one(QUERIES["remove_webhook"], {"name": clean_text(name)})

    def test_webhook(self, name: str) -> int:
        """Let a target be told a message that says nothing, at once; returns the event's number.

        Raises:
            SubmissionError: there is no such target.
        """
        return int(expect(self._link.one(QUERIES["test_webhook"], {"name": clean_text(name)}))["event_id"])

    def webhook_waits(self, event_id: int) -> bool:
        """Whether a target has not been told this event yet."""
        return bool(expect(self._link.one(QUERIES["webhook_waits"], {"event_id": event_id}))["waits"])
