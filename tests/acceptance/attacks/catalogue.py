"""Reads the attacks: a folder each, submission.py and expect.yml; and makes the table of them. Pure but for reading.

expect.yml: `family`, one of FAMILIES; `seen`, where; `why`, what it does, a sentence; `task`, a folder of
cases/_tasks; `mode`; `verdict`; `or_else`, another one, where it is a matter of moments; `error`, a pattern for the
verdict's sentence; `busy`, the verdict on a machine that is too busy to tell it from bad luck; `work_ns`, what a call
takes at least, so that no less may be reported, or no less than the part `holds` of it, and what `work()` takes, which
stands before the submission of an attack that calls it; `without`, the defences without each of which it gets through
(`a+b`: without both); `given`, those that are off in any case; `also`, defences that stop it too; `naive`, options of
the evaluator in one process, before which it is played where this is there or `trusted` is among its defences;
`speedup`, how many times faster than its work that evaluator takes it to be at least; `rounds`, how often it is
evaluated in a row; `elsewhere`, the acceptance cases that play it in a container.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

CASES: Final = Path(__file__).parent / "cases"
TASKS: Final = CASES / "_tasks"
ACCEPTANCE: Final = Path(__file__).parents[1]

#: Every family of attacks, by its word in the table; where one has been reported.
FAMILIES: Final[Mapping[str, str]] = {
    "late": "work that the clock does not see: in a thread, on a stream, or when the output is looked at "
    "([reference-kernels 161](https://github.com/gpu-mode/reference-kernels/pull/161))",
    "ahead": "work before the clock runs: in a warm-up, or on inputs that are foreseen or seen early "
    "([reference-kernels 102](https://github.com/gpu-mode/reference-kernels/pull/102), "
    "[kernelbot 501](https://github.com/gpu-mode/kernelbot/pull/501))",
    "replay": "answers kept, by content, address, object, version, shape, or in a file "
    "([reference-kernels 160](https://github.com/gpu-mode/reference-kernels/pull/160))",
    "batch": "one answer, or one launch, for several calls between two readings of the clock "
    "([reference-kernels 104](https://github.com/gpu-mode/reference-kernels/pull/104))",
    "timer": "false times: patched clocks, events, statistics, and claims "
    "([reference-kernels 159](https://github.com/gpu-mode/reference-kernels/pull/159), "
    "[162](https://github.com/gpu-mode/reference-kernels/issues/162))",
    "report": "results printed or written by the submission "
    "([pygpubench 7](https://github.com/gpu-mode/pygpubench/pull/7))",
    "checker": "the reference, its output, the checker, and their memory "
    "([pygpubench 23](https://github.com/gpu-mode/pygpubench/issues/23))",
    "precision": "fewer digits than the statement asks for",
    "unseen": "wrong outputs where no case and no check looks; code that no reader sees",
}
#: What is played on a device only, after the rows of its family.
ON_DEVICES: Final[Mapping[str, str]] = {
    "late": "| late | on another stream, with `synchronize` patched or not (`tests/gpu/test_attacks.py`) | "
    "KernelBench, reference-kernels | needs a device | on an H100: `wrong_answer`, `rejected` or its true time | W, Z |"
}
#: Every defence, by the word for it: its column in the table, and what it is.
DEFENCES: Final[Mapping[str, tuple[str, str]]] = {
    "trusted": ("T", "a separate process holds reference, inputs, checker and clock, and reads outputs itself"),
    "fresh": ("F", "every timed call has values that it has not had before"),
    "secret": ("F", "which cannot be foreseen"),
    "poison": ("P", "outputs begin as random bytes"),
    "heap": ("P", "memory that the judge frees is overwritten"),
    "clock": ("W", "claims are held against the judge's own clock"),
    "held": ("W", "inputs are nowhere to be seen until that clock runs"),
    "frozen": ("Z", "a call ends when the judge has what it uses of it"),
    "looked": ("Z", "large outputs are copied in a secret order, and must not change meanwhile"),
    "own_copy": ("T", "the checker's inputs are not those that the submission had"),
    "every": ("E", "every timed call is checked by itself, as is its time"),
    "teeth": ("C", "cases, tolerances and oracles that a wrong kernel fails"),
    "floor": ("L", "a time below what the device could do is refused"),
    "descriptors": ("N", "no descriptor of the judge's is inherited"),
    "uid": ("U", "the judge has another uid; ptrace is refused"),
    "readonly": ("R", "the root file system is read-only, the rest is fresh for every job"),
    "network": ("R", "there is no network"),
}
LETTERS: Final = "TFPWZECLNUR"
_WORK: Final = """
import time

def work():
    until = time.monotonic_ns() + {work_ns}
    while time.monotonic_ns() < until:
        pass

"""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One way to cheat."""

    name: str
    family: str
    seen: str
    why: str
    verdict: str
    task: str = "add"
    mode: str = "test"
    error: str | None = None
    or_else: str | None = None
    busy: str | None = None
    work_ns: int | None = None
    holds: float = 0.7
    without: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    naive: Mapping[str, Any] | None = None
    speedup: float | None = None
    rounds: int = 1
    elsewhere: tuple[str, ...] = ()
    source: str

    @property
    def proved(self) -> frozenset[str]:
        """The defences that have been seen to be what stops it."""
        return frozenset(each for names in self.without for each in names.split("+"))

    @property
    def in_process(self) -> bool:
        """Whether it is one on evaluators in one process."""
        return self.naive is not None or "trusted" in self.proved


def load(folder: Path) -> Attack:
    """The attack in a folder.

    Raises:
        ValueError: its expect.yml is not what the module's docstring says.
    """
    loaded = yaml.safe_load((folder / "expect.yml").read_text(encoding="utf-8"))
    loaded |= {key: tuple(loaded.get(key, ())) for key in ("without", "given", "also", "elsewhere")}
    source = (folder / "submission.py").read_text(encoding="utf-8")
    if "work()" in source:
        source = _WORK.format(work_ns=loaded["work_ns"]) + source
    try:
        attack = Attack(name=folder.name, source=source, **loaded)
    except TypeError as error:
        raise ValueError(f"{folder}/expect.yml: {error}; expected the keys at the top of catalogue.py") from error
    unknown = (attack.proved | set(attack.also) | set(attack.given)) - set(DEFENCES)
    if unknown:
        raise ValueError(f"{folder}/expect.yml names {sorted(unknown)}, expected some of {sorted(DEFENCES)}")
    if attack.family not in FAMILIES:
        raise ValueError(f"{folder}/expect.yml: family is {attack.family!r}, expected one of {list(FAMILIES)}")
    return attack


def attacks() -> tuple[Attack, ...]:
    """All of them, by family and name."""
    every = [load(folder) for folder in sorted(CASES.iterdir()) if (folder / "expect.yml").exists()]
    return tuple(sorted(every, key=lambda attack: list(FAMILIES).index(attack.family)))


def stated(attack: Attack) -> tuple[str, str]:
    """What comes of an attack in one process, and here, as its folder says."""
    naive = "`accepted`" if attack.speedup is None else f"over {attack.speedup:g} ×"
    here = "gains nothing" if attack.verdict == "accepted" else f"`{attack.verdict}`"
    busy = f"; busy: `{attack.busy}`" if attack.busy else ""
    return naive if attack.in_process else "-", here + busy


def table(results: Callable[[Attack], tuple[str, str]] = stated) -> str:
    """What docs/attacks.md shows, as Markdown: families, letters, attacks with their results."""
    meanings = {letter: [text for key, text in DEFENCES.values() if key == letter] for letter in LETTERS}
    lines = ["| family | |", "|---|---|", *(f"| {family} | {text} |" for family, text in FAMILIES.items()), ""]
    lines += [
        "| | defence |",
        "|---|---|",
        *(f"| {letter} | {'; '.join(meanings[letter])} |" for letter in LETTERS),
        "",
    ]
    lines += ["| family | attack | seen in | in one process | here | stopped by |", "|---|---|---|---|---|---|"]
    rows: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for attack in attacks():
        proved = {DEFENCES[name][0] for name in attack.proved}
        also = {DEFENCES[name][0] for name in attack.also} - proved
        stopped_by = ", ".join(letter for letter in LETTERS if letter in proved)
        helped_by = ", ".join(letter for letter in LETTERS if letter in also)
        defences = "; also ".join(filter(None, (stopped_by, helped_by)))
        naive, here = results(attack)
        rows[attack.family].append(
            f"| {attack.family} | `{attack.name}`: {attack.why} | {attack.seen} | {naive} | {here} | {defences} |"
        )
    for family, text in ON_DEVICES.items():
        rows[family].append(text)
    return "\n".join([*lines, *(line for family in rows.values() for line in family)]) + "\n"
