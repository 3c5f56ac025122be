"""Which tests `make test` leaves to `make test-all`, and which of those a change brings back: see tiers.toml.

`python -m tests.tiers` prints the corpora that the change in this checkout touches, or `all`. The change is what
differs from the merge base with the main branch, or, on that branch itself, from the parent commit; uncommitted files
count.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ALL: Final = "all"
#: A change of more files is taken to touch everything.
MAX_FILES: Final = 100
_MAIN: Final = ("origin/HEAD", "origin/main", "main")


@dataclass(frozen=True, kw_only=True)
class CaseClass:
    """Cases of a corpus that one defence answers: those that `make test` plays, and the others."""

    name: str
    quick: tuple[str, ...]
    more: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Tests of which `make test` plays one case of each class; where there are no classes, none."""

    name: str
    #: Files and folders, from the repository's root.
    tests: tuple[str, ...]
    #: The words of its tests, where it does not have all of these files.
    only: tuple[str, ...]
    #: What `make test` shows of the same, where it plays nothing of this corpus.
    instead: str | None
    classes: tuple[CaseClass, ...]

    def has(self, nodeid: str) -> bool:
        """Whether a test of one of its files belongs to it, or the file has tests of it."""
        return not self.only or "::" not in nodeid or matches(nodeid, self.only)

    def classes_of(self, nodeid: str) -> tuple[str, ...]:
        """The classes of a test: one, or the manifest is wrong."""
        return tuple(each.name for each in self.classes if matches(nodeid, (*each.quick, *each.more)))

    def is_quick(self, nodeid: str) -> bool:
        """Whether `make test` plays it."""
        return any(matches(nodeid, each.quick) for each in self.classes)


@dataclass(frozen=True, kw_only=True)
class Tiers:
    """The manifest."""

    corpora: tuple[Corpus, ...]
    #: A folder or file of the repository, and the corpora that a change below it touches.
    folders: dict[str, tuple[str, ...]]

    def corpus_of(self, nodeid: str) -> Corpus | None:
        """The corpus of a test; None for the tests that `make test` always plays."""
        return next((corpus for corpus in _corpora_of(nodeid.partition("::")[0]) if corpus.has(nodeid)), None)

    def touched_by(self, paths: Sequence[str]) -> frozenset[str]:
        """The corpora that a change of these files touches; a page touches none."""
        everything = frozenset(corpus.name for corpus in self.corpora)
        if len(paths) > MAX_FILES:
            return everything
        touched: set[str] = set()
        for path in paths:
            if path.endswith(".md"):
                continue
            corpus = self.corpus_of(path)
            if corpus is not None:
                touched.add(corpus.name)
                continue
            place = max((place for place in self.folders if _is_below(path, place)), key=len, default=None)
            touched |= everything if place is None or self.folders[place] == (ALL,) else {*self.folders[place]}
        return frozenset(touched)


@cache
def tiers() -> Tiers:
    """What tiers.toml says."""
    document = tomllib.loads((ROOT / "tests" / "tiers.toml").read_text(encoding="utf-8"))
    corpora = tuple(
        Corpus(
            name=name,
            tests=tuple(fields["tests"]),
            only=tuple(fields.get("only", ())),
            instead=fields.get("instead"),
            classes=tuple(
                CaseClass(name=each, quick=tuple(cases["quick"]), more=tuple(cases.get("more", ())))
                for each, cases in fields.get("classes", {}).items()
            ),
        )
        for name, fields in document["corpora"].items()
    )
    return Tiers(corpora=corpora, folders={place: tuple(names) for place, names in document["folders"].items()})


@cache
def _corpora_of(path: str) -> tuple[Corpus, ...]:
    return tuple(each for each in tiers().corpora if any(_is_below(path, place) for place in each.tests))


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place.rstrip('/')}/")


def matches(nodeid: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern is the test's file (without test_ and .py), function, case or both; `a` is `a-b`, too."""
    path, _, name = nodeid.partition("::")
    function, _, case = name.partition("[")
    stem = path.rpartition("/")[2].removesuffix(".py").removeprefix("test_")
    words = (stem, function, case.removesuffix("]"), name)
    return any(
        word == pattern
        or word.startswith(f"{pattern}-")
        or ("*" in pattern and fnmatchcase(word, pattern.replace("[", "[[]")))
        for pattern in patterns
        for word in words
    )


def changed_files() -> list[str] | None:
    """The files that differ from where this change began; None where that cannot be said."""
    try:
        base = _base()
        if base is None:
            return None
        return [*_git("diff", "--name-only", "--no-renames", base), *_git("ls-files", "--others", "--exclude-standard")]
    except (OSError, subprocess.CalledProcessError):
        return None


def _base() -> str | None:
    (head,) = _git("rev-parse", "HEAD")
    for branch in _MAIN:
        try:
            (base,) = _git("merge-base", "HEAD", branch)
        except (ValueError, subprocess.CalledProcessError):
            continue
        if base != head:
            return base
    return next(iter(_git("rev-parse", "HEAD^")), None)


def _git(*arguments: str) -> list[str]:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main() -> int:
    """Print the names, on one line."""
    paths = changed_files()
    touched = None if paths is None else tiers().touched_by(paths)
    everything = touched is None or len(touched) == len(tiers().corpora)
    sys.stdout.write(f"{ALL if everything else ' '.join(sorted(touched or ()))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
