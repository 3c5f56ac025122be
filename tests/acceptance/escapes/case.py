"""Reads the attempts: one Python file each, whose docstring is YAML. Pure but for reading the files.

`why`, a sentence; `verdict`, one for all boards or one by board; `boards`, those it is made for (`judge`, the built-in
harness; `program`, a task's own program), the first of which the short form of the suite plays; `error`, a pattern for
the sentence of the verdict; `timeout_s`, of a mode; `times`, how often it is submitted in a row; `relax`, the defence
without which it must get the verdict `relaxed`; `gvisor`, the verdict there if it is another one, or a list of those it
may be, and `gvisor_why`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

CASES: Final = Path(__file__).parent / "cases"
PRELUDE: Final = CASES / "_prelude.py"
JUDGE, PROGRAM = "judge", "program"
GVISOR: Final = "runsc"
#: What becomes of a container that gVisor has brought down with it: its cgroup, which tells of the memory limit, may be
#: gone before it is read, and then nobody is blamed.
_UNREAD: Final = {"memory_limit": "internal_error"}
TIMEOUT_S: Final = 30


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attempt."""

    name: str
    why: str
    #: By board.
    verdicts: Mapping[str, str]
    error: str | None
    timeout_s: int
    times: int
    relax: str | None
    relaxed: str | None
    #: None where gVisor makes no difference; more than one where the speed of the machine decides.
    gvisor: tuple[str, ...] | None
    gvisor_why: str | None
    source: str

    @property
    def board(self) -> str:
        """The board that the short form plays it on."""
        return next(iter(self.verdicts))

    def expected(self, board: str, *, runtime: str) -> frozenset[str]:
        """The verdict under a runtime; those it may be, under gVisor."""
        if runtime != GVISOR:
            return frozenset({self.verdicts[board]})
        found = self.gvisor or (self.verdicts[board],)
        return frozenset(found) | {_UNREAD[verdict] for verdict in found if verdict in _UNREAD}

    def code(self, *, relaxed: bool, words: Mapping[str, str]) -> bytes:
        """The submission: what stands before every case, then the case, with @WORDS@ replaced."""
        text = f"{PRELUDE.read_text(encoding='utf-8')}\n\n{self.source}"
        for word, value in {**words, "RELAXED": str(relaxed)}.items():
            text = text.replace(f"@{word}@", value)
        return text.encode()


def all_cases() -> tuple[Case, ...]:
    """Every case, by name."""
    return tuple(load(path) for path in sorted(CASES.glob("[!_]*.py")))


def load(path: Path) -> Case:
    """The case in a file.

    Raises:
        ValueError: its docstring is not what the module's says.
    """
    source = path.read_text(encoding="utf-8")
    stated = ast.get_docstring(ast.parse(source))
    loaded = yaml.safe_load(stated or "")
    fields: dict[str, Any] = loaded if isinstance(loaded, dict) else {}
    known = {"why", "verdict", "boards", "error", "timeout_s", "times", "relax", "relaxed", "gvisor", "gvisor_why"}
    if not {"why", "verdict"} <= set(fields) <= known:
        raise ValueError(f"{path}: the docstring has {fields!r:.200}, expected why, verdict and some of {known}")
    if ("relax" in fields) != ("relaxed" in fields) or ("gvisor" in fields) != ("gvisor_why" in fields):
        raise ValueError(f"{path}: relax goes with relaxed, gvisor with gvisor_why")
    verdict, boards = fields["verdict"], fields.get("boards", [PROGRAM, JUDGE])
    gvisor = fields.get("gvisor")
    return Case(
        name=path.stem,
        why=fields["why"],
        verdicts={board: verdict[board] if isinstance(verdict, dict) else verdict for board in boards},
        error=fields.get("error"),
        timeout_s=fields.get("timeout_s", TIMEOUT_S),
        times=fields.get("times", 1),
        relax=fields.get("relax"),
        relaxed=fields.get("relaxed"),
        gvisor=(gvisor,) if isinstance(gvisor, str) else tuple(gvisor) if gvisor else None,
        gvisor_why=fields.get("gvisor_why"),
        source=source,
    )
