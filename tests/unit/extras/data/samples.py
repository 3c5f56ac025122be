"""Small exported folders, made with pyarrow alone; column for column what `data export` writes."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import runner.extras.data
from runner.extras.data.tables import FLAT, SUBMISSIONS

START = datetime(2030, 3, 1, 9, tzinfo=UTC)
#: The time of a perfect kernel on the sample board, in seconds.
LIGHT_S = 8.6e-6
#: Names that would run, break or hide something where they are not shown as text.
HOSTILE = "<script>alert(1)</script> $\\frac{1}{0}$ & \x1b[2J\u202e"

_SHIPPED = Path(runner.extras.data.__file__).parent / "shipped"


def shipped_files() -> Mapping[str, Path]:
    """What an exported folder gets besides its data: path below the folder -> the file that is copied."""
    found = (path for path in sorted(_SHIPPED.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(_SHIPPED).as_posix(): path for path in found}


def row(
    submission_id: int,
    user: str = "ada",
    *,
    score: float | None = None,
    problem: str = "vectoradd",
    runner: str = "B200",
    name: str | None = None,
    hours: float | None = None,
    code: str | None = None,
    **more: Any,  # noqa: ANN401 any other column
) -> dict[str, Any]:
    """One row; with a score it ranks, without one it never did."""
    ranked = score is not None
    return {
        "submission_id": submission_id,
        "leaderboard_id": 595,
        "problem_name": problem,
        "user_id": user,
        "user_name": user if name is None else name,
        "code_id": submission_id,
        "file_name": "submission.py",
        "submission_time": START + timedelta(hours=submission_id if hours is None else hours),
        "status": "succeeded" if ranked else "failed",
        "score": score,
        "passed": True if ranked else None,
        "mode": "leaderboard" if ranked else None,
        "runner": runner if ranked else None,
        "code": f"# {submission_id}\n" if code is None else code,
        **more,
    }


def rich(line: Mapping[str, Any], *, sol: float | None = None) -> dict[str, Any]:
    """The same row as `submissions.parquet` has it."""
    code = str(line["code"]).encode()
    return {
        "mode_category": "leaderboard" if line["mode"] else "test",
        "verdict": "accepted" if line["passed"] else "wrong_answer",
        "run_id": None,
        "score_raw": line["score"],
        "score_invalid_reason": None,
        "flags": [],
        "code_sha256": hashlib.sha256(code).hexdigest(),
        "code_bytes": len(code),
        "code_encoding": "utf-8",
        "assurance_correctness": "judge",
        "assurance_timing": "audited",
        "sol": sol,
        **{key: value for key, value in line.items() if key != "code"},
    }


def write_flat(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write a flat file."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=FLAT), path, compression="snappy")
    return path


def write_export(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    name: str = "nvidia_nvfp4",
    light_s: float | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Path:
    """Write an exported folder: parquet files, the shipped programs, queries, card and manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    write_flat(folder / f"{name}_submissions.parquet", rows)
    richer = [
        rich(line, sol=None if light_s is None or not line["score"] else light_s / line["score"]) for line in rows
    ]
    pq.write_table(pa.Table.from_pylist(richer, schema=SUBMISSIONS), folder / "submissions.parquet", compression="zstd")
    for target, source in shipped_files().items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / target)
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# Submissions\n", encoding="utf-8")
    files = [
        {
            "path": path.relative_to(folder).as_posix(),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    ]
    document = {"format": 1, "private": False, "licence": "cc-by-4.0", "flat": f"{name}_submissions.parquet"}
    document |= {"software": {"kernel-runner": "0"}, "boards": [], "files": files}
    (folder / "manifest.json").write_text(json.dumps({**document, **(manifest or {})}, indent=2), encoding="utf-8")
    return folder


def competition(*, users: int = 24) -> list[dict[str, Any]]:
    """The rows of a board that looks like a real one: everyone improves, and fails often."""
    draw = random.Random(1)  # noqa: S311 a sample, no secret
    names = ("ada", "gau.nernst", "grace_h", "Zoë Müller", "tensor-cat", "mma_wizard", "linus", "kernel_panic")
    rows: list[dict[str, Any]] = []
    for index in range(users):
        name = names[index] if index < len(names) else f"user{index}"
        skill = LIGHT_S * (1.12 + 0.13 * index + 0.4 * draw.random())
        time_s = draw.uniform(0.4e-3, 30e-3)
        moment = draw.uniform(0, 250)
        while moment < 500:
            best = skill + (time_s - skill) * draw.uniform(0.3, 0.95)
            time_s = min(time_s, best)
            score = None if draw.random() < 0.35 else best * math.exp(abs(draw.gauss(0, 0.15)))
            rows.append(row(len(rows), f"id-{index}", name=name, score=score, hours=moment))
            moment += draw.expovariate(1 / 14)
    return rows
