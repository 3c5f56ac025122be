"""What senders of webhooks and the commands about them send."""

from __future__ import annotations

from typing import Final

from runner.store.queries import statements

#: By name.
QUERIES: Final = statements(
    __file__,
    "add_webhook(leaderboard text, name text, url text, format text, events text[], secret text)",
    "claim_webhook(configured text[], holder uuid)",
    "derive_webhooks()",
    "note_webhook(webhook_id bigint, event_id bigint, holder uuid, outcome text, reason text, "
    "retry_after_s float8) AS given_up",
    "remove_webhook(name text)",
    "set_webhooks(targets jsonb)",
    "test_webhook(name text) AS event_id",
)
