"""`make chaos`: ten minutes of storm with thousands of jobs; prints what was broken, what happened, what is wrong.

Settings by environment: KERNEL_RUNNER_TEST_SEED, KERNEL_RUNNER_TEST_STORM_S, KERNEL_RUNNER_TEST_SUBMISSIONS.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
import sys
from collections.abc import Sequence
from typing import Final, TypeVar

from tests.chaos.storm import Settings, Storm

#: Submissions a second that the hosts can just work off while things break.
_RATE: Final = 8
_Number = TypeVar("_Number", int, float)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one storm; the exit code says whether it was survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.parse_args(arguments)
    storm_s = _variable(parser, "KERNEL_RUNNER_TEST_STORM_S", 600.0)
    settings = Settings(
        seed=_variable(parser, "KERNEL_RUNNER_TEST_SEED", secrets.randbelow(1_000_000)),
        hosts=4,
        submissions=_variable(parser, "KERNEL_RUNNER_TEST_SUBMISSIONS", int(_RATE * storm_s)),
        storm_s=storm_s,
        gap_s=1.0,
        lease_s=2.5,
        work_s=0.2,
        # It ends as soon as everything is over; a slow machine has a backlog then.
        settle_s=600.0,
    )
    print(f"the storm with KERNEL_RUNNER_TEST_SEED={settings.seed}", flush=True)
    report = Storm(settings, say=lambda line: print(line, flush=True)).run()
    print(report.table())
    return 1 if report.violations else 0


def _variable(parser: argparse.ArgumentParser, name: str, default: _Number) -> _Number:
    text = os.environ.get(name) or str(default)
    try:
        found = type(default)(text)
    except ValueError:
        found = type(default)(-1)
    if not 0 <= found < math.inf:
        parser.error(f"{name} is {text!r}, expected a number from 0 on, such as {default}")
    return found


if __name__ == "__main__":
    sys.exit(main())
