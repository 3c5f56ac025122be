"""What tests of the pipeline share: an endpoint, rows, and commands with the endpoint's address."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.chat import JSON, Reply, completion
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[5]


_BEHAVIOUR = re.compile(r"BEHAVE:([\w,]+)")


@dataclass
class Service:
    """An endpoint that behaves as questions say, and logs every request: the hash of its messages, and its behaviour.

    A question that holds `BEHAVE:a,b,c` gets a, then b, then c, and c for ever: `ok`, a status such as `429`, `cut`,
    `null`, `malformed`, `upper`. Other questions get `ok`.
    """

    log: Path
    url: str = ""
    _asked: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, question: str) -> Reply:
        """What a request gets."""
        name = hashlib.sha256(question.encode()).hexdigest()[:16]
        found = _BEHAVIOUR.search(question)
        behaviours = ["ok"] if found is None else found[1].split(",")
        with self._lock:
            behaviour = behaviours[min(self._asked[name], len(behaviours) - 1)]
            self._asked[name] += 1
            with self.log.open("a", encoding="utf-8") as log:
                log.write(f"{name} {behaviour}\n")
        if behaviour.isdecimal():
            error = {"error": {"message": f"told to say {behaviour}"}}
            return Reply(json.dumps(error).encode(), int(behaviour), (*JSON, ("retry-after", "0")))
        if behaviour == "cut":
            return Reply(b"{", missing_bytes=5000)
        return Reply(json.dumps(completion(_text(question, name, behaviour))).encode())

    def asked(self) -> Counter[str]:
        """Requests by what became of them."""
        return Counter(line.split()[1] for line in self.log.read_text().splitlines())

    def names(self) -> Counter[str]:
        """Requests by their question."""
        return Counter(line.split()[0] for line in self.log.read_text().splitlines())


def _text(question: str, name: str, behaviour: str) -> str | None:
    """What a model says."""
    odd = {"upper": "<Difficulty> HIGH </Difficulty>", "malformed": "I would rather not say.", "null": None}
    if behaviour in odd:
        return odd[behaviour]
    if "specification" in question:
        return f"<specification>Compute what {name} says.</specification>"
    if "BEGIN_PYTHON" in question:
        return f"BEGIN_PYTHON\nclass NetNew:  # {name}\n    pass\nEND_PYTHON"
    level = ("low", "medium", "high")[int(name, 16) % 3]
    return f"Because of {name}. <difficulty>{level}</difficulty>"


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


def lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def run(service: Service, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    call, given = [sys.executable, "-m", "runner.cli", "kernelbook", *arguments], environment(service, **variables)
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
