"""Reads the attempts: one Python file each, whose docstring is YAML. Pure but for reading the files.

`why`, a sentence; `verdict`, unless it is accepted, which says that nothing was possible; `boards`, those it is made
for, unless these are program and judge (`judge`, the built-in harness; `program`, a task's own program), the first of
which the short form of the suite plays; `error`, a pattern for the sentence of the verdict; `timeout_s`, of a mode;
`times`, how often it is submitted in a row; `alone`, why it needs a container of its own although everything that it
tries is refused; `relax`, the defence without which it must get the verdict `relaxed`, unless that is wrong_answer;
`gvisor`, the verdict there if it is another one, or a list of those it may be, and `gvisor_why`.

A case that only tries, and must be refused, is a probe. The short form plays the probes of a board in one submission,
each in a process of its own that is forked while the submission is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

CASES: Final = Path(__file__).parent / "cases"
PRELUDE: Final = CASES / "_prelude.py"
TOGETHER: Final = CASES / "_together.py"
JUDGE, PROGRAM = "judge", "program"
ACCEPTED: Final = "accepted"
GVISOR: Final = "runsc"
#: What becomes of a container that gVisor has brought down with it: its cgroup, which tells of the memory limit, may be
#: gone before it is read, and then nobody is blamed.
_UNREAD: Final = {"memory_limit": "internal_error"}
#: Seconds for what does not end by its limit, on a busy machine too.
TIMEOUT_S: Final = 120
#: Of all probes of a board.
_TOGETHER_S: Final = 240


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attempt."""

    name: str
    why: str
    #: By board.
    verdicts: Mapping[str, str]
    error: str | None = None
    timeout_s: int = TIMEOUT_S
    times: int = 1
    #: Why it shares its container with no other attempt; None where nothing is said about it.
    alone: str | None = None
    relax: str | None = None
    relaxed: str = "wrong_answer"
    #: None where gVisor makes no difference; more than one where the speed of the machine decides.
    gvisor: tuple[str, ...] | None = None
    gvisor_why: str | None = None
    source: str

    @property
    def board(self) -> str:
        """The board that the short form plays it on."""
        return next(iter(self.verdicts))

    @property
    def is_probe(self) -> bool:
        """Whether it leaves a container as it was, so that other probes can be tried there, too."""
        only_tries = set(self.verdicts.values()) == {ACCEPTED} and "def custom_kernel" not in self.source
        return only_tries and self.times == 1 and self.alone is None

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


def together(probes: Sequence[Case]) -> Case:
    """One submission that tries all of them: right if and only if each came to its end, and nothing was possible.

    A process prints `TRIED: name` when a probe has come to its end, and `BREACH: name: what` for what was possible.
    """
    boards, defences = {probe.board for probe in probes}, {probe.relax for probe in probes}
    if len(boards) != 1 or not all(probe.is_probe for probe in probes):
        raise ValueError(f"expected probes of one board, found {[probe.name for probe in probes]}")
    (board,) = boards
    sources = {probe.name: probe.source for probe in probes}
    return Case(
        name=f"probes-{board}",
        why="Each of them must be refused.",
        verdicts={board: ACCEPTED},
        timeout_s=_TOGETHER_S,
        relax=defences.pop() if len(defences) == 1 else None,
        source=f"{TOGETHER.read_text(encoding='utf-8')}\n\nfor each in {sources!r}.items():\n    probe(*each)\n",
    )


def tried(output: str, name: str) -> bool:
    """Whether a probe came to its end, by what `together` has printed."""
    return re.search(rf"^TRIED: {name}$", output, re.MULTILINE) is not None


def breached(output: str, name: str) -> bool:
    """Whether something was possible for a probe, by what `together` has printed."""
    return re.search(rf"^BREACH: {name}: ", output, re.MULTILINE) is not None


def all_cases() -> tuple[Case, ...]:
    """Every case, by name."""
    return tuple(load(path) for path in sorted(CASES.glob("[!_]*.py")))


def load(path: Path) -> Case:
    """The case in a file.

    Raises:
        ValueError: its docstring is not what the module's says.
    """
    source = path.read_text(encoding="utf-8")
    try:
        fields = yaml.safe_load(ast.get_docstring(ast.parse(source)) or "")
        verdict, boards = fields.pop("verdict", ACCEPTED), fields.pop("boards", (PROGRAM, JUDGE))
        gvisor = fields.get("gvisor")
        if ("relaxed" in fields and "relax" not in fields) or ("gvisor" in fields) != ("gvisor_why" in fields):
            raise ValueError(f"{path}: relaxed goes with relax, gvisor with gvisor_why")
        if gvisor is not None:
            fields["gvisor"] = (gvisor,) if isinstance(gvisor, str) else tuple(gvisor)
        return Case(name=path.stem, source=source, verdicts=dict.fromkeys(boards, verdict), **fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: {error!r}; expected the keys at the top of case.py") from error
