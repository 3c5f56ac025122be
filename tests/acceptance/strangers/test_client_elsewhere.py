"""Each unusual use of a client ends, with a reward or with a sentence; a process that waits for ever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.strangers import client_uses as uses
from tests.integration.daemon.conftest import make_rig, rig, served
from tests.integration.daemon.rig import Rig
from tests.support.waiting import PATIENCE_S

__all__ = ["make_rig", "rig", "served"]

ROOT = Path(__file__).parents[3]
_FORK = "and this is process"
_CLOSED = "this client is closed; use it within its `with` block, or make a new one"
_INSIDE = "this client is called by its own on_progress or items; return from there first"
_OTHER = "this client was opened in another event loop; make one for each loop, or one Client for all threads"
USES = {
    "fork": _FORK,
    "fork_inside_with": "works",
    "after_block": _CLOSED,
    "signal_handler": "works",
    "interrupted": "works",
    "threads": "works",
    "from_on_progress": _INSIDE,
    "second_run_async": "the event loop of this client has ended; make a client within each asyncio.run",
    "other_loop_async": _OTHER,
    "fork_async": _FORK,
}


def test_every_use_is_tried() -> None:
    """No use stands in the program alone."""
    own = {
        name for name, use in vars(uses).items() if callable(use) and getattr(use, "__module__", "") == uses.__name__
    }
    assert {name for name in own if not name.startswith("_")} == USES.keys()


def test_a_use_works_or_says_what_to_do(served: Rig) -> None:
    """None hangs: the last one that is named did."""
    call = [sys.executable, "-m", "tests.acceptance.strangers.client_uses", served.url, *USES]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::RuntimeWarning"}
    done = subprocess.run(
        call, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    said = dict(line.split(": ", 1) for line in done.stdout.strip().splitlines())
    assert said.keys() == USES.keys()
    assert {name: sentence for name, sentence in said.items() if USES[name] not in sentence} == {}
