"""Runs commands of the pipeline again and again, each time killed at another point and then run to its end.

    python -m tests.integration.extras.trainers.kernelbook.killing

Reads orders, a line of JSON each: `arguments` and `environment` of a command, `points`, `folder`, and the endpoint's
`log`. A point is a call of a function of the pipeline, by its name and how often it was called before: how many calls
there are in all depends on how quickly answers come. So many are taken, spread over a whole run, and as many near its
end. Each run has a folder of its own in `folder`, as its working directory. The answer is a line with a list: for the
undisturbed run, then for each point, the files that are there in the end with their hashes, and, by the log, which
questions were asked again though the journal had their answers when the process was killed.

The processes are forks of this one, which has imported what commands import while they run: that takes three times as
long as all else that a command of these tests does.
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
from typing import Any, TypeAlias

import httpx2  # noqa: F401  loaded once, before the processes part
import pandas as pd  # noqa: F401  as above
from pyarrow import parquet  # noqa: F401  as above

from runner.cli import main
from runner.extras.trainers.kernelbook import rows, score, upload  # noqa: F401  as above
from tests.integration.extras.trainers.kernelbook.service import kept

#: Calls at the end of a run at which it is killed too: where files are renamed.
_LAST = (1, 3, 6, 12, 25)
#: A function, and which call of it.
Call: TypeAlias = tuple[str, int]
_PACKAGE = str(Path(rows.__file__).parent)
#: A measurement, so no two runs have the same.
_MEASURED = re.compile(rb'"(generation_ms|total_ms)": [\d.]+')


def apart(order: dict[str, Any], folder: Path, *, stop: Call | None = None) -> int:
    """Run a command in a process of its own, see `watched`; how that ended, negative by a signal."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.environ.clear()
            os.environ.update(order["environment"])
            status = watched(order["arguments"], folder, stop=stop)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def watched(arguments: list[str], folder: Path, *, stop: Call | None) -> int:
    """Run a command in a folder, killed at a call; a file `calls` gets all that there were."""
    calls: list[Call] = []
    count: Counter[str] = Counter()

    def look(frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401 - any value that a function returns
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            name = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
            count[name] += 1
            calls.append((name, count[name]))
            if calls[-1] == stop:
                os.kill(os.getpid(), signal.SIGKILL)

    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    sys.stdout = sys.stderr = (folder / "said.txt").open("a")
    sys.setprofile(look)
    status = main(["kernelbook", *arguments])
    sys.setprofile(None)
    sys.stdout.flush()
    (folder / "calls").write_text(json.dumps(calls))
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


def play(order: dict[str, Any]) -> list[dict[str, Any]]:
    """The undisturbed run, and the killed ones."""
    folder, points, log = Path(order["folder"]), order["points"], Path(order["log"])
    whole = folder / "whole"
    status = apart(order, whole)
    runs: list[dict[str, Any]] = [{"status": status, "files": files(whole)}]
    calls = [(name, count) for name, count in json.loads((whole / "calls").read_text())] if status == 0 else []
    spread = {len(calls) * step // (points + 1) for step in range(1, points + 1)}
    for number in sorted(spread | {max(0, len(calls) - 1 - last) for last in _LAST[:points]}) if calls else ():
        place, stop = folder / f"killed-{number}", calls[number]
        killed = apart(order, place, stop=stop) == -signal.SIGKILL
        known, before = kept(place / "outputs" / "journal.sqlite"), asked(log)
        status = apart(order, place)
        again = sorted(known & (asked(log) - before).keys())
        found = {"stop": stop, "killed": killed, "status": status, "files": files(place), "kept": len(known)}
        runs.append({**found, "again": again})
    return runs


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(play(json.loads(line))), flush=True)  # noqa: T201 - the test reads it
