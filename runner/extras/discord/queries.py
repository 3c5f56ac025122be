"""What the Discord frontend sends beside `SHARED`."""

from __future__ import annotations

from typing import Final

from runner.store.queries import statements

#: By name.
QUERIES: Final = statements(
    __file__,
    "before_submit(leaderboard text, user_id text, code bytea)",
    "hold_discord(holder uuid, seconds float8) AS held",
)
