"""The seed that a test draws its plan from."""

from __future__ import annotations

import os
import secrets


def any_seed() -> int:
    """The one that the surroundings name, to draw a plan again, or any."""
    return int(os.environ.get("KERNEL_RUNNER_TEST_SEED") or secrets.randbelow(1_000_000))
