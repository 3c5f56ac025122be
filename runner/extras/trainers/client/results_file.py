"""The file of results: a JSON object per line, appended as results come, and what can be made of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from runner.base.errors import DataError
from runner.extras.jsonl import Row, line_of, parsed, require_finite, require_writable
from runner.extras.trainers.client import rewards
from runner.extras.trainers.client.items import Item, Result
from runner.extras.trainers.client.sources import Entry

#: The thresholds of fast_p that are shown.
THRESHOLDS: Final = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
#: How every line begins.
_BEGINS: Final = b'{"key": '


class ResultsFile:
    """Appends to a file. What an earlier process has written is kept, but for a last line that it did not finish."""

    def __init__(self, path: Path, scope: str) -> None:
        """Open it, or make it.

        Raises:
            DataError: it cannot be written, or is no file of results.
        """
        self._path = path
        self._scope = scope
        #: The lines by key that need no second evaluation: with a result, of equal settings (`scope`) or added here.
        self.rows: dict[str, Mapping[str, Any]] = {}
        try:
            require_writable(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("a+b")
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self._cut()
        except DataError:
            self._file.close()
            raise

    def _cut(self) -> None:
        self._file.seek(0)
        whole = 0
        for line, row in _whole(self._file, self._path):
            whole += len(line)
            if row.get("scope") == self._scope and row.get("verdict") not in (None, "internal_error"):
                self.rows[str(row.get("key"))] = row
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)

    def require_same(self, item: Item) -> None:
        """Check that what is known of an item's key is of this item.

        Raises:
            DataError: the key belongs to another reference, candidate or setting.
        """
        digest = self.rows.get(item.key, {}).get("digest")
        if digest is not None and digest != item.digest:
            raise DataError(f"{self._path}: key {item.key!r} has the result of other content (give it a new key)")

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a line, whole or not at all."""
        self._file.write(line_of(row).encode())
        self._file.flush()
        self.rows[row["key"]] = row

    def close(self) -> None:
        """Write it to disk and close it."""
        os.fsync(self._file.fileno())
        self._file.close()


def row_of(entry: Entry, result: Result, reward: str, scope: str) -> dict[str, Any]:
    """A line of the file."""
    return {
        "key": result.key,
        "digest": entry.item.digest,
        "scope": scope,
        "name": entry.name,
        "level": entry.level,
        "problem": entry.problem,
        "sample": entry.sample,
        "verdict": result.verdict,
        "speedup": result.speedup if result.correct else None,
        "reward": result.reward(reward),
        "reward_name": reward,
        "facts": dict(result.facts),
        "attempt": result.attempt,
        "host": result.host,
        "reused": result.reused,
        "finished_at": result.finished_at,
    }


def by_level(rows: Iterable[Mapping[str, Any]], reward: str) -> Sequence[dict[str, Any]]:
    """A line for each level and, where there are several, one for all.

    Shares are of the samples that have a result of their own: faults are counted apart. Those of fast ones and the
    reward are of samples of which they are known.
    """
    levels: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        levels.setdefault(str(row.get("level") or "-"), []).append(row)
    lines = [_line(level, levels[level], reward) for level in sorted(levels)]
    if len(levels) > 1:
        lines.append(_line("all", [row for level in sorted(levels) for row in levels[level]], reward))
    return lines


def _line(level: str, rows: Sequence[Mapping[str, Any]], reward: str) -> dict[str, Any]:
    facts = [row["facts"] for row in rows if rewards.blames(row["facts"])]
    return {
        "level": level,
        "samples": len(rows),
        "without_result": len(rows) - len(facts),
        "compiled": _share([rewards.compiled(one) for one in facts]),
        "correct": _share([rewards.correct(one) for one in facts]),
        **{f"fast_{p:g}": _mean(f"fast_{p:g}@1", facts) for p in THRESHOLDS},
        "reward": _mean(reward, facts),
    }


def _mean(reward: str, facts: Sequence[Mapping[str, Any]]) -> float | None:
    """The mean of a reward where it is known; None: it is known of no sample, or only of wrong ones, not of right ones.

    What was not timed is neither fast nor slow.
    """
    right = [rewards.reward(reward, one) for one in facts if rewards.correct(one)]
    values = [value for one in facts if (value := rewards.reward(reward, one)) is not None]
    if not values or (right and all(value is None for value in right)):
        return None
    return sum(values) / len(values)


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def write_kernelbench(folder: Path, rows: Iterable[Mapping[str, Any]], sources: Mapping[str, str]) -> Sequence[Path]:
    """Write results as KernelBench's own evaluation would: `eval_results.json` and the candidates, a folder per level.

    Samples without a result of their own are left out, so KernelBench's tools would evaluate them. With one level, its
    files lie in the folder directly. `sources`: the candidates' texts by key.
    """
    levels: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("problem") is not None and rewards.blames(row["facts"]):
            levels.setdefault(str(row["level"]), []).append(row)
    written = []
    for level, own in levels.items():
        target = folder if len(levels) == 1 else folder / f"level{level}"
        target.mkdir(parents=True, exist_ok=True)
        results: dict[str, list[dict[str, Any]]] = {}
        for row in sorted(own, key=lambda row: (row["problem"], row["sample"])):
            results.setdefault(str(row["problem"]), []).append(_kernelbench(row))
            if row["key"] in sources:
                name = f"level_{level}_problem_{row['problem']}_sample_{row['sample']}_kernel.py"
                (target / name).write_text(sources[row["key"]], encoding="utf-8", errors="replace")
        path = target / "eval_results.json"
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(results, indent=4), encoding="utf-8")
        part.replace(path)
        written.append(path)
    return written


def _kernelbench(row: Mapping[str, Any]) -> dict[str, Any]:
    facts = row["facts"]
    place = {"hardware": facts.get("device"), "device": row.get("host")}
    metadata = {**place, "kernel_runner_verdict": row["verdict"]}
    if row["verdict"] != "accepted":
        metadata[f"{facts.get('stage') or 'runtime'}_error"] = facts.get("message")
    return {
        "sample_id": row["sample"],
        "compiled": rewards.compiled(facts),
        "correctness": rewards.correct(facts),
        "metadata": metadata,
        **_times("runtime", "candidate", facts if rewards.correct(facts) else {}, place),
        **_times("ref_runtime", "reference", facts, place),
    }


def _times(name: str, side: str, facts: Mapping[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
    """A side's mean and statistics, in milliseconds with three significant digits as KernelBench has them; -1: none.

    Results from before there were statistics have the median alone.
    """
    stats, median_ns = facts.get(f"{side}_stats"), facts.get(f"{side}_ns")
    if median_ns is None:
        return {name: -1.0, f"{name}_stats": {}}
    if not isinstance(stats, Mapping):
        return {name: _ms(median_ns), f"{name}_stats": {"median": _ms(median_ns), **place}}
    times_ms = {key: _ms(stats[f"{key}_ns"]) for key in ("mean", "std", "min", "max")}
    return {name: times_ms["mean"], f"{name}_stats": {**times_ms, "num_trials": stats["calls"], **place}}


def _ms(time_ns: float) -> float:
    return float(f"{time_ns / 1e6:.3g}")


def read_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of a file of results, the last one of each key; without one that was not finished.

    Raises:
        DataError: it is no such file.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    with path.open("rb") as file:
        for _, row in _whole(file, path):
            rows[str(row.get("key"))] = row
    return iter(rows.values())


def _whole(file: Iterable[bytes], path: Path) -> Iterator[tuple[bytes, Row]]:
    """The lines with what they hold, but for a last one that a process did not finish."""
    for number, line in enumerate(file, 1):
        if line.endswith(b"\n"):
            yield line, _parsed(line, path, number)
        elif not (line.startswith(_BEGINS) or _BEGINS.startswith(line.rstrip(b"\0"))):
            raise DataError(f"{path}: it is no file of results: line {number} ends with the file")


def _parsed(line: bytes, path: Path, number: int) -> Row:
    try:
        row = parsed(line.decode("utf-8"), where=f"line {number}")
        require_finite(row, where=f"line {number}")
    except (DataError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: it is no file of results: {error}") from error
    if not isinstance(row.get("facts"), dict):
        raise DataError(f"{path}: it is no file of results: the facts of {row.get('key')!r} are no object")
    return row
