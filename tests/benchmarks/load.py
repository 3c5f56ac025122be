"""A host under load: users in a closed loop, each with one ranked submission at a time, beside the plain processes.

Ours: real daemon, real containers, a PostgreSQL of its own. Each user submits again as soon as the last submission is
over. The mix is in `SIZES` and `ENDS`; it is drawn without chance, so that a short run has it too. Printed are
submissions per hour, the turn-around of each kind (from the database's times) and how much of it was not spent on the
submission's own calls and their checks, and where the time of the slots went.

Plain: the same files, each through the sequence of processes of KernelBot's runner (see `_plain`), one after the other,
the public chain alone, which favours the plain side. Its submissions per hour are computed from the mean of each kind
and the same weights.

`make bench ARGS="load --users 1 10 --seconds 60 --plain 1"`; `--sizes` and `--ends` choose a part of the mix.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.benchmarks._live import database
from tests.benchmarks._plain import lay_out, run_chain
from tests.plugins.live import ROOT, LiveRunner, live_runner

#: Weight, and the sizes of the two benchmarks: two float16 matrices each.
SIZES: Final[Mapping[str, tuple[int, tuple[int, int]]]] = {
    "tiny": (6, (128, 256)),
    "3MiB": (3, (627, 886)),
    "32MiB": (1, (2048, 2896)),
}
_RIGHT: Final = "def custom_kernel(data):\n    return data[0] + data[1]\n"
_LATE: Final = """calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    return data[0] + data[1] if calls < 15 else data[0]
"""
#: Weight, and the file. The late one is right in the tests and for the first calls that are timed.
ENDS: Final[Mapping[str, tuple[int, str]]] = {
    "right": (10, _RIGHT),
    "wrong-early": (4, "def custom_kernel(data):\n    return data[0]\n"),
    "wrong-late": (2, _LATE),
    "uncompilable": (3, "def custom_kernel(data:\n    return data\n"),
    "time-out": (1, "def custom_kernel(data):\n    while True:\n        pass\n"),
}
VERDICTS: Final = {
    "right": "accepted",
    "wrong-early": "wrong_answer",
    "wrong-late": "wrong_answer",
    "uncompilable": "compile_error",
    "time-out": "time_limit",
}
#: Of submissions that never return, in a test; they go to a board of their own.
LIMIT_S: Final = 3
PATIENCE_S: Final = 3600.0
_WAITS: Final = "waits for a container"
#: The judge's phases, as results report them.
JUDGED: Final = ("inputs", "hand_over", "call", "check", "controls", "statistics")


#: Seconds of some kind, by what they went into.
Seconds = defaultdict[str, float]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of submission."""

    size: str
    end: str
    weight: int

    @property
    def name(self) -> str:
        """For the table."""
        return f"{self.size} {self.end}"

    @property
    def board(self) -> str:
        """Where it is submitted."""
        return "limited" if self.end == "time-out" else self.size

    def code(self, number: int) -> bytes:
        """A file of its own for each submission, so that nothing is found again."""
        return f"{ENDS[self.end][1]}# {number}\n".encode()


@dataclass(kw_only=True)
class Load:
    """What a run under load did."""

    users: int
    seconds: float = 0.0
    #: Seconds from submission to the end of the last job, by kind.
    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: Of those, the seconds in which no mode of the submission ran, by kind.
    beside_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: Seconds of the slots.
    slots: Seconds = field(default_factory=lambda: defaultdict(float))
    #: Of those, the seconds of secret jobs.
    secret_s: float = 0.0

    @property
    def done(self) -> int:
        """Submissions that ended."""
        return sum(map(len, self.took_s.values()))

    @property
    def per_hour(self) -> float:
        """Submissions per hour."""
        return 3600 * self.done / self.seconds


def kinds(sizes: Sequence[str] = tuple(SIZES), ends: Sequence[str] = tuple(ENDS)) -> list[Kind]:
    """The mix. Submissions that never return are tiny: what they are given does not matter."""
    return [
        Kind(size=size, end=end, weight=SIZES[size][0] * ENDS[end][0])
        for size in sizes
        for end in ends
        if end != "time-out" or size == sizes[0]
    ]


def in_turns(mix: Sequence[Kind]) -> Iterator[Kind]:
    """Endless: each kind as often as it weighs, evenly spread (smooth weighted round robin)."""
    total = sum(kind.weight for kind in mix)
    credit = [0.0] * len(mix)
    while True:
        credit = [have + kind.weight for have, kind in zip(credit, mix, strict=True)]
        best = max(range(len(mix)), key=credit.__getitem__)
        credit[best] -= total
        yield mix[best]


def main(options: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="load")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="how long users submit again; what is open then is awaited"
    )
    parser.add_argument("--plain", type=int, default=1, help="plain chains of each kind; 0: none")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--ends", nargs="+", default=list(ENDS), choices=list(ENDS))
    parser.add_argument("--slots", type=int, default=1, help="CPU slots of the daemon")
    parser.add_argument("--reserve", type=int, default=0, help="cores that belong to no slot")
    chosen = parser.parse_args(options)
    mix = kinds(chosen.sizes, chosen.ends)
    print("weights: " + ", ".join(f"{kind.name} {kind.weight}" for kind in mix), flush=True)
    with tempfile.TemporaryDirectory(prefix="kernel-runner-bench-") as name:
        folder = Path(name)
        with database("load") as url, live_runner(url, cpu_slots=chosen.slots, reserve_cpus=chosen.reserve) as live:
            publish(live, folder, mix)
            # Containers and caches are warm before anything counts.
            run_load(live, mix[:1], users=1, seconds=1.0)
            plain = {kind.name: [run_plain(folder, kind) for _ in range(chosen.plain)] for kind in mix}
            for users in chosen.users:
                report(run_load(live, mix, users=users, seconds=chosen.seconds, slots=chosen.slots), plain, mix)


def publish(live: LiveRunner, folder: Path, mix: Sequence[Kind]) -> None:
    """Make the boards, and the folders of the plain chains."""
    for size in dict.fromkeys(kind.size for kind in mix):
        ours = folder / f"ours-{size}"
        write_task(ROOT / "tasks" / "problems" / "vectoradd", ours, SIZES[size][1])
        live.board(ours, name=size)
        lay_out(folder / f"plain-{size}", SIZES[size][1])
    if any(kind.board == "limited" for kind in mix):
        live.board(ours, name="limited", timeout_s=LIMIT_S)


def write_task(source: Path, folder: Path, sizes: tuple[int, int]) -> None:
    """A task folder like the source, with benchmarks of these sizes and no hidden test."""
    folder.mkdir()
    for name in ("reference.py", "task.py"):
        (folder / name).write_text((source / name).read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("utils.py", "eval.py"):
        (folder / name).write_text((source.parent / name).read_text(encoding="utf-8"), encoding="utf-8")
    files = ("task.py", "utils.py", "reference.py", "eval.py")
    listed = "\n".join(f'  - {{"name": "{name}", "source": "{name}"}}' for name in files)
    cases = "\n".join(f'  - {{"size": {size}, "seed": {7059 + number}}}' for number, size in enumerate(sizes))
    (folder / "task.yml").write_text(
        f'files:\n  - {{"name": "submission.py", "source": "@SUBMISSION@"}}\n{listed}\n'
        'lang: "py"\ndescription: "Add two float16 matrices."\nconfig:\n  main: "eval.py"\n'
        'tests:\n  - {"size": 31, "seed": 8211}\n  - {"size": 128, "seed": 1740}\n  - {"size": 129, "seed": 6335}\n'
        f'benchmarks:\n{cases}\nranking_by: "geom"\ngpus: ["CPU"]\n',
        encoding="utf-8",
    )
    (folder / "runner.yml").write_text('harness: builtin\nbytes: "6 * size ** 2"\n', encoding="utf-8")


def run_plain(folder: Path, kind: Kind) -> float:
    """Seconds of one plain chain."""
    limit_s = LIMIT_S if kind.end == "time-out" else PATIENCE_S
    took_s, passed = run_chain(folder / f"plain-{kind.size}", kind.code(time.time_ns()), "leaderboard", limit_s=limit_s)
    if passed != (kind.end == "right"):
        raise RuntimeError(f"plain {kind.name}: passed is {passed}")
    return took_s


def run_load(live: LiveRunner, mix: Sequence[Kind], *, users: int, seconds: float, slots: int = 1) -> Load:
    """Keep `users` ranked submissions open for so long, then wait for the last ones.

    All of them count, and so does the time until the last has ended.

    Raises:
        RuntimeError: a submission ended with another verdict than it must.
    """
    turns = in_turns(mix)
    open_: dict[int, int] = {}
    kind_of: dict[int, Kind] = {}
    with psycopg.connect(live.database_url, autocommit=True) as database_:
        began = time.monotonic()
        row = database_.execute("SELECT now()").fetchone()
        last = began + seconds
        # Each user submits once, however long that takes.
        while (now := time.monotonic()) < last or open_ or len(kind_of) < users:
            while len(open_) < users and (now < last or len(kind_of) < users):
                user = next(number for number in range(users) if number not in open_.values())
                kind = next(turns)
                submitted = live.submit(
                    kind.board, kind.code(time.time_ns()), mode="leaderboard", user_id=f"user-{user}"
                )
                open_[submitted], kind_of[submitted] = user, kind
            ended = database_.execute(
                "SELECT s.id FROM leaderboard.submission s WHERE s.done AND s.id = ANY (%s)", [list(open_)]
            ).fetchall()
            for (submission_id,) in ended:
                del open_[submission_id]
            if now > last + PATIENCE_S:
                raise RuntimeError(f"submissions {sorted(open_)} do not end; the daemon said:\n{live.log[-4000:]}")
            time.sleep(0.02)
        found = Load(users=users, seconds=time.monotonic() - began)
        jobs = database_.execute(_JOBS, row).fetchall()
    account(found, kind_of, jobs, slots=slots)
    return found


_JOBS: Final = """
SELECT j.submission_id, s.submission_time, j.secret, j.verdict, j.created_at, j.started_at, j.finished_at, j.report
FROM runner.job j JOIN leaderboard.submission s ON s.id = j.submission_id
WHERE s.submission_time >= %s ORDER BY j.id
"""


def account(found: Load, kind_of: Mapping[int, Kind], jobs: Sequence[tuple[Any, ...]], *, slots: int) -> None:
    """Read turn-arounds, and where the slots' time went, from the jobs."""
    ends: dict[int, list[Any]] = defaultdict(list)
    evaluated: dict[int, float] = defaultdict(float)
    used_s = 0.0
    for submission_id, submitted, secret, verdict, _, started, finished, said in jobs:
        kind = kind_of[submission_id]
        if not secret and verdict != VERDICTS[kind.end]:
            raise RuntimeError(f"{kind.name}, submission {submission_id}: {verdict}, expected {VERDICTS[kind.end]}")
        ends[submission_id].append((finished - submitted).total_seconds())
        if started is None or said is None:
            continue
        held_s = (finished - started).total_seconds()
        used_s += held_s
        phases = {name: value / 1e9 for name, value in said["phases_ns"].items()}
        judged: Seconds = defaultdict(float)
        for step in said["steps"]:
            details = step.get("judged", {}).get("details", {})
            for name, value in details.get("phases_ns", {}).items():
                judged[name] += value / 1e9
        for name in JUDGED:
            found.slots[f"judge: {name}"] += judged[name]
        evaluated[submission_id] += phases["eval"]
        found.slots[_WAITS] += phases["container"]
        found.slots["import and calibration"] += phases["import"]
        found.slots["tests and rest of the judge"] += phases["eval"] - sum(judged.values())
        found.slots["commit"] += held_s - phases["container"] - phases["import"] - phases["eval"]
        found.secret_s += held_s if secret else 0.0
    for submission_id, kind in kind_of.items():
        took_s = max(ends[submission_id])
        found.took_s[kind.name].append(took_s)
        found.beside_s[kind.name].append(took_s - evaluated[submission_id])
    found.slots["between jobs, or idle"] = slots * found.seconds - used_s


def report(found: Load, plain: Mapping[str, Sequence[float]], mix: Sequence[Kind]) -> None:
    """The tables of one number of users."""
    print(f"\n{found.users} users, {found.seconds:.0f} s, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    line = f"{found.per_hour:.0f} submissions per hour"
    if all(plain.values()):
        weights = sum(kind.weight for kind in mix)
        mean_s = sum(kind.weight * statistics.fmean(plain[kind.name]) for kind in mix) / weights
        line += f"; plain, one after the other: {3600 / mean_s:.0f}; ratio {found.per_hour * mean_s / 3600:.1f}"
    print(line)
    print(f"{'kind':<22}{'count':>6}{'p50 s':>9}{'p99 s':>9}{'beside s':>10}{'plain s':>9}{'p50/plain':>11}")
    for kind in mix:
        took = sorted(found.took_s.get(kind.name, ()))
        if not took:
            continue
        p50, p99 = statistics.median(took), took[min(len(took) - 1, int(0.99 * len(took)))]
        beside_s, plain_s = statistics.median(found.beside_s[kind.name]), plain[kind.name]
        compared = f"{statistics.median(plain_s):>9.2f}{p50 / statistics.median(plain_s):>11.3f}" if plain_s else ""
        print(f"{kind.name:<22}{len(took):>6}{p50:>9.2f}{p99:>9.2f}{beside_s:>10.2f}{compared}")
    all_s = sum(found.slots.values())
    for name, used_s in (*sorted(found.slots.items(), key=lambda each: -each[1]), ("all", all_s)):
        print(f"  {name:<50}{used_s:>9.1f} slot-s{used_s / found.done:>9.3f} per submission")
    waited = found.slots[_WAITS] / all_s
    print(
        f"of the slots' time {waited:.1%} went to waits for containers, {found.secret_s:.1f} slot-s to secret jobs",
        flush=True,
    )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
