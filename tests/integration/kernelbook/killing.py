"""Runs a command of the pipeline again and again, each time killed at another point and then run to its end.

    python -m tests.integration.kernelbook.killing FOLDER POINTS LOG COMMAND...

A point is a call of a function of the pipeline: POINTS of them are taken, spread over a whole run, and as many near its
end. Each run has a folder of its own in FOLDER, as its working directory. For the undisturbed run, then for each point,
it prints a line of JSON: the files that are there in the end with their hashes, and, by the endpoint's LOG, which
questions were asked again though the journal had their answers when the process was killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import openai  # noqa: F401  loaded once, before the processes part
import transformers  # noqa: F401  as above
from matplotlib import figure  # noqa: F401  as above
from pyarrow import parquet  # noqa: F401  as above

from runner.cli import main
from runner.kernelbook import pipeline, rows, score, upload  # noqa: F401  as above
from tests.integration.kernelbook.service import kept

#: Calls at the end of a run at which it is killed too: where files are renamed.
_LAST = (1, 3, 6, 12, 25)
_PACKAGE = str(Path(rows.__file__).parent)
#: A measurement, so no two runs have the same.
_MEASURED = re.compile(rb'"(generation_ms|total_ms)": [\d.]+')


def apart(arguments: list[str], folder: Path, *, stop: int = -1) -> int:
    """Run a command in a process of its own, see `watched`; how that ended, negative by a signal."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = watched(arguments, folder, stop=stop)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def watched(arguments: list[str], folder: Path, *, stop: int) -> int:
    """Run a command in a folder, killed at its call number `stop`; a file `calls` gets how many there were."""
    count = 0

    def look(frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401 - any value that a function returns
        nonlocal count
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            count += 1
            if count == stop:
                os.kill(os.getpid(), signal.SIGKILL)

    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    sys.stdout = sys.stderr = (folder / "said.txt").open("a")
    sys.setprofile(look)
    status = main(["kernelbook", *arguments])
    sys.setprofile(None)
    sys.stdout.flush()
    (folder / "calls").write_text(str(count))
    return status


def files(folder: Path) -> dict[str, str]:
    """What is in a folder at the end, without journals and what the command said."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(_MEASURED.sub(rb"", path.read_bytes())).hexdigest()
        for path in found
        if "journal" not in path.name and path.name not in ("said.txt", "calls", "report.json")
    }


def asked(log: Path) -> Counter[str]:
    """The requests in the endpoint's log, by their question."""
    return Counter(line.split()[0] for line in log.read_text().splitlines())


def tell(**facts: object) -> None:
    """Print a line."""
    print(json.dumps(facts), flush=True)  # noqa: T201 - the test reads it


def play(folder: Path, points: int, log: Path, arguments: list[str]) -> None:
    """All of it."""
    whole = folder / "whole"
    status = apart(arguments, whole)
    total = int((whole / "calls").read_text())
    tell(status=status, calls=total, files=files(whole))
    stops = {max(1, total * step // (points + 1)) for step in range(1, points + 1)}
    for stop in sorted(stops | {max(1, total - last) for last in _LAST[:points]}):
        place = folder / f"killed-{stop}"
        killed = apart(arguments, place, stop=stop) == -signal.SIGKILL
        known, before = kept(place / "outputs" / "journal.sqlite"), asked(log)
        status = apart(arguments, place)
        again = sorted(known & (asked(log) - before).keys())
        tell(stop=stop, killed=killed, status=status, files=files(place), kept=len(known), again=again)


if __name__ == "__main__":
    play(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
