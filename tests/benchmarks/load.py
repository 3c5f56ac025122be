"""A host under load: users in a closed loop, each with one ranked submission at a time, beside the plain processes.

Ours: real daemon, real containers, a PostgreSQL of its own. Each user submits again as soon as the last submission is
over. The mix is in `SIZES` and `ENDS`; it is drawn without chance, so that a short run has it too. Printed are
submissions per hour, the turn-around of each kind (from the database's times) and how much of it was not spent on the
submission's own calls and their checks, where the time of the slots went, and which processes used the cores.

Plain: the same files, each through the sequence of processes of KernelBot's runner (see `turnaround`), one after the
other, the public chain alone, which favours the plain side. A chain ends with its first failure. Its submissions per
hour are computed from the mean of each kind and the same weights.

`make bench ARGS="load --users 1 10 --seconds 60 --plain 1"`; `--sizes` and `--ends` choose a part of the mix.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from runner.task_format import load
from runner.task_format.model import SUBMISSION, PyConfig
from tasks.harness.judge.cases import spec_line
from tests.benchmarks._live import database
from tests.benchmarks.turnaround import CHAINS
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
_WHOLE: Final = "the whole machine"
_OTHERS: Final = "engine, containers that ran no job, other programs"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
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
    #: Core-seconds.
    cores: Seconds = field(default_factory=lambda: defaultdict(float))

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
        ours, theirs = folder / f"ours-{size}", folder / f"plain-{size}"
        write_task(ROOT / "tasks" / "problems" / "vectoradd", ours, SIZES[size][1])
        live.board(ours, name=size)
        write_plain(theirs, SIZES[size][1])
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


def write_plain(folder: Path, sizes: tuple[int, int]) -> None:
    """The files of a plain chain side by side, as KernelBot's runner lays them out."""
    loaded = load(ROOT / "tests" / "fixtures" / "kernelbot_vectoradd")
    if not isinstance(loaded.task.config, PyConfig):
        raise TypeError("the plain task has no Python eval program")
    folder.mkdir()
    for name, text in loaded.task.files.items():
        if text != SUBMISSION:
            (folder / name).write_text(text, encoding="utf-8")
    (folder / "main").write_text(loaded.task.config.main, encoding="utf-8")
    cases = [f"size: {size}; seed: {7059 + number}" for number, size in enumerate(sizes)]
    tests = [spec_line(case) for case in loaded.task.cases_for("CPU").tests or ()]
    for mode, lines in (("test", tests), ("benchmark", cases), ("leaderboard", cases)):
        (folder / f"{mode}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_plain(folder: Path, kind: Kind) -> float:
    """Seconds of one plain chain; it ends with its first failure."""
    folder = folder / f"plain-{kind.size}"
    python = os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", str(ROOT / ".venv-eval" / "bin" / "python"))
    main_file = (folder / "main").read_text(encoding="utf-8")
    (folder / "submission.py").write_bytes(kind.code(time.time_ns()))
    began = time.monotonic()
    good = _process([python, "submission.py"], folder) == 0
    for step in CHAINS["leaderboard"]:
        if not good:
            break
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as result:
            limit_s = LIMIT_S if kind.end == "time-out" else PATIENCE_S
            _process([python, main_file, step, f"{step}.txt"], folder, result=writer, limit_s=limit_s)
            os.close(writer)
            good = b"check: pass" in result.read()
    took_s = time.monotonic() - began
    if good != (kind.end == "right"):
        raise RuntimeError(f"plain {kind.name}: passed is {good}")
    return took_s


def _process(arguments: list[str], folder: Path, *, result: int | None = None, limit_s: float = PATIENCE_S) -> int:
    """One program and what it started, its output dropped; its exit code. One that takes too long is killed."""
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env={**os.environ, **({} if result is None else {"POPCORN_FD": str(result)})},
        pass_fds=() if result is None else (result,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        return process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return process.wait()


def run_load(live: LiveRunner, mix: Sequence[Kind], *, users: int, seconds: float, slots: int = 1) -> Load:
    """Keep `users` ranked submissions open for so long, then wait for the last ones.

    All of them count, and so does the time until the last has ended.

    Raises:
        RuntimeError: a submission ended with another verdict than it must.
    """
    turns = in_turns(mix)
    open_: dict[int, int] = {}
    kind_of: dict[int, Kind] = {}
    with psycopg.connect(live.database_url, autocommit=True) as database_, _core_times(live) as cores:
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
    found.cores.update(cores)
    # Containers that waited have used cores before the block, so their share may be more than all.
    whole_s = found.cores.pop(_WHOLE)
    found.cores[_OTHERS] = max(0.0, whole_s - sum(found.cores.values()))
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
        found.cores["containers that ran a job"] += (said["outcome"]["cpu_ns"] or 0) / 1e9
        found.secret_s += held_s if secret else 0.0
    for submission_id, kind in kind_of.items():
        took_s = max(ends[submission_id])
        found.took_s[kind.name].append(took_s)
        found.beside_s[kind.name].append(took_s - evaluated[submission_id])
    found.slots["between jobs, or idle"] = slots * found.seconds - used_s


@contextmanager
def _core_times(live: LiveRunner) -> Iterator[Seconds]:
    """Core-seconds that groups of processes use during the block; filled when it ends."""
    used: Seconds = defaultdict(float)
    before = _times(live)
    yield used
    for name, now_s in _times(live).items():
        used[name] = now_s - before[name]


def _times(live: LiveRunner) -> Seconds:
    if live.process is None:
        raise RuntimeError("the daemon does not run")
    with psycopg.connect(live.database_url) as database_:
        row = database_.execute("SELECT pg_backend_pid()").fetchone()
        postmaster = _stat(row[0])[1] if row else 0
    found: Seconds = defaultdict(float)
    found["daemon"] = _stat(live.process.pid)[0]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            used_s, parent = _stat(int(entry.name))
            # Sessions that have ended count in the postmaster's time of its children.
            found["database"] += used_s if postmaster in (parent, int(entry.name)) else 0.0
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    found[_WHOLE] = (sum(ticks) - ticks[3] - ticks[4]) * _TICK_S
    return found


def _stat(pid: int) -> tuple[float, int]:
    """Core-seconds of a process and of its children that have ended, and its parent's id; zeros if it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0, 0
    return sum(map(int, words[11:15])) * _TICK_S, int(words[1])


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
    for title, account_, suffix in (("slots", found.slots, "slot-s"), ("cores", found.cores, "core-s")):
        print(f"{title}:")
        for name, used_s in (*sorted(account_.items(), key=lambda each: -each[1]), ("all", sum(account_.values()))):
            print(f"  {name:<50}{used_s:>9.1f} {suffix}{used_s / found.done:>9.3f} per submission")
    waited = found.slots[_WAITS] / sum(found.slots.values())
    print(
        f"of the slots' time {waited:.1%} went to waits for containers, {found.secret_s:.1f} slot-s to secret jobs",
        flush=True,
    )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
