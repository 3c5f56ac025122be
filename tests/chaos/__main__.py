"""`make chaos`: ten minutes of storm with thousands of jobs; prints what was broken, what happened, what is wrong.

Settings by environment: KERNEL_RUNNER_TEST_SEED, KERNEL_RUNNER_TEST_STORM_S, KERNEL_RUNNER_TEST_SUBMISSIONS.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from tests.chaos.storm import Settings, Storm

#: Submissions a second that the hosts can just work off while things break.
_RATE: Final = 8


def main() -> int:
    """Run one storm; the exit code says whether it was survived."""
    storm_s = float(os.environ.get("KERNEL_RUNNER_TEST_STORM_S") or 600)
    settings = Settings(
        hosts=4,
        submissions=int(os.environ.get("KERNEL_RUNNER_TEST_SUBMISSIONS") or _RATE * storm_s),
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


if __name__ == "__main__":
    sys.exit(main())
