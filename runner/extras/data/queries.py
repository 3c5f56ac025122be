"""What data exports and their checks send."""

from __future__ import annotations

from typing import Final

from runner.store.queries import statements

#: By name.
QUERIES: Final = statements(__file__)
