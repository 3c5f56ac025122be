"""Brings a GPU host up on a bare machine and runs a plan of jobs from the queue to their results; says what was shown.

    python3 -m tests.gpu.host FOLDER [--seconds 540] [--only a,b] [--python /opt/torch/.venv/bin/python]

Needs root, Python with torch and pytest, and build/gpu-host/host.tar.xz (`make gpu-host`); no network, no container
engine, no PostgreSQL. FOLDER/record.jsonl gets a line for each step; what has passed there is not repeated by the next
call with the same FOLDER, on this machine or another. Exit code 0: every step of the plan has passed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from tests.gpu.host import machine


def main() -> int:
    """Entry point."""
    began_s = time.monotonic()
    parser = argparse.ArgumentParser(prog="python3 -m tests.gpu.host", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="for the record and the logs; the same one for every slice of time")
    parser.add_argument("--seconds", type=float, default=540.0, help="how long to run in all (%(default)g)")
    parser.add_argument("--only", default="", help="names of steps, in place of all")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch, for containers")
    given = parser.parse_args()
    if os.getuid() != 0:
        raise SystemExit("a host is brought up as root")
    if not machine.ARCHIVE.exists():
        raise SystemExit(f"{machine.ARCHIVE} is not there (`make gpu-host` makes it, on a machine with a network)")
    given.folder.mkdir(parents=True, exist_ok=True)
    sentences = machine.prepare(machine.ARCHIVE)
    facts = machine.facts()
    print(json.dumps(facts), *sentences, sep="\n", flush=True)  # noqa: T201
    # They need what has just been unpacked.
    from tests.gpu.host.plan import run

    return run(
        given.folder.absolute(),
        facts=facts,
        python=given.python,
        until_s=began_s + given.seconds,
        began_s=began_s,
        only=tuple(filter(None, given.only.split(","))),
    )


if __name__ == "__main__":
    sys.exit(main())
