"""The shell commands that README.md, CONTRIBUTING.md and docs/ show.

Shown are lines of `sh` blocks, and lines after a `$` in indented blocks. A comment behind a command is not part of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
_BLOCK: Final = re.compile(r"^ *```(?:sh|bash|console|shell)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_PROMPT: Final = re.compile(r"^    \$ (.+)$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Shown:
    """A command and where it is shown."""

    page: str
    command: str


def shown() -> Iterator[Shown]:
    """Every command, page by page in the order of the text."""
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        found = [(match.start(), match[1]) for match in _BLOCK.finditer(text)]
        found += [(match.start(), match[1]) for match in _PROMPT.finditer(text)]
        for _, block in sorted(found):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.sub(r"\s+# .*$", "", line).strip()
                if command and not command.startswith("#"):
                    yield Shown(path.relative_to(ROOT).as_posix(), " ".join(command.split()))


def words(command: str) -> tuple[list[str], Path | None]:
    """Arguments of a plain command, and the file that its output goes to.

    Raises:
        ValueError: it is more than that.
    """
    parts = shlex.split(command)
    target = None
    if len(parts) > 2 and parts[-2] == ">":
        target, parts = Path(parts[-1]), parts[:-2]
    if {"|", "&&", "||", ";", ">", "<", "&"} & set(parts) or "$(" in command:
        raise ValueError(f"{command!r} is more than one plain command")
    return parts, target
