"""Children that code of a submission, a task or a reference forks from a process of the harness.

One that does not end itself, but raises or returns, comes back into the harness and would answer for its parent.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress


def end_if_child(pid: int, error: BaseException | None = None) -> None:
    """End this process, if it is not `pid`, as its own interpreter would; `error`: what has come out, if anything."""
    if os.getpid() == pid:
        return
    code = error.code if isinstance(error, SystemExit) else error
    # What has become of its streams is its own matter.
    with suppress(Exception):
        if not isinstance(code, int | None):
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit((code & 0xFF if isinstance(code, int) else 1) if code is not None else 0)
