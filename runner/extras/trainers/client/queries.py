"""What clients of batches send."""

from __future__ import annotations

from typing import Final

from runner.store.queries import statements

#: By name.
QUERIES: Final = statements(
    __file__,
    "batch_progress(batch text, user_id text)",
    "cancel_batch(batch text, user_id text)",
)
