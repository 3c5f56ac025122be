"""Every link and every mention of a page leads somewhere: between pages, and from help texts and comments to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "runner/store/schema/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
_LINK: Final = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_MENTION: Final = re.compile(r"\bdocs/((?:[\w-]+/)*[\w-]+\.md)(?:#([\w-]+))?")
_FENCE: Final = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|sql|json|toml)|(?:[\w.-]+/)+[\w.-]*)`")
_SUFFIXES: Final = (".py", ".sql", ".toml", ".json", ".in", ".service", ".yml")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    found: list[str] = []
    for head in re.findall(r"(?m)^#+ (.+)$", text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head)
        anchor = re.sub(r"[^\w -]", "", plain).strip().lower().replace(" ", "-")
        found.append(anchor if anchor not in found else f"{anchor}-{found.count(anchor)}")
    return set(found)


def wrong(page: Path, path: str, anchor: str | None) -> bool:
    """Whether a link of a page leads nowhere."""
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return anchor is not None and target.suffix == ".md" and anchor not in anchors(target)


def mentions() -> Iterator[tuple[Path, str, str | None]]:
    """Each place of the source that names a page: where, the page below docs/, the section."""
    for folder in ("development", "runner", "sandbox", "tasks", "systemd", "tests", "docs/monitoring", "docs/examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in _SUFFIXES and path != Path(__file__):
                for page, anchor in _MENTION.findall(path.read_text(encoding="utf-8")):
                    yield path, page, anchor or None


def test_every_link_of_a_page_leads_somewhere() -> None:
    """To a file that is there, and to a heading that it has."""
    lost = [
        f"{page.relative_to(ROOT)}: {path}#{anchor}"
        for page in PAGES
        for path, anchor in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
        if wrong(page, path, anchor or None)
    ]
    assert not lost


def test_every_page_that_the_source_names_is_there() -> None:
    """Help texts, comments and tests name pages by `docs/NAME.md` and their sections by `#ANCHOR`."""
    lost = [
        f"{path.relative_to(ROOT)}: docs/{page}#{anchor}"
        for path, page, anchor in mentions()
        if wrong(ROOT / "README.md", f"docs/{page}", anchor)
    ]
    assert not lost


def test_every_file_that_the_pages_for_developers_name_is_there() -> None:
    """By its path, or by its name alone where the sentence has named the folder."""
    pages = (ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md", ROOT / "runner/store/schema/README.md")
    named = {(page, name) for page in pages for name in _FILE.findall(page.read_text(encoding="utf-8"))}
    names = {
        path.name
        for folder in ("development", "runner", "sandbox", "tasks", "tests")
        for path in (ROOT / folder).rglob("*")
        if "__pycache__" not in path.parts
    }
    assert len(named) > 50
    assert [
        f"{page.relative_to(ROOT)}: {name}"
        for page, name in sorted(named)
        if name.rstrip("/") not in names and not (ROOT / name).exists() and not (page.parent / name).exists()
    ] == []


def test_the_tour_of_one_job_names_functions_of_its_files() -> None:
    """A step that was renamed or moved is moved on the page, too."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = re.findall(r"(?m)^\| \d+ \| `([^`]+)` \| `(?:\w+\.)?(\w+)` \|", page)
    assert len(steps) == 15
    assert [
        (file, name)
        for file, name in steps
        if not re.search(rf"(def |FUNCTION runner\.){name}\(", (ROOT / file).read_text(encoding="utf-8"))
    ] == []


def test_no_link_follows_a_branch_of_another_project() -> None:
    """A file of a branch moves or goes; a commit's stays."""
    branch = re.compile(r"https://github\.com/[^)\s]+/(?:blob|tree)/(?![0-9a-f]{40}/)[^)\s]*")
    assert [found for page in PAGES for found in branch.findall(page.read_text(encoding="utf-8"))] == []
