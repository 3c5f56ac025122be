"""One line of a report on a host, a GPU type or a task: what was looked at, what was found, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

import typer
from rich.console import Group
from rich.text import Text

from runner.base.model import Json
from runner.base.safe import one_line
from runner.cli.app import ExitCode, out, out_json


class Mark(StrEnum):
    """How a question was answered."""

    OK = "ok"
    #: Neither good nor bad: what else there is, and how to get it.
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the report."""

    name: str
    mark: Mark
    #: The fact.
    fact: str
    #: What to do; None when there is nothing to do.
    remedy: str | None = None
    #: The failure is that database or engine are not there at all.
    infrastructure: bool = False

    @classmethod
    def ok(cls, name: str, fact: str, remedy: str | None = None) -> Finding:
        """All is well."""
        return cls(name=name, mark=Mark.OK, fact=fact, remedy=remedy)

    @classmethod
    def warning(cls, name: str, fact: str, remedy: str | None = None) -> Finding:
        """It works, and could be better."""
        return cls(name=name, mark=Mark.WARNING, fact=fact, remedy=remedy)

    @classmethod
    def failed(cls, name: str, fact: str, remedy: str | None = None, *, infrastructure: bool = False) -> Finding:
        """It does not work."""
        return cls(name=name, mark=Mark.FAILED, fact=fact, remedy=remedy, infrastructure=infrastructure)

    def to_json(self) -> Json:
        """As `check --json` prints it."""
        return {"name": self.name, "mark": self.mark.value, "found": self.fact, "remedy": self.remedy}


def verdict_of(findings: Sequence[Finding]) -> ExitCode:
    """The exit code that a list of findings deserves."""
    failed = [finding for finding in findings if finding.mark is Mark.FAILED]
    if any(finding.infrastructure for finding in failed):
        return ExitCode.INFRASTRUCTURE
    return ExitCode.NOT_ACCEPTED if failed else ExitCode.OK


def report(findings: Sequence[Finding], *, as_json: bool, **document: Any) -> NoReturn:  # noqa: ANN401 - JSON
    """Print findings, for programs after the other keys of the document, and end the command by them."""
    if as_json:
        out_json({**document, "checks": [finding.to_json() for finding in findings]})
    else:
        for finding in findings:
            out(render(finding))
    raise typer.Exit(verdict_of(findings))


def render(finding: Finding) -> Group:
    """A finding for people: a mark, what was found, and below it what to do."""
    sign, style = {
        Mark.OK: ("✓", "green"),
        Mark.NOTE: ("·", "dim"),
        Mark.WARNING: ("!", "yellow"),
        Mark.FAILED: ("✗", "bold red"),
    }[finding.mark]
    line = Text.assemble((sign, style), f" {finding.name}: {one_line(finding.fact)}")
    return Group(line) if finding.remedy is None else Group(line, Text(f"    {finding.remedy}", style="dim"))
