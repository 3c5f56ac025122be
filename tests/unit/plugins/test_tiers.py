"""The manifest of tiers: every case has a class, every class is played by `make test`, every folder is in the map."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import tiers as tiers_module
from tests.plugins.tiers import COLLECTED
from tests.support.waiting import PATIENCE_S
from tests.tiers import ALL, MAX_FILES, ROOT, changed_files, main, matches, tiers

MANIFEST = tiers()
NAMES = {corpus.name for corpus in MANIFEST.corpora}
PRODUCT = ("runner", "sandbox", "tasks")


@pytest.fixture(scope="module")
def cases(request: pytest.FixtureRequest) -> list[str]:
    """The tests of all corpora: those of this run, where it has collected them, since collecting takes seconds."""
    places = [place for corpus in MANIFEST.corpora for place in corpus.tests]
    collected = request.config.stash.get(COLLECTED, ())
    if all(any(nodeid.startswith(place) for nodeid in collected) for place in places):
        return [nodeid for nodeid in collected if MANIFEST.corpus_of(nodeid) is not None]
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only", "-p", "no:cacheprovider", *places]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_every_case_has_one_class_and_every_class_a_quick_case(cases: list[str]) -> None:
    """A new case without a class fails here, as does a word that names no test."""
    wrong = []
    owners = {case: MANIFEST.corpus_of(case) for case in cases}
    quick: Counter[tuple[str, str]] = Counter()
    for case, corpus in owners.items():
        if corpus is None or not corpus.classes:
            continue
        classes = corpus.classes_of(case)
        if len(classes) != 1:
            wrong.append((case, classes))
        elif corpus.is_quick(case):
            quick[corpus.name, classes[0]] += 1
    assert wrong == [], "give each one class in tests/tiers.toml (quick: make test plays it; more: the others)"
    stale = [
        word
        for corpus in MANIFEST.corpora
        for word in (*corpus.only, *(word for each in corpus.classes for word in (*each.quick, *each.more)))
        if not any(owner is corpus and matches(case, [word]) for case, owner in owners.items())
    ]
    assert stale == []
    assert set(quick) == {(corpus.name, each.name) for corpus in MANIFEST.corpora for each in corpus.classes}


def test_what_make_test_leaves_out_whole_says_what_shows_the_same() -> None:
    """A corpus has classes, or a sentence."""
    assert [corpus.name for corpus in MANIFEST.corpora if bool(corpus.classes) == bool(corpus.instead)] == []
    places = [place for corpus in MANIFEST.corpora for place in corpus.tests]
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert len(places) == len(set(places))


def test_every_folder_of_the_product_is_in_the_map() -> None:
    """A new folder fails here; the map names nothing that is gone, and each corpus is touched by some folder."""
    folders = {
        path.relative_to(ROOT).as_posix()
        for name in (*PRODUCT, "runner/extras")
        for path in (ROOT / name).iterdir()
        if path.is_dir() and any(path.glob("*.py")) and name != "tasks"
    }
    folders |= {"sandbox", "tasks", "tasks/harness", "systemd"}
    inherited = {folder for folder in folders if folder not in MANIFEST.folders and folder.startswith("sandbox/")}
    assert folders - inherited <= set(MANIFEST.folders)
    assert [place for place in MANIFEST.folders if not (ROOT / place).exists()] == []
    assert {name for names in MANIFEST.folders.values() for name in names} == {*NAMES, ALL}
    # .ci/run passes them on, separated by spaces.
    assert [name for name in NAMES if not name.isidentifier()] == []


def test_a_change_brings_back_the_corpora_that_it_touches() -> None:
    """By the longest place in the map; a case of a corpus brings that corpus, what is unknown or large brings all."""
    assert MANIFEST.touched_by([]) == set()
    assert MANIFEST.touched_by(["NEW.md", "docs/examples/rank.py", "tests/unit/test_layers.py"]) == set()
    assert MANIFEST.touched_by(["sandbox/inside/init.py"]) == {*MANIFEST.folders["sandbox"]}
    assert "attacks" in MANIFEST.touched_by(["tasks/harness/judge/clock.py"])
    assert MANIFEST.touched_by(["tests/acceptance/attacks/cases/new/submission.py"]) == {"attacks"}
    assert MANIFEST.touched_by(["pyproject.toml"]) == NAMES
    assert MANIFEST.touched_by(["a/new/place.py"]) == NAMES
    assert MANIFEST.touched_by(["runner/new/place.py"]) == NAMES
    assert MANIFEST.touched_by([f"docs/{number}.txt" for number in range(MAX_FILES + 1)]) == NAMES


def test_the_change_is_what_differs_from_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the merge base on a branch, from the parent on the main branch; without either, everything is played."""
    monkeypatch.setattr(tiers_module, "ROOT", tmp_path)

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        git("add", name)
        git("commit", "-m", name)

    git("init", "-b", "main")
    assert changed_files() is None
    commit("first.txt")
    assert changed_files() is None
    commit("docs/second.txt")
    assert changed_files() == ["docs/second.txt"]
    git("checkout", "-b", "branch")
    commit("docs/third.txt")
    commit("docs/fourth.txt")
    (tmp_path / "docs" / "fifth.txt").write_text("")
    assert sorted(changed_files() or ()) == ["docs/fifth.txt", "docs/fourth.txt", "docs/third.txt"]
    main()
    assert capsys.readouterr().out == "\n"
    (tmp_path / ".git").rename(tmp_path / "elsewhere")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    main()
    assert capsys.readouterr().out == f"{ALL}\n"
