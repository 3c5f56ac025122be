"""What tests of the pipeline share: rows, and commands with an endpoint's address."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[5]


@dataclass(frozen=True)
class Service:
    """An endpoint and its log."""

    url: str
    log: Path

    def asked(self) -> Counter[str]:
        """Requests by what became of them."""
        return Counter(line.split()[1] for line in self.log.read_text().splitlines())

    def answer_at_most(self, requests: int | None) -> None:
        """Let requests beyond so many lines of the log wait, so that no command ends before; None: answer all."""
        most = self.log.with_name(f"{self.log.name}.most")
        # Renamed, so that the endpoint never reads a half of it.
        written = most.with_name(f"{most.name}.new")
        written.write_text(str(sys.maxsize if requests is None else requests), encoding="utf-8")
        written.replace(most)

    def names(self) -> Counter[str]:
        """Requests by their question."""
        return Counter(line.split()[0] for line in self.log.read_text().splitlines())


def rows(folder: Path, behaviours: Sequence[str], *, reward: float = 1.0) -> Path:
    """Evaluation rows whose questions make the endpoint behave so."""
    file = folder / "evals.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for number, behaviour in enumerate(behaviours):
            row = {
                "example_id": number,
                "prompt": [{"role": "user", "content": f"task {number} BEHAVE:{behaviour}"}],
                "completion": [{"role": "assistant", "content": f"solution {number} — ü", "reasoning": "long"}],
                "reward": reward + number / 1000,
                "info": {"module_name": f"Module{number % 7}", "python_code": f"x = {number}"},
            }
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    return file


def modules(folder: Path, count: int) -> Path:
    """Rows of modules."""
    file = folder / "book.jsonl"
    book = (
        {"entry_point": f"Net{n}", "module_name": "other", "python_code": f"class Net{n}: pass", "uuid": n}
        for n in range(count)
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in book))
    return file


def environment(service: Service, **variables: str) -> dict[str, str]:
    """The variables of a command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIME", "HF_", "TEST_MODE"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PRIME_BASE_URL": service.url,
        "PRIME_API_KEY": "a key",
        "PRIME_TEAM_ID": "a team",
        **variables,
    }


def command(service: Service, *arguments: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """A command of the pipeline, and its variables."""
    return [sys.executable, "-m", "runner.cli", "kernelbook", *arguments], environment(service, **variables)


def run(service: Service, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    call, given = command(service, *arguments, **variables)
    return subprocess.run(call, env=given, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def kept(journal: Path) -> set[str]:
    """The questions, by the endpoint's names, that a journal answers."""
    if not journal.exists():
        return set()
    with sqlite3.connect(journal) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'answer'").fetchone():
            return set()
        texts = database.execute("SELECT text FROM answer WHERE good").fetchall()
    # Every answer of the endpoint holds its name.
    return {name for (text,) in texts for name in re.findall(r"\b[0-9a-f]{16}\b", text)}
